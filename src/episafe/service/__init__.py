"""A session over HTTP, and as a page for people."""
