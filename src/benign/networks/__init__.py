"""What is trained: one module a network."""
