"""Kou, Chen, Chen, Gu: Benign Overfitting for Two-layer ReLU Convolutional Neural Networks (ICML 2023)."""
