"""Gradient descent over a batch of runs: the setup, the steps, what is measured."""
