"""What a monitor says when the data contradict what it watches."""

from dataclasses import dataclass
from typing import Literal

Watched = Literal["range", "incumbent", "threshold", "bound", "drift", "residual"]


@dataclass(frozen=True)
class Alarm:
    """One contradiction. Each monitor raises its alarm once.

    Attributes:
        what: which monitor.
        says: what is contradicted, by which figures, in words.
        after: how many episodes had been watched, this one included.
        halts: whether exploration should stop: `session.halt(alarm.says)`.
    """

    what: Watched
    says: str
    after: int
    halts: bool = True
