"""`python -m episafe` is the command `episafe`."""

from episafe.cli import app

app()
