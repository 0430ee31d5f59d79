"""Shortcuts that make training fast and give the same runs.

    gram_state    clean training on products of tokens, in place of the weights
    recording     the attack of a training step and its forward pass as CUDA graphs

Imports attacks and networks. Nothing here is public.
"""
