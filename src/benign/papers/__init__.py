"""One room a paper: its figures as recipes, with the readings of what it leaves open."""
