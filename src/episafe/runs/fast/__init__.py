"""Compiled loops, each of a kind of agent: `LOOPS` in `runs/run.py` says which pair of world and agent has one."""
