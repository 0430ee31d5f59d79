"""Li, Li: Adversarial Training Can Provably Improve Robustness (feature learning under structured data)."""
