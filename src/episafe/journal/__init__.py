"""What was deployed and what came of it, on disk: frames, the log of them, and the audit trail."""
