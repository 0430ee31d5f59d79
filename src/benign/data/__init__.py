"""Where samples come from: one module a data model."""
