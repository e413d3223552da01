"""Gymnasium environments as problems, and problems as Gymnasium environments."""
