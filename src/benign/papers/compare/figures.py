"""Comparisons between the papers' networks as recipes."""

from benign.papers.compare.architectures import ARCHITECTURES

RECIPES = [ARCHITECTURES]
