"""What perturbs the inputs: balls, then attacks written once over balls and losses."""
