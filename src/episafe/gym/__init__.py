"""Gymnasium environments as problems."""
