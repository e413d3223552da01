"""Experiments are data: a TOML file names environments, agents and budgets; jobs and processes do the rest."""
