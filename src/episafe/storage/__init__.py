"""Files: atomic, sealed, chained; how values become bytes and come back, without trust."""
