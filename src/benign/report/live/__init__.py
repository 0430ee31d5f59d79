"""The live page: heat maps of sweeps that fill while they run (`benign serve`)."""
