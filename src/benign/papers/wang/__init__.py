"""Wang, Zhang, Arora: Benign Overfitting in Adversarial Training of Neural Networks (ICML 2024)."""
