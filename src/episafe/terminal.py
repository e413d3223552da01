"""How the command line speaks: consoles, output for people and for programs, exit codes, and the help of flags."""

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from episafe.errors import DamagedFile, InvalidProblem
from episafe.plain_text import printable

FAILED, USAGE, UNSAFE, DAMAGED, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 4, 130, 141
CODES = {InvalidProblem: UNSAFE, DamagedFile: DAMAGED, FileNotFoundError: USAGE, OSError: FAILED}  # the first that fits


class Terminal(Console):
    """A console that obeys no control character of what it is given: names, reasons and errors come from anywhere."""

    def on_broken_pipe(self) -> None:
        """Nobody reads on, as behind `| head`: leave quietly, by the code of a process that the pipe has ended."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(PIPE_CLOSED)

    def say(self, *lines: str) -> None:
        """Lines as they are, whatever brackets are in them."""
        for line in lines:
            self.prose(escape(line))

    def prose(self, line: Any) -> None:
        """A line, however long: broken between words for a person, further in than it began; whole for a program."""
        if self.is_terminal and isinstance(line, str):
            inside, text = len(line) - len(line.lstrip()), self.render_str(line.strip(), highlight=False)
            self.print(Text(" " * inside) + _in_rows(text, self.width - inside - 2, inside + 2), soft_wrap=True)
        else:
            self.print(line, highlight=False, soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Text with its markup, every control character shown."""
        return super().render_str(printable(text), **how)


def _in_rows(text: Text, width: int, inside: int) -> Text:
    """The text in rows of whole words, all but the first so many characters further in."""
    rows = textwrap.wrap(text.plain, max(width, 20), break_long_words=False, break_on_hyphens=False)
    starts, end = list[int](), 0
    for row in rows[:-1]:
        end = text.plain.index(row, end) + len(row)
        starts.append(end + 1)  # the blank between two rows
    parts = text.divide(starts)
    for part in parts:
        part.rstrip()
    return Text("\n" + " " * inside).join(parts)


console, errors = Terminal(emoji=False), Terminal(stderr=True, emoji=False)


@contextmanager
def exit_codes(stopped: Callable[[], str] = lambda: "stopped; nothing was kept") -> Iterator[None]:
    """Turn what went wrong into one line and the exit code that says which kind it was; Ctrl-C into what to do next,
    which `stopped` is asked for then."""
    try:
        yield
    except KeyboardInterrupt:
        errors.say(stopped())
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, TypeError, OSError) as error:
        missing = error.filename if isinstance(error, FileNotFoundError) else None
        said = f"there is no file {missing}" if missing else str(error)
        errors.prose(f"[red]error:[/red] {escape(said)}")
        raise typer.Exit(next((code for kind, code in CODES.items() if isinstance(error, kind)), USAGE)) from error


def echo(text: str) -> None:
    """Text for a program, as it is."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        console.on_broken_pipe()


def on_terminal() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin.isatty()


def show(found: Any, as_json: bool, tables: Sequence[Table] = (), lines: Sequence[Any] = ()) -> None:
    """What was found, for a program or for people."""
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    for table in tables:
        for column in table.columns:
            column.overflow = "fold"  # a name that is too long is broken, and never cut
        console.print(table)
    for line in lines:
        console.prose(line)


def _bare(params: list[Any]) -> list[Any]:
    """Options whose flags show no value in the help: they take none."""
    for one in params:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return params


class Command(TyperCommand):
    """A command with bare flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, the help among them."""
        return _bare(super().get_params(ctx))


class Commands(TyperGroup):
    """All commands, with bare flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Their options, the help among them."""
        return _bare(super().get_params(ctx))
