"""The same training by a plain PyTorch loop, by `torch.func.vmap`, by JAX and by benign, timed in turn."""
