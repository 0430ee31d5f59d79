"""Trackers: runs logged to TensorBoard and MLflow (`--track`)."""
