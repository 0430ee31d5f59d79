"""What an experiment consists of: cells, runs, units, and how it may grow."""
