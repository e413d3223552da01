"""What the command line offers beside runs and reports: check, preflight, calibration, frontier, bench."""
