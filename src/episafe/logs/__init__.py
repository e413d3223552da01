"""Logged episodes: tables, Minari data sets, and the warm start from them."""
