"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
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


class Pace:
    """How much longer work takes, by the share that is done and the time that it took.

    Both are counted from the first part that was done: what came before was compiling, or only opened a file.
    """

    def __init__(self) -> None:
        self._first = self._last = (0.0, 0.0)  # when, and what share

    def hear(self, share: float) -> None:
        """So much is done by now."""
        if share > 0:
            heard = (time.monotonic(), min(share, 1.0))
            self._first = self._first if self._first[1] else heard  # before the last: another thread draws
            self._last = heard

    def left(self) -> float | None:
        """Seconds, by the pace so far: t (1 − s)/s for a share s in time t, less what has passed since.

        None where nobody can tell: too little is done, the part under way takes longer than all before it, or more has
        passed since than was left.
        """
        (begun, before), (at, share) = self._first, self._last
        waited, took, made = time.monotonic() - at, at - begun, share - before
        if share >= 1:
            return 0.0
        if made < MEANINGFUL or waited > took:
            return None
        left = took * (1 - share) / made - waited
        return left if left > 0 else None


@contextmanager
def bar(title: str, total: float, console: Console) -> Iterator[Callable[[float], None]]:
    """A function to call with how much of `total` is done."""
    title, pace = escape(one_line(title)), Pace()
    if not console.is_terminal:
        yield _plain_lines(title, total, console)
        return
    with _progress(console, pace) as shown:
        task = shown.add_task(f"compiling or reading: {title}", total=total)

        def show(done: float) -> None:
            pace.hear(done / total)
            shown.update(task, completed=done, description=title)

        yield show
        show(total)


@contextmanager
def late_bar(title: str, console: Console) -> Iterator[Callable[[float], None]]:
    """A function to call with the share that is done, of what is mostly over at once: the first seconds show nothing.

    It may be called for every small part: what is shown changes a few times a second.
    """
    title, start, pace = escape(one_line(title)), time.monotonic(), Pace()
    shown, last = _progress(console, pace), start
    task, plain = shown.add_task(title, total=1.0), _plain_lines(title, 1.0, console)

    def show(done: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < 0.2:
            return
        last = now
        pace.hear(done)
        shown.update(task, completed=done)
        if not console.is_terminal:
            plain(done)
        elif now - start > SILENT:
            shown.start()

    try:
        yield show
    finally:
        shown.stop()


def _progress(console: Console, pace: Pace) -> "Progress":
    """A bar with its times; a title that is too long for the terminal ends in dots, and the times are whole."""
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """The time left, as far as it can be told."""

        def render(self, task: Task) -> Text:
            """Of the bar."""
            left = pace.left()
            return Text("-:--:--" if left is None else str(timedelta(seconds=math.ceil(left))))

    room = Column(no_wrap=True, overflow="ellipsis", max_width=max(console.width - FIGURES, 10))
    columns = (TextColumn("{task.description}", table_column=room), BarColumn(BAR), TaskProgressColumn())
    return Progress(*columns, TimeElapsedColumn(), TextColumn("left:"), TimeLeft(), console=console)


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
    pace = Pace()

    def show(done: float) -> None:
        nonlocal last
        now = time.monotonic()
        pace.hear(done / total)
        if done <= 0 or now - last < LINE_EVERY:
            return
        last, left = now, pace.left()
        said = "" if left is None else f", about {left:.0f} s left"
        console.print(f"{title}: {done / total:.0%} done, {now - start:.0f} s elapsed{said}", highlight=False)

    return show
