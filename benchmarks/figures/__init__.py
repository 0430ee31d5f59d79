"""Whole figures, from the command to the dataset: a plain PyTorch loop, JAX and benign on the same runs, in turn."""
