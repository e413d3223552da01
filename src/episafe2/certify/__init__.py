"""Certifiers: what may be deployed, and the agent that uses them."""
