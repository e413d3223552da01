"""Replays: the totals that a policy would have had on a trace, and whether an episode agrees with `move`.

The bounds of Hindsight rest on these totals and on kernels/replay.py.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from operator import is_not
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.core.checks import TOLERANCE
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.policy import Policy, draw_index
from episafe.core.task import Task
from episafe.core.types import ENDED, Array, Episode, IntArray, index_of, key_of
from episafe.kernels.replay import MoveTables, follows, least_totals, replay
from episafe.problems.moves import NOWHERE, ListedMove

Trace = IntArray | tuple[object, ...]  # the random inputs of H steps: numbers of values, or the values
Traces = IntArray | Sequence[Trace]


def read_trace(task: Task, trace: object) -> tuple[object, ...]:
    """Return the value of chance in each of the H steps: None if it was not observed or contains NaN.

    With a random start, the value of the dummy first step is the start. Raise InvalidEpisode if the trace does not fit.
    """
    H, first = task.horizon or 0, int(task.random_start)
    is_pair = isinstance(trace, tuple | list) and len(trace) == 2 and isinstance(trace[1], tuple | list)
    if not isinstance(trace, tuple | list) or not is_pair or len(trace[1]) not in (H - first, H):
        raise InvalidEpisode(
            f"trace must be (start, (w_1, …, w_{H - first})), None for what was not seen, got {trace!r}"
        )
    start, chances = trace[0], tuple(None if _has_nan(w) else w for w in trace[1])
    if len(chances) < H:
        return (None if _has_nan(start) else start, *chances)
    assert task.encode is not None
    if start is not None and not first and key_of(task.encode(start)) != key_of(task.initial_state):
        raise InvalidEpisode(f"the trace starts at {start!r}, but episodes start at {task.initial_state!r}: correct it")
    return chances


def _has_nan(w: object) -> bool:
    if isinstance(w, Mapping):
        return any(map(_has_nan, w.values()))
    if isinstance(w, tuple | list):
        return any(map(_has_nan, w))
    return bool(np.isnan(w).any()) if isinstance(w, float | np.ndarray | np.floating) else False


class Replays:
    """Replays of one task, step by step. Random actions are drawn for each trace.

    Args:
        task: it must have `move`.
        salt: the private seed for the actions of randomised policies, if these are drawn.
    """

    def __init__(self, task: Task, salt: str) -> None:
        assert task.move is not None
        self.task, self.move, self.salt = task, task.move, salt

    def __deepcopy__(self, memo: object) -> "Replays":
        """Return the object itself: its only state is a cache of `move`."""
        return self

    def read(self, trace: object) -> Trace:
        """Return a trace in the form for `totals`; raise InvalidEpisode if it does not fit the task."""
        return read_trace(self.task, trace)

    def totals(self, policies: Sequence[Policy], traces: Traces, keys: Sequence[object]) -> Array:
        """Return total reward and utilities of each policy on each trace, (n, E, 2 + m).

        A policy acts at step h before it sees w_h. A trace that cannot be replayed adds nothing from that step on; the
        last column is the probability of this. `keys`: one per trace; together with the salt they are the seed of
        random actions.
        """
        found = np.zeros((len(policies), len(traces), 2 + self.task.num_constraints))
        for e, (trace, key) in enumerate(zip(traces, keys, strict=True)):
            seed = int.from_bytes(hashlib.sha256(f"{self.salt}:{key}:replay".encode()).digest()[:16], "big")
            for total, policy in zip(found[:, e], policies, strict=True):
                total[-1] = self._replay(policy, trace, seed, total)
        return found

    def _replay(self, policy: Policy, trace: Trace, seed: int, total: Array) -> float:
        """Add the totals of a policy on a trace to `total`; return 1 if the replay stops early, else 0."""
        rng, state = np.random.default_rng(seed), self.task.initial_state
        for h, w in enumerate(trace):
            try:
                action = draw_index(policy.probabilities(h, state), rng)
                state, reward, utilities = self.move(h, state, action, w)
            except Exception:  # of a user's function: nothing more is known of this trace
                return 1.0
            total[0] += reward
            total[1:-1] += utilities
        return 0.0

    def judge(self, episode: Episode) -> tuple[Trace, str]:
        """Return the trace of an episode, and the first step where the episode differs from `move`; "" if none does."""
        trace, start = self.read(episode.trace), self.task.initial_state
        if episode.states is None:  # a person acted
            return trace, ""
        if key_of(episode.states[0]) != key_of(start):
            raise InvalidEpisode(
                f"states[0] is {episode.states[0]!r}, and replays start at {start!r}: reset the system there, or state "
                "a random start"
            )
        return trace, self.fault_of(episode, trace)

    def least_totals(self, policy: Policy, sure: bool = False) -> Array | None:
        """Return what no trace of the support brings less than, (m,), under a policy; None if that is unknown.

        A policy's own randomness is integrated, as in `totals`; with `sure` no episode brings less.
        """
        return None

    def surprise_of(self, episode: Episode, trace: Trace) -> str:
        """Return which value of a trace is not in the support; "" if none is, or if the support is unknown."""
        return ""

    def fault_of(self, episode: Episode, trace: Trace) -> str:
        """Return where an episode is not what `move` makes of its trace, which was read; "" if nowhere.

        Each step is compared by itself, from the state and the action reported; the last state does not matter.
        Steps that were not seen are passed.
        Raise InvalidEpisode if `move` fails on the report.
        """
        states, actions = episode.states, np.asarray(episode.actions).tolist()
        for h, w in enumerate(read_trace(self.task, episode.trace)):
            if w is None and key_of(states[h]) != ENDED:
                continue
            place = f"at step {h}, state {states[h]!r}, action {actions[h]}, chance {w!r}"
            try:
                following, reward, utilities = self.move(h, states[h], actions[h], w)
            except InvalidProblem as error:
                return f"{place}: {error}"
            except Exception as error:
                raise InvalidEpisode(
                    f"{place}: move fails ({type(error).__name__}: {error}): correct the trace or move. If you report "
                    "None for this chance, the episode counts as utility 0 from this step"
                ) from error
            if h + 1 < len(actions) and key_of(following) != key_of(states[h + 1]):  # nothing follows the last state
                return f"{place}: move leads to state {following!r}, but {states[h + 1]!r} was reported"
            made, seen = np.append(reward, utilities), np.append(episode.rewards[h], episode.utilities[h])
            if not (np.abs(made - seen) <= TOLERANCE).all():
                return f"{place}: move gives reward and utility {made.tolist()}, but {seen.tolist()} were reported"
        return ""


class ListedReplays(Replays):
    """Replays by arrays, for listed states: a trace is the numbers of its values, (H,).

    The actions of randomised policies are integrated. For a value that is not in the task's arrays, `move` is called at
    all steps, states and actions at once.
    """

    def __init__(self, task: Task, salt: str = "") -> None:
        super().__init__(task, salt)
        H, S, A = task.horizon or 0, task.num_states or 0, task.num_actions or 0
        m, move = task.num_constraints, task.move
        if isinstance(move, ListedMove):
            self.values = list(move.values)
            arrays = MoveTables(move.next_states, move.rewards, move.utilities)
        else:
            shape = (1 if task.time_homogeneous else H, S, A, 0)
            self.values = []
            arrays = MoveTables(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros((*shape, m)))
        self.tables = _frozen(arrays)
        self._number = {key_of(w): i for i, w in enumerate(self.values)}
        self._stack: tuple[tuple[Policy, ...], Array] = (), np.zeros((0, H, S, A))
        self.possible: NDArray[np.bool_] | None = None  # which values are in the support at a step and state, (n, S, W)
        if isinstance(move, ListedMove):
            self.possible = (self.tables.next_states != NOWHERE).all(axis=2)
        elif task.support is not None:
            places = [(h, s) for h in range(len(self.tables.next_states)) for s in range(S)]
            support = [[self._numbered(w) for w in task.support(h, s)] for h, s in places]
            self.possible = np.zeros((len(places) // S, S, len(self.values)), dtype=bool)
            for place, numbers in zip(places, support, strict=True):
                self.possible[place][numbers] = True

    def read(self, trace: Any) -> IntArray:
        """Return the numbers of the values of a trace, (H,), −1 for values that were not observed."""
        try:  # values that are known, in the very form of the tables, need no further look
            found = [self._number[w] for w in trace[1]]
            is_known = trace[0] == self.task.initial_state and len(found) == self.task.horizon
        except (KeyError, TypeError, IndexError):
            is_known = False
        if not is_known:
            found = [-1 if w is None else self._numbered(w) for w in read_trace(self.task, trace)]
        return np.array(found, dtype=np.int64)

    def _numbered(self, w: object) -> int:
        """Return the number of a chance value; a new one becomes the last column of the tables."""
        i = self._number.get(key_of(w))
        if i is not None:
            return i
        more = [np.zeros((*one.shape[:3], 1, *one.shape[4:]), one.dtype) for one in self.tables]
        for row, s, a in product(*map(range, self.tables.next_states.shape[:3])):
            try:
                reached, reward, utilities = self.move(row, s, a, w)
                following = index_of(reached)
                possible = 0 <= following < len(more[0][0])
            except Exception:  # of a user's function: it counts as the worst case
                possible = False
            if possible:
                more[0][row, s, a, 0], more[1][row, s, a, 0], more[2][row, s, a, 0] = following, reward, utilities
            else:
                more[0][row, s, a, 0] = NOWHERE
        pairs = zip(self.tables, more, strict=True)
        self.tables = _frozen(np.concatenate(pair, axis=3) for pair in pairs)
        self._number[key_of(w)] = len(self.values)
        self.values.append(w)
        return len(self.values) - 1

    def totals(self, policies: Sequence[Policy], traces: Traces, keys: Sequence[object] = ()) -> Array:
        """Return expected total reward and utilities of each policy on each trace, (n, E, 2 + m)."""
        known = self._stack[0]
        if len(known) != len(policies) or any(map(is_not, known, policies)):
            self._stack = tuple(policies), np.array([policy.table() for policy in policies])
        chances = np.asarray(traces, dtype=np.int64)
        found = np.empty((len(policies), len(chances), 2 + self.task.num_constraints))
        replay(self.tables, chances, self.task.initial_state, self._stack[1], found)
        return found

    def least_totals(self, policy: Policy, sure: bool = False) -> Array | None:
        """Return what no trace of the support brings less than, (m,), under a policy; None if that is unknown."""
        if self.possible is None:
            return None
        task, W = self.task, self.possible.shape[2]
        tables = MoveTables._make(one[:, :, :, :W] for one in self.tables)  # without values that came later
        found: Array = least_totals(tables, self.possible, policy.table(), task.horizon, task.initial_state, sure)
        return found

    def surprise_of(self, episode: Episode, trace: Trace) -> str:
        """Return which value of a trace is not in the support; "" if none is, or if the support is unknown."""
        if self.possible is None:
            return ""
        for h, w in enumerate(np.asarray(trace).tolist()):
            at, states = min(h, len(self.possible) - 1), slice(None) if episode.states is None else [episode.states[h]]
            if w >= self.possible.shape[2] or (w >= 0 and not self.possible[at][states, w].any()):
                return f"at step {h} the random input was {self.values[w]!r}, which is not in the support"
        return ""

    def fault_of(self, episode: Episode, trace: Trace) -> str:
        """Return where an episode is not what `move` makes of its trace, which was read; "" if nowhere."""
        signals = np.column_stack([episode.rewards, episode.utilities])
        path = np.asarray(episode.states, dtype=np.int64), np.asarray(episode.actions, dtype=np.int64)
        same = follows(self.tables, trace, *path, signals, TOLERANCE)
        return "" if same else super().fault_of(episode, trace)


def _frozen(arrays: Iterable[NDArray[Any]]) -> MoveTables:
    views = MoveTables._make(array.view() for array in arrays)
    for view in views:
        view.setflags(write=False)
    return views


def replays_of(task: Task, salt: str) -> Replays:
    """Return the replays of a task."""
    return ListedReplays(task, salt) if task.is_listed else Replays(task, salt)


def replay_statistics(task: Task, totals: Array) -> dict[str, float]:
    """Return number, least, 5 % quantile and mean of recent replays (n, 1 + m), for the log and for people."""
    found = {"replays": float(len(totals))}
    for one, seen in zip(task.constraints, totals[:, 1:].T, strict=True):
        found |= {f"least {one.name}": float(seen.min()), f"mean {one.name}": float(seen.mean())}
        found |= {f"5 % quantile {one.name}": float(np.quantile(seen, 0.05))}
    return found
