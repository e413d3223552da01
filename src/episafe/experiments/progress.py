"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from episafe.plain_text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress  # who shows no bar does not wait for it

    from episafe.experiments.job import AnyJob  # who only shows a bar needs no agent

LINE_EVERY = 5.0  # seconds between plain lines
SILENT = 2.0  # seconds in which a late bar shows nothing
BAR, FIGURES = 10, 40  # characters: a bar, and all that stands beside its title
MEANINGFUL = 0.1  # share, done since the first part was, from which on an estimate of the time left is shown


@contextmanager
def bar(title: str, total: float, console: Console) -> Iterator[Callable[[float], None]]:
    """A function to call with how much of `total` is done."""
    title = escape(one_line(title))
    if console.is_terminal:
        with _progress(console) as shown:
            task = shown.add_task(f"compiling or reading: {title}", total=total)
            yield lambda done: shown.update(task, completed=done, description=title)
            shown.update(task, completed=total, description=title)
    else:
        yield _plain_lines(title, total, console)


@contextmanager
def late_bar(title: str, console: Console) -> Iterator[Callable[[float], None]]:
    """A function to call with the share that is done, of what is mostly over at once: the first seconds show nothing.

    It may be called for every small part: what is shown changes a few times a second.
    """
    title, start = escape(one_line(title)), time.monotonic()
    shown, last = _progress(console), start
    task, plain = shown.add_task(title, total=1.0), _plain_lines(title, 1.0, console)

    def show(done: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < 0.2:
            return
        last = now
        shown.update(task, completed=done)
        if not console.is_terminal:
            plain(done)
        elif now - start > SILENT:
            shown.start()

    try:
        yield show
    finally:
        shown.stop()


def _progress(console: Console) -> "Progress":
    """A bar with its times; a title that is too long for the terminal ends in dots, and the times are whole."""
    from rich.progress import (
        BarColumn,
        Progress,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class TimeLeft(TimeRemainingColumn):
        """The time left, once so much is done that it can be told: the first part compiles, or only opens a file."""

        def render(self, task: Task) -> Text:
            """Of one bar."""
            return super().render(task) if task.percentage >= 100 * MEANINGFUL else Text("-:--:--")

    room = Column(no_wrap=True, overflow="ellipsis", max_width=max(console.width - FIGURES, 10))
    columns = (TextColumn("{task.description}", table_column=room), BarColumn(BAR), TaskProgressColumn())
    times = (TimeElapsedColumn(), TextColumn("left:"), TimeLeft(elapsed_when_finished=True))
    return Progress(*columns, *times, console=console)


@contextmanager
def counting(title: str, jobs: "Sequence[AnyJob]", console: Console) -> "Iterator[Callable[[AnyJob], None]]":
    """A function to call with each job that is done; costs are what is counted."""
    done = 0.0
    with bar(title, sum(job.cost for job in jobs), console) as advance:

        def on_done(job: "AnyJob") -> None:
            nonlocal done
            done += job.cost
            advance(done)

        yield on_done


def _plain_lines(title: str, total: float, console: Console) -> Callable[[float], None]:
    """Plain lines, at most one every few seconds."""
    start = last = time.monotonic()
    first: tuple[float, float] | None = (
        None  # when something was done at last, and how much: what came before was compiling
    )

    def show(done: float) -> None:
        nonlocal last, first
        now = time.monotonic()
        if done <= 0:
            return
        first = first or (now, done / total)
        if now - last < LINE_EVERY:
            return
        last, elapsed, share = now, now - start, done / total
        since = share - first[1]
        left = f", about {(now - first[0]) * (1 - share) / since:.0f} s left" if since >= MEANINGFUL else ""
        console.print(f"{title}: {share:.0%} done, {elapsed:.0f} s elapsed{left}", highlight=False)

    return show
