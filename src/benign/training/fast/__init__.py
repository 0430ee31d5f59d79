"""training.fast"""
