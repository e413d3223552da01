"""Algorithms: each decides a plan from a task and the episodes it has learned from. One algorithm a file."""
