"""Tapes: the episodes of a simulation since its last batch, as few bytes as they need.

A tape has room for more episodes than a loop plays before a batch is written; episode k is in row k mod ROOM. What it
hands out as arrays is what a frame holds, and `read` gives the reports back.

Kernels are imported by the tapes that they write: who only follows a journal does not wait for their compiler.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from episafe.storage.json_values import as_text, from_text
from episafe.types import Array, Episode, IntArray, amount

if TYPE_CHECKING:
    from episafe.kernels.bandit_loop import RoundTrace
    from episafe.kernels.episode_trace import Trace

BATCH = 5_000  # episodes after which a batch is written, and that a loop is away for at most
ROOM = 2 * BATCH  # so that a loop may overshoot

Arrays = dict[str, NDArray[Any]]
ReportOf = Callable[[Any], tuple[Any, ...]]  # of the plan that was deployed


class ListedTape:
    """Episodes of a task with listed states: states and actions, each in as few bytes as it needs. Compiled loops write
    into `trace`."""

    kind: ClassVar[str] = "rows"

    def __init__(self, task: Any) -> None:
        from episafe.kernels.episode_trace import blank_trace, write_down

        self.trace: Trace = blank_trace(task.horizon, task.num_states, task.num_actions, ROOM)
        self._write_down = write_down

    def note(self, k: int, report: tuple[Any, ...], known: Array, atom: int) -> None:
        """Keep episode k, and how much was `known` when it was planned; its arrays may be written to afterwards."""
        (episode,) = report
        self._write_down(self.trace, k, np.asarray(episode.states), np.asarray(episode.actions), known)

    def arrays(self, start: int, stop: int) -> Arrays:
        """Episodes `start` to `stop`."""
        return {self.kind: self.trace.rows[np.arange(start, stop) % ROOM]}

    def known(self, k: int, count: int) -> Array:
        """What was known in episode k; agents may have fewer than one number a step."""
        return self.trace.log_dets[k % ROOM, :count]

    @staticmethod
    def read(arrays: Arrays, task: Any) -> Iterator[ReportOf]:
        """The reports, as the agent saw them."""
        from episafe.kernels.episode_trace import num_bytes

        H, wide, narrow = task.horizon, num_bytes(task.num_states), num_bytes(task.num_actions)
        rows = arrays["rows"]
        if rows.shape[1] != (H + 1) * wide + H * narrow:
            raise ValueError("its episodes are of another length")
        states = _whole_numbers(rows, 0, H + 1, wide)
        actions = _whole_numbers(rows, (H + 1) * wide, H, narrow)
        components = arrays["components"].tolist() if "components" in arrays else [None] * len(rows)
        for seen in zip(states, actions, components, strict=True):
            yield lambda plan, seen=seen: (Episode(seen[0], seen[1], component=seen[2]),)  # type: ignore[misc]


class TextTape:
    """Episodes whose states are anything, as text."""

    kind: ClassVar[str] = "ends"
    trace = None

    def __init__(self, task: Any) -> None:
        self._task = task
        self._texts: list[bytes] = [b""] * ROOM
        self._known: list[Array] = [np.zeros(0)] * ROOM

    def note(self, k: int, report: tuple[Any, ...], known: Array, atom: int) -> None:
        """Keep episode k."""
        self._texts[k % ROOM] = as_text(self._task.report_values(*report)).encode()
        self._known[k % ROOM] = known.copy()

    def arrays(self, start: int, stop: int) -> Arrays:
        """Episodes `start` to `stop`: their text, one after another, and where each ends."""
        texts = [self._texts[k % ROOM] for k in range(start, stop)]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return {"texts": np.frombuffer(b"".join(texts), np.uint8), self.kind: ends}

    def known(self, k: int, count: int) -> Array:
        """What was known in episode k."""
        return self._known[k % ROOM]

    @staticmethod
    def read(arrays: Arrays, task: Any) -> Iterator[ReportOf]:
        """The reports, as the agent saw them."""
        for text in _texts(arrays):
            yield lambda plan, text=text: task.report_from(from_text(text.decode()))  # type: ignore[misc]


class RoundTape:
    """Rounds of a bandit: which atom of the plan was played, and the reward and utilities seen."""

    kind: ClassVar[str] = "atoms"

    def __init__(self, task: Any) -> None:
        from episafe.kernels.bandit_loop import blank_rounds

        self.trace: RoundTrace = blank_rounds(ROOM, task.num_constraints)

    def note(self, k: int, report: tuple[Any, ...], known: Array, atom: int) -> None:
        """Keep round k."""
        atoms, signals, then = self.trace
        atoms[k % ROOM], signals[k % ROOM], then[k % ROOM] = atom, np.hstack(report[1:]), known

    def arrays(self, start: int, stop: int) -> Arrays:
        """Rounds `start` to `stop`."""
        rows = np.arange(start, stop) % ROOM
        return {self.kind: self.trace.atoms[rows], "signals": self.trace.signals[rows]}

    def known(self, k: int, count: int) -> Array:
        """What was known in round k."""
        return self.trace.known[k % ROOM]

    @staticmethod
    def read(arrays: Arrays, task: Any) -> Iterator[ReportOf]:
        """The reports, as the agent saw them."""
        for atom, (reward, *utilities) in zip(arrays["atoms"].tolist(), arrays["signals"].tolist(), strict=True):
            seen = atom, reward, amount(utilities)
            yield lambda plan, seen=seen: (plan.atoms[seen[0]], *seen[1:])  # type: ignore[misc]


TAPES: dict[str, type["Tape"]] = {tape.kind: tape for tape in (ListedTape, TextTape, RoundTape)}
Tape = ListedTape | TextTape | RoundTape


def tape_of(arrays: Arrays) -> type[Tape]:
    """Which tape the arrays of a frame are of."""
    kinds = [kind for kind in TAPES if kind in arrays]
    if not kinds:
        raise ValueError("it has no episodes")
    return TAPES[kinds[0]]


def num_episodes(arrays: Arrays) -> int:
    """How many episodes a batch has."""
    return len(arrays[tape_of(arrays).kind])


def episode_bytes(arrays: Arrays) -> list[bytes] | NDArray[np.uint8]:
    """The bytes of each episode, by which what an agent has learned is hashed."""
    if "texts" in arrays:
        return _texts(arrays)
    columns = [arrays[name] for name in ("rows", "components", "atoms", "signals") if name in arrays]
    m = num_episodes(arrays)
    parts = [np.ascontiguousarray(column).view(np.uint8).reshape(m, -1) for column in columns]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _whole_numbers(rows: NDArray[np.uint8], first: int, count: int, size: int) -> IntArray:
    """`count` whole numbers of `size` bytes from each row, from its byte `first` on: (m, count)."""
    parts = rows[:, first : first + count * size].reshape(len(rows), count, size).astype(np.int64)
    return (parts << (8 * np.arange(size))).sum(axis=2)


def _texts(arrays: Arrays) -> list[bytes]:
    texts, ends = arrays["texts"].tobytes(), arrays["ends"].tolist()
    return [texts[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
