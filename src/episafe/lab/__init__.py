"""Experiments: sweeps, the benchmark and the comparison of the paper."""
