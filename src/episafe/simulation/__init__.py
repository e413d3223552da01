"""Simulations: worlds that play policies, the loop, and the record of a run."""
