"""Jiang, Huang, Zhang, Suzuki, Nie: Unveil Benign Overfitting for Transformer in Vision (NeurIPS 2024)."""
