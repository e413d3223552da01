"""What a loop hands to the journal: states and actions of each episode, and how much was known when it was planned.

A tape holds the episodes since the last batch. Compiled loops write into the arrays of a `Trace`, row k mod m.
"""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.agents.base import Agent, Episode
from episafe.kernels.compilation import kernel
from episafe.storage.json_values import as_text
from episafe.types import Array

BATCH = 5_000  # episodes after which a batch is written, and that a loop is away for at most
ROOM = 2 * BATCH  # so that a loop may overshoot

Bytes = NDArray[np.uint8]


class Trace(NamedTuple):
    """`rows` (m, w): states, then actions, each in as few bytes as it needs, lowest first; `log_dets` (m, n) when the
    plan of the episode was made. `state_bytes` and `action_bytes` are how many bytes."""

    rows: Bytes
    log_dets: Array
    state_bytes: int
    action_bytes: int


def blank_trace(horizon: int, num_states: int, num_actions: int, room: int) -> Trace:
    """Room for so many episodes."""
    state_bytes, action_bytes = num_bytes(num_states), num_bytes(num_actions)
    width = (horizon + 1) * state_bytes + horizon * action_bytes
    return Trace(np.zeros((room, width), dtype=np.uint8), np.zeros((room, horizon)), state_bytes, action_bytes)


def num_bytes(below: int) -> int:
    """How many bytes hold a whole number below `below`."""
    return max(1, ((below - 1).bit_length() + 7) // 8)


@kernel
def write_down(trace, k, states, actions, log_dets):  # type: ignore[no-untyped-def]
    """Leave episode k, states (H+1,), actions (H,) and log_dets (≤ H,), in the trace."""
    row, place = k % trace.rows.shape[0], 0
    for h in range(states.shape[0]):
        for b in range(trace.state_bytes):
            trace.rows[row, place] = (states[h] >> (8 * b)) & 255
            place += 1
    for h in range(actions.shape[0]):
        for b in range(trace.action_bytes):
            trace.rows[row, place] = (actions[h] >> (8 * b)) & 255
            place += 1
    for h in range(log_dets.shape[0]):
        trace.log_dets[row, h] = log_dets[h]


def log_dets(agent: Agent) -> Array:
    """ln det Λ_h of each step when the plan in force was made; for agents that count, Σ_{s,a} ln(n ∨ 1)."""
    known = agent.information_then
    found: Array = known if known.ndim == 1 else known.reshape(len(known), -1).sum(axis=1)
    return found


class Tape:
    """Episodes of a task with listed states."""

    def __init__(self, agent: Agent) -> None:
        task = agent.task
        assert task.num_states is not None
        self.trace = blank_trace(task.horizon, task.num_states, task.num_actions, ROOM)

    def note(self, k: int, episode: Episode, agent: Agent) -> None:
        """Keep episode k; its arrays may be written to afterwards."""
        write_down(self.trace, k, episode.states, episode.actions, log_dets(agent))

    def episodes(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Episodes `start` to `stop` as arrays for a frame."""
        first, count = start % ROOM, stop - start
        if first + count <= ROOM:
            return {"rows": self.trace.rows[first : first + count]}
        return {"rows": self.trace.rows[np.arange(start, stop) % ROOM]}

    def log_dets(self, k: int, count: int) -> Array:
        """Those of episode k; agents may have fewer than one a step."""
        found: Array = self.trace.log_dets[k % ROOM, :count]
        return found


def numbers(rows: Bytes, first: int, count: int, size: int) -> NDArray[np.int64]:
    """`count` whole numbers of `size` bytes from each row, from its byte `first` on: (m, count)."""
    parts = rows[:, first : first + count * size].reshape(len(rows), count, size).astype(np.int64)
    found: NDArray[np.int64] = (parts << (8 * np.arange(size))).sum(axis=2)
    return found


class SampledTape:
    """Episodes whose states are anything, as text."""

    def __init__(self, agent: Agent) -> None:
        self._texts: list[bytes] = [b""] * ROOM
        self._log_dets: list[Array] = [np.zeros(0)] * ROOM
        self.trace = None

    def note(self, k: int, episode: Episode, agent: Agent) -> None:
        """Keep episode k."""
        seen = [None if given is None else np.asarray(given) for given in (episode.rewards, episode.utilities)]
        said = [list(episode.states), [int(a) for a in episode.actions], *seen, episode.component]
        self._texts[k % ROOM], self._log_dets[k % ROOM] = as_text(said).encode(), log_dets(agent).copy()

    def episodes(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Episodes `start` to `stop`: their text, one after another, and where each ends."""
        texts = [self._texts[k % ROOM] for k in range(start, stop)]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return {"texts": np.frombuffer(b"".join(texts), np.uint8), "ends": ends}

    def log_dets(self, k: int, count: int) -> Array:
        """Those of episode k."""
        return self._log_dets[k % ROOM]


def rows_of(arrays: dict[str, NDArray[Any]]) -> list[bytes] | NDArray[np.uint8]:
    """The bytes of each episode of a frame, by which the state of an agent is hashed."""
    if "texts" in arrays:
        texts, ends = arrays["texts"].tobytes(), arrays["ends"].tolist()
        return [texts[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    rows: Bytes = arrays["rows"]
    if "components" not in arrays:
        return rows
    found: Bytes = np.concatenate([rows, arrays["components"][:, None]], axis=1)
    return found


class StateHash:
    """SHA-256 over the fingerprint of an agent and the episodes it learned from, in their order."""

    def __init__(self, fingerprint: str) -> None:
        self._hash = hashlib.sha256(fingerprint.encode())

    def add(self, data: Any) -> None:
        """Take in episodes."""
        self._hash.update(data)

    def now(self) -> str:
        """The hash so far."""
        return self._hash.copy().hexdigest()
