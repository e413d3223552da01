"""Learners of linear bandits: OPLB-SP, OPLB and their peers, on one engine."""
