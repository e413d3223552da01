"""Everything about Gymnasium: its environments as problems."""
