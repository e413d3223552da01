"""Models that agents learn: ridge regression, counts and their constants."""
