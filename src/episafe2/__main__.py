"""Run the command line: `python -m episafe`."""

from episafe2.cli import app

app()
