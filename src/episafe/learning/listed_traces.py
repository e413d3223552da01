"""The traces that were seen of a problem with listed states: where they lead, and what any policy is worth on each.

Next states are asked of `move` once for each (step, w, state) that some actions lead to, and kept as arrays.
"""

from collections.abc import Hashable, Sequence
from operator import is_not
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE
from episafe.kernels.trace_replay import NOWHERE, UNKNOWN, MoveTables, expected_totals, follows, reach, totals_of_all
from episafe.learning.traces import UNREADABLE, Traces, read_texts, text_bytes
from episafe.problems.listed_move import chance_key
from episafe.problems.policy import Policy
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, IntArray, amounts

FIRST_ROOM = 64  # rows that arrays begin with; they are doubled


class ListedTraces(Traces):
    """Traces as numbers, and the moves that they need as arrays."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._pairs: list[tuple[int, Any]] = []  # (h, w), by their numbers c
        self._number: dict[tuple[int, Hashable], int] = {}
        self._numbers: tuple[Sequence[Any], IntArray] = (), np.zeros((0, 0), dtype=np.int64)  # of values, (H, W)
        self._size = 0
        H, S, A = task.reward.shape
        self._chances = np.empty((FIRST_ROOM, H), dtype=np.int64)
        self._tables = _blank_tables((FIRST_ROOM, S, A), task.num_constraints)
        self._stack: tuple[list[Policy], Array] = [], np.zeros((0, H, S, A))  # policies, and their tables
        self._counts = np.zeros((FIRST_ROOM, S), dtype=np.int64)
        self._unknown = np.empty((FIRST_ROOM, 2), dtype=np.int64)

    def __len__(self) -> int:
        return self._size

    def take_in(self, trace: Any) -> None:
        """One more trace."""
        brought = enumerate(self.task.read_trace(trace))
        self._append(np.array([[-1 if w is None else self.number(h, w) for h, w in brought]]))

    def take_in_all(self, chances: IntArray, values: Sequence[Any]) -> None:
        """Several more: which of `values` chance brings in each of their steps, (n, H)."""
        steps = np.arange(chances.shape[1])
        if self._numbers[0] is not values:
            self._numbers = values, np.full((len(steps), len(values)), -1)
        _, numbers = self._numbers
        for e, h in np.argwhere(numbers[steps, chances] < 0).tolist():  # in the order in which they came
            numbers[h, chances[e, h]] = self.number(h, values[chances[e, h]])
        self._append(numbers[steps, chances])

    def _append(self, chances: IntArray) -> None:
        while self._size + len(chances) > len(self._chances):
            self._chances = np.concatenate([self._chances, np.empty_like(self._chances)])
        self._chances[self._size : self._size + len(chances)] = chances
        self._reach(chances)
        self._size += len(chances)

    def totals(self, policy: Policy, first: int = 0) -> Array:
        """Expected total reward and utilities (n − first, 1 + m): a policy's own randomness is integrated."""
        if len(policy.components) > 1:
            parts = np.array([self.totals(component, first) for component in policy.components])
            mean: Array = np.tensordot(policy.weights, parts, axes=1)
            return mean
        chances = self._chances[first : self._size]
        found = np.empty((len(chances), 1 + self.task.num_constraints))
        expected_totals(self._tables, chances, self.task.initial_state, policy.table(), found)
        return found

    def totals_of_all(self, policies: Sequence[Policy], first: int = 0) -> Array:
        """The same for several policies, none a mixture, (P, n − first, 1 + m)."""
        known, tables = self._stack
        if len(known) != len(policies) or any(map(is_not, known, policies)):
            tables = np.array([policy.table() for policy in policies])
            self._stack = list(policies), tables
        chances = self._chances[first : self._size]
        found = np.empty((len(policies), len(chances), 1 + self.task.num_constraints))
        totals_of_all(self._tables, chances, self.task.initial_state, tables, found)
        return found

    def beginning(self, number: int) -> "ListedTraces":
        """The first so many traces alone."""
        made = ListedTraces(self.task)
        made._pairs, made._number = list(self._pairs), dict(self._number)
        made._tables = MoveTables._make(table.copy() for table in self._tables)
        made._counts = np.zeros_like(self._counts)
        made._chances, made._size = self._chances[:number].copy(), number
        made._reach(made._chances)
        return made

    def fault_of(self, episode: Any) -> str:
        """Where the episode of the last trace is not what `move` makes of it, in words; "" if nowhere."""
        by_steps = all(one is not None for one in (episode.states, episode.rewards, episode.utilities))
        if by_steps and episode.total_reward is None and episode.total_utility is None:
            path = np.asarray(episode.states, dtype=np.int64), np.asarray(episode.actions, dtype=np.int64)
            signals = np.column_stack([episode.rewards, episode.utilities])
            is_followed = follows(self._tables, self._chances[self._size - 1], *path, signals, TOLERANCE)
            if is_followed and self.task.starts(episode.states):
                return ""
        return super().fault_of(episode)

    def number(self, h: int, w: Any) -> int:
        """The number c of a step and what chance brings there."""
        c = self._number.setdefault((h, chance_key(w)), len(self._pairs))
        if c == len(self._pairs):
            self._pairs.append((h, w))
            if c == len(self._counts):
                self._enlarge()
        return c

    def moves(self, c: int, states: IntArray) -> tuple[IntArray, Array]:
        """Next states (k, A), rewards and utilities (k, A, 1 + m) of a step and chance, from `states` (k,).

        Where no trace led it is no fault if a move cannot be made, and nobody is asked about what the law of a listed
        problem leaves out: a trace that leads there asks again.
        """
        (next_states, signals), fault = self._tables, self.fault
        asked = states[next_states[c, states, 0] == UNKNOWN]
        leaves_out = getattr(self.task.move, "leaves_out", None)
        for s in asked.tolist():
            if leaves_out is None or not leaves_out(self._pairs[c][0], s, self._pairs[c][1]):
                self._ask(c, s)
        found = next_states[c, states], signals[c, states]
        if self.fault != fault:
            next_states[c, asked], self.fault = UNKNOWN, fault
        return found

    def reached(self) -> tuple[list[tuple[int, Any]], IntArray]:
        """The pairs (h, w) by their numbers, and how many of the traces with c lead to state s by some actions, (C, S).

        States of one trace and step differ by what was done alone; so w_h of a trace is one observation of what chance
        brings in each of them.
        """
        return self._pairs, self._counts[: len(self._pairs)]

    def seen_by_step(self) -> IntArray:
        """How many traces have each of these pairs, (C,)."""
        chances = self._chances[: self._size]
        return np.bincount(chances[chances >= 0], minlength=len(self._pairs))

    def state(self) -> State:
        """The traces as named arrays; moves are asked for again."""
        return under("traces", {"pairs": text_bytes(self._pairs), "chances": self._chances[: self._size]})

    @classmethod
    def restored(cls, saved: Saved, task: Task) -> "ListedTraces":
        """What `state` gave."""
        made, saved = cls(task), saved.under("traces")
        pairs = read_texts(saved, "pairs")
        try:
            numbers = [made.number(h, w) for h, w in pairs]
            fits = numbers == list(range(len(pairs))) and all(h in range(task.horizon) for h, _ in pairs)
        except UNREADABLE as error:
            saved.refuse("pairs", f"cannot be read ({error})")
        chances = saved.wholes("chances", (None, task.horizon), -1, len(pairs))
        steps = np.array([h for h, _ in pairs] + [0])[chances]
        if not fits or ((chances >= 0) & (steps != np.arange(task.horizon))).any():
            saved.refuse("chances", "does not fit its pairs")
        made._append(chances)
        return made

    def _reach(self, chances: IntArray) -> None:
        """Count where traces lead, once all moves on the way are known."""
        start, counts, unknown = self.task.initial_state, self._counts, self._unknown
        while met := reach(self._tables.next_states, chances, start, counts, unknown, 0):
            for c, s in unknown[:met].tolist():
                self._ask(c, s)
        reach(self._tables.next_states, chances, start, counts, unknown, 1)

    def _ask(self, c: int, state: int) -> None:
        """Ask `move` where a step, a chance and a state lead by each action."""
        (h, w), (next_states, signals) = self._pairs[c], self._tables
        listed = getattr(self.task.move, "of_all_actions", None)
        at_once = None if listed is None else listed(h, state, w)
        if at_once is not None:
            next_states[c, state], signals[c, state] = at_once
            return
        for action in range(self.task.num_actions):
            moved = self.moved(h, state, action, w)
            next_states[c, state, action] = NOWHERE
            if moved is not None:
                following, reward, utility = moved
                next_states[c, state, action] = following if following in range(self.task.num_states) else NOWHERE
                signals[c, state, action] = reward, *amounts(utility)

    def _enlarge(self) -> None:
        room = _blank_tables(self._tables.next_states.shape, self.task.num_constraints)
        self._tables = MoveTables._make(map(np.concatenate, zip(self._tables, room, strict=True)))
        self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])


def _blank_tables(shape: tuple[int, ...], num_constraints: int) -> MoveTables:
    """Room for moves that nobody has asked for."""
    return MoveTables(np.full(shape, UNKNOWN), np.zeros((*shape, 1 + num_constraints)))
