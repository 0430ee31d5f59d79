"""Pages to look at: figures for browsers, and one self-contained page of runs."""
