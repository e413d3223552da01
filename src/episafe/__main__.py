"""Run the command line: `python -m episafe`."""

from episafe.cli import app

app()
