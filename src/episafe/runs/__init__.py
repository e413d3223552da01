"""The only loop, and the facts it leaves behind."""
