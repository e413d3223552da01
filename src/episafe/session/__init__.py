"""Live systems: a log of events, the state that follows from it, and the session that deploys and reports."""
