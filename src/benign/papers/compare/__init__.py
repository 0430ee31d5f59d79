"""What the papers say about each other's networks, measured on the same data."""
