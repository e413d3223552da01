"""Learners of linear bandits: one algorithm a file, one engine."""
