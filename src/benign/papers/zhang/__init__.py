"""Zhang, Ding, Fu, Zhang, Wang: Benign Overfitting in Adversarial Training for Vision Transformers."""
