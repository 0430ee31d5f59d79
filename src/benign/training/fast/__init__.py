"""What makes training quick and never changes what it means: carried products and recorded CUDA graphs."""
