"""Runs in the trackers that people use: TensorBoard, MLflow. Records stay the truth; a tracker shows copies."""
