"""Everything that is compiled, and nothing else: formulas on plain arrays. README.md says what and why."""
