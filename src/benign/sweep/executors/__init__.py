"""sweep.executors"""
