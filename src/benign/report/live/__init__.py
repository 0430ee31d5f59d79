"""The live page: sweeps of a folder as they fill, on this machine (`benign serve`)."""
