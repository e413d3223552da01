"""Figures and pages. This package reads records and logs and imports no algorithm."""
