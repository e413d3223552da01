"""Algorithms: each decides a plan from a task and the episodes it has learned from. An algorithm or a family a file."""
