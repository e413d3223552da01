"""Compiled loops, each of a kind of agent: `LOOPS` in `runs/loop.py` says which pair of world and agent has one."""
