"""Traces: replay what chance brought under any policy, and propose policies from all traces seen so far.

The replays are part of what Hindsight proves. The proposals are heuristic: they are certified on later traces.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from operator import is_not
from typing import Any

import numpy as np

from episafe.core.agent import Candidate, Goal, Proposer
from episafe.core.checks import TOLERANCE
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.policy import Policy, StepPolicy, TablePolicy, draw_index
from episafe.core.task import Task
from episafe.core.types import ENDED, Array, Episode, IntArray, State
from episafe.kernels.replay import IMPOSSIBLE, UNKNOWN, MoveTables, add_moves, follows, reach, replay
from episafe.kernels.tabular_optimum import best_mixture, greedy_actions, markov_policy, occupancy
from episafe.problems.moves import ListedMove, chance_key

ROUNDS = 3  # of raising the aim where replays say that a proposal falls short of it
MOST_TRACES = 2048  # that a proposal is replayed on, the newest ones
PRIOR = 2.0  # traces that all steps together count for at each one; chosen on seeds 100 to 103 of the real problems
MANY_STATES = 128  # from here on few traces lead to each state,
STEP = 8.0  # and all states of a step count for so many traces; chosen on seeds 3000 to 3009 of a chance of 330 states
SPARSE = 1 << 22  # bytes of a model from which on it is held as sparse matrices
CHANGED = 40  # newest traces that changes of single steps are judged by, where states are not listed
HALVINGS, LAMS = 12, (1e-3, 1e3)  # of the multiplier there, and where it is looked for


def read_trace(task: Task, trace: Any) -> tuple[Any, ...]:
    """Return what chance brought in each of the H steps: None for what was not seen, or has NaN among its parts.

    A random start has a dummy first step, in which chance brings the start. Raise InvalidEpisode if nothing fits.
    """
    H, first = task.horizon or 0, int(task.random_start)
    is_pair = isinstance(trace, tuple | list) and len(trace) == 2 and isinstance(trace[1], tuple | list)
    if not is_pair or len(trace[1]) not in (H - first, H):
        raise InvalidEpisode(
            f"trace must be (start, (w_1, …, w_{H - first})), None for what was not seen, got {trace!r}"
        )
    start, chances = trace[0], tuple(None if _has_nan(w) else w for w in trace[1])
    if len(chances) < H:
        return (None if _has_nan(start) else start, *chances)
    if start is not None and not first and not same_state(_encoded(task, start), task.initial_state):
        raise InvalidEpisode(f"the trace starts at {start!r}, and episodes at {task.initial_state!r}: correct it")
    return chances


def _encoded(task: Task, observation: Any) -> State:
    return observation if task.encode is None else task.encode(observation)


def _has_nan(w: Any) -> bool:
    if isinstance(w, Mapping):
        return any(map(_has_nan, w.values()))
    if isinstance(w, tuple | list):
        return any(map(_has_nan, w))
    return bool(np.isnan(w).any()) if isinstance(w, float | np.ndarray | np.floating) else False


def same_state(one: Any, other: Any) -> bool:
    """Return whether two encoded states are the same."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    return bool(one == other)


class Replays(ABC):
    """Replays of one task.

    Args:
        task: it must have `move`.
        salt: from which randomised policies are drawn, where that is not integrated; private.
    """

    def __init__(self, task: Task, salt: str) -> None:
        self.task, self.salt = task, salt

    def __deepcopy__(self, memo: dict[int, Any]) -> "Replays":
        """Return the object itself: it has no state but what `move` was asked."""
        return self

    @abstractmethod
    def read(self, trace: Any) -> Any:
        """Return a trace in the form that `totals` takes; raise InvalidEpisode if it does not fit the task."""

    @abstractmethod
    def totals(self, policies: Sequence[Policy], traces: Sequence[Any], keys: Sequence[Any]) -> Array:
        """Return total reward and utilities of each policy on each trace, (n, E, 2 + m).

        A policy acts at step h before it sees w_h. What cannot be replayed adds nothing from there on, and the last
        column is the probability of that. `keys`: one for each trace, from which, with the salt, randomness is drawn.
        """

    def moved(self, h: int, state: Any, action: int, w: Any) -> tuple[Any, float, Array]:
        """Return next state, reward and utilities (m,) by `move`; the carried total is part of the state."""
        task = self.task
        assert task.move is not None
        if task.carry is None:
            return task.move(h, state, action, w)
        following, reward, utilities = task.move(h, state[0], action, w)
        return (following, task.carry.update(state[1], reward, utilities)), reward, utilities

    @property
    def start(self) -> Any:
        """Return the first state."""
        task = self.task
        return task.initial_state if task.carry is None else (task.initial_state, task.carry.initial)

    def fault_of(self, episode: Episode, trace: Any) -> str:
        """Return where an episode is not what `move` makes of its trace, which was read; "" if nowhere.

        Each step is compared by itself, from the state and the action reported. Steps that were not seen are passed.
        Raise InvalidEpisode if `move` fails at what was reported.
        """
        states, actions = episode.states, np.asarray(episode.actions).tolist()
        for h, w in enumerate(read_trace(self.task, episode.trace)):
            if w is None and not same_state(states[h], ENDED):
                continue
            place = f"at step {h}, state {states[h]!r}, action {actions[h]}, chance {w!r}"
            try:
                following, reward, utilities = self.moved(h, states[h], actions[h], w)
            except InvalidProblem as error:
                return f"{place}: {error}"
            except Exception as error:
                raise InvalidEpisode(
                    f"{place}: move fails ({type(error).__name__}: {error}): correct the trace or move; or report None "
                    "for this chance, and the episode counts as utility 0 from there"
                ) from error
            if not same_state(following, states[h + 1]):
                return f"{place}: move leads to state {following!r}, reported is {states[h + 1]!r}"
            made, seen = np.append(reward, utilities), np.append(episode.rewards[h], episode.utilities[h])
            if not (np.abs(made - seen) <= TOLERANCE).all():
                return f"{place}: move gives reward and utility {made.tolist()}, reported are {seen.tolist()}"
        return ""


class SampledReplays(Replays):
    """Replays step by step, for states that are not listed: a policy's own randomness is drawn anew for each trace."""

    def read(self, trace: Any) -> tuple[Any, ...]:
        """Return what chance brought in each step."""
        return read_trace(self.task, trace)

    def totals(self, policies: Sequence[Policy], traces: Sequence[Any], keys: Sequence[Any]) -> Array:
        """Return total reward and utilities of each policy on each trace, (n, E, 2 + m)."""
        found = np.zeros((len(policies), len(traces), 2 + self.task.num_constraints))
        for e, (trace, key) in enumerate(zip(traces, keys, strict=True)):
            seed = int.from_bytes(hashlib.sha256(f"{self.salt}:{key}:replay".encode()).digest()[:16], "big")
            for total, policy in zip(found[:, e], policies, strict=True):
                total[-1] = self._replay(policy, trace, seed, total)
        return found

    def _replay(self, policy: Policy, trace: tuple[Any, ...], seed: int, total: Array) -> float:
        """Add what a policy has on a trace to `total`; return 1 if it cannot be replayed to its end, else 0."""
        rng, state = np.random.default_rng(seed), self.start
        for h, w in enumerate(trace):
            try:
                action = draw_index(policy.probabilities(h, state), rng)
                state, reward, utilities = self.moved(h, state, action, w)
            except Exception:  # of a user's function: nothing more is known of this trace
                return 1.0
            total[0] += reward
            total[1:-1] += utilities
        return 0.0


class ListedReplays(Replays):
    """Replays by arrays: a policy's own randomness is integrated. A trace is the numbers of its chance values, (H,)."""

    def __init__(self, task: Task, salt: str = "") -> None:
        super().__init__(task, salt)
        H, S, A, m, move = (
            task.horizon or 0,
            task.num_states or 0,
            task.num_actions or 0,
            task.num_constraints,
            task.move,
        )
        if isinstance(move, ListedMove):
            self.values = list(move.values)
            arrays = MoveTables(move.next_states, move.rewards, move.utilities)
        else:
            shape = (1 if task.time_homogeneous else H, S, A, 0)
            self.values = []
            arrays = MoveTables(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros((*shape, m)))
        self.tables, self._owned = MoveTables._make(map(_frozen, arrays)), False
        self._number = {chance_key(w): i for i, w in enumerate(self.values)}
        self._asks = not isinstance(move, ListedMove) or move.unlisted is not None
        self._nothing = np.zeros((0, 0, 0), dtype=np.int64)
        self._unknown = np.empty((1024, 3), dtype=np.int64)
        self._stack: tuple[tuple[Policy, ...], Array] = (), np.zeros((0, H, S, A))

    def read(self, trace: Any) -> IntArray:
        """Return the numbers of the chance values of a trace, (H,); all moves that it can lead to are known then."""
        try:  # values that are known, in the very form of the tables, need no further look
            found = [self._number[w] for w in trace[1]]
            is_known = trace[0] == self.task.initial_state and len(found) == self.task.horizon
        except (KeyError, TypeError, IndexError):
            is_known = False
        if not is_known:
            found = [-1 if w is None else self._numbered(w) for w in read_trace(self.task, trace)]
        numbers = np.array(found, dtype=np.int64)
        if self._nothing.shape != self.count_shape:
            self._nothing = np.zeros(self.count_shape, dtype=np.int64)
        self.count(numbers[None], self._nothing, 0)
        return numbers

    @property
    def count_shape(self) -> tuple[int, int, int]:
        """Return (H, S, W)."""
        return self.task.horizon or 0, self.task.num_states or 0, len(self.values)

    def count(self, chances: IntArray, counts: IntArray, once: int = 1) -> None:
        """Add `once` to counts (H, S, W) for each trace (E, H) and each state that some actions lead to."""
        start = self.task.initial_state
        while self._asks and (met := reach(self.tables.next_states, chances, start, counts, self._unknown, 0)):
            self._ask(self._unknown[: min(met, len(self._unknown))].tolist())
        if once:
            reach(self.tables.next_states, chances, start, counts, self._unknown, once)

    def totals(self, policies: Sequence[Policy], traces: Any, keys: Sequence[Any] = ()) -> Array:
        """Return expected total reward and utilities of each policy on each trace, (n, E, 2 + m)."""
        known = self._stack[0]
        if len(known) != len(policies) or any(map(is_not, known, policies)):
            self._stack = tuple(policies), np.array([policy.table() for policy in policies])
        chances = np.asarray(traces, dtype=np.int64)
        found = np.empty((len(policies), len(chances), 2 + self.task.num_constraints))
        replay(self.tables, chances, self.task.initial_state, self._stack[1], found)
        return found

    def fault_of(self, episode: Episode, trace: Any) -> str:
        """Return where an episode is not what `move` makes of its trace, which was read; "" if nowhere."""
        signals = np.column_stack([episode.rewards, episode.utilities])
        path = np.asarray(episode.states, dtype=np.int64), np.asarray(episode.actions, dtype=np.int64)
        same = follows(self.tables, trace, *path, signals, TOLERANCE)
        return "" if same else super().fault_of(episode, trace)

    def _numbered(self, w: Any) -> int:
        """Return the number of a chance value; a new one makes room in the tables."""
        i = self._number.setdefault(chance_key(w), len(self.values))
        if i == len(self.values):
            self.values.append(w)
            if i == self.tables.next_states.shape[3]:
                blank: list[Any] = [UNKNOWN, 0.0, 0.0]
                self._own(
                    np.concatenate([one, np.full((*one.shape[:3], max(i, 8), *one.shape[4:]), fill)], axis=3)
                    for one, fill in zip(self.tables, blank, strict=True)
                )
        return i

    def _ask(self, triples: list[list[int]]) -> None:
        """Ask `move` where each (h, s, w) leads by every action."""
        if not self._owned:
            self._own(one.copy() for one in self.tables)
        made = self._writable
        for h, s, i in triples:
            for a in range(self.task.num_actions or 0):
                at = h if len(made.next_states) > 1 else 0, s, a, i
                made.next_states[at] = IMPOSSIBLE
                try:
                    following, reward, utilities = self.moved(h, s, a, self.values[i])
                except Exception:  # of a user's function: it counts at its worst
                    continue
                if 0 <= following < (self.task.num_states or 0):
                    made.next_states[at], made.rewards[at], made.utilities[at] = following, reward, utilities

    def _own(self, arrays: Iterable[Any]) -> None:
        """Use arrays of our own, which may change: those of the task do not."""
        self._writable, self._owned = MoveTables._make(arrays), True
        self.tables = MoveTables._make(map(_frozen, self._writable))

    def model(self, counts: IntArray, seen: IntArray) -> tuple[Array, Array, Array]:
        """Return P̂ (n, S, A, S), mean signals (n, S, A, 1 + m), and which (h, s) have any data, (n, S).

            P̂_h(s'|s,a) = Σ_w p̂_h(w|s) 1{s' = f_h(s, a, w)},   p̂_h(w|s) ∝ n_h(s, w) + 2·n(s, w)/n(s)

        n_h(s, w) counts the traces with w at step h on which some actions lead to s, n(s, w) = Σ_h n_h(s, w). Steps
        share their counts where the task says that they are the same: n is 1 then. With many states 8·p̄_h(w) is
        added, p̄_h(w) ∝ n_h(w) + 2·n(w)/n by the traces `seen` (H, W) that have w at step h. That w_h depends on the
        past through the state alone is a choice of this model, on which no certificate rests.
        """
        task, pooled = self.task, counts.sum(axis=0).astype(np.float64)
        if task.time_homogeneous:
            n = len(self.tables.next_states)
            weights = np.ascontiguousarray(np.broadcast_to(pooled, (n, *pooled.shape)))
        else:
            weights = counts + PRIOR * pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1)
            if len(pooled) >= MANY_STATES:
                at_step = seen + PRIOR * seen.sum(axis=0) / seen.sum()
                shares = at_step / at_step.sum(axis=1, keepdims=True)
                weights += STEP * pooled.any(axis=1)[:, None] * shares[:, None]
        if not isinstance(task.move, ListedMove):
            rows = np.minimum(np.arange(len(weights)), len(self.tables.next_states) - 1)
            missing = (weights > 0) & (self.tables.next_states[rows, :, 0, : len(self.values)] == UNKNOWN)
            self._ask(np.argwhere(missing).tolist())
        (n, S, _), A = weights.shape, task.num_actions or 0
        P, signals = np.zeros((n, S, A, S)), np.zeros((n, S, A, 1 + task.num_constraints))
        add_moves(self.tables, weights, P, signals)
        total = P.sum(axis=3)
        known = (total > 0).all(axis=2)
        total[~known] = 1.0
        P /= total[..., None]
        P[~known] = np.eye(S)[np.nonzero(~known)[1]][:, None, :]  # no trace leads there: it stays
        return P, signals / total[..., None], known


def _frozen(array: Any) -> Any:
    view = array.view()
    view.setflags(write=False)
    return view


def replays_of(task: Task, salt: str) -> Replays:
    """Return the replays of a task."""
    listed = task.is_listed and task.carry is None
    return ListedReplays(task, salt) if listed else SampledReplays(task, salt)


class TraceProposer(Proposer):
    """Proposes from traces: each can be replayed under any policy, so that nothing has to be explored.

    With listed states a proposal is the constrained optimum of the empirical law of chance. Else it is a schedule, one
    action for each step. Without traces, and once replays are refuted, the planner proposes.

    Args:
        task: it must have `move`.
        planner: learns from the observed transitions.
    """

    def __init__(self, task: Task, planner: Proposer) -> None:
        self.task, self.planner = task, planner
        self.replays = replays_of(task, "proposals")
        self._size, self._chances = 0, np.empty((64, task.horizon or 0), dtype=np.int64)  # listed
        self._counts = np.zeros((0, 0, 0), dtype=np.int64)
        self._traces: list[tuple[Any, ...]] = []  # not listed

    def observe(self, episode: Episode) -> None:
        """Learn from an episode in canonical form and from its trace."""
        self.planner.observe(episode)
        if episode.trace is not None:
            read = self.replays.read(episode.trace)
            if isinstance(self.replays, ListedReplays):
                self.take_in(read[None])
            else:
                self._traces.append(read)

    def take_in(self, chances: IntArray) -> None:
        """Add listed traces, (E, H)."""
        assert isinstance(self.replays, ListedReplays)
        while self._size + len(chances) > len(self._chances):
            self._chances = np.concatenate([self._chances, np.empty_like(self._chances)])
        self._chances[self._size : self._size + len(chances)] = chances
        self._size += len(chances)
        if self._counts.shape != (shape := self.replays.count_shape):
            counts, new = self._counts, np.zeros(shape, dtype=np.int64)
            new[: counts.shape[0], : counts.shape[1], : counts.shape[2]] = counts
            self._counts = new
        self.replays.count(chances, self._counts)

    @property
    def num_traces(self) -> int:
        """Return how many traces were seen."""
        return self._size or len(self._traces)

    def totals(self, policy: Policy, first: int = 0) -> Array:
        """Return total reward and utilities (n − first, 1 + m) of a policy on each trace from number `first` on."""
        keys = range(first, self.num_traces)
        traces: Any = self._chances[first : self._size] if self._size else self._traces[first:]
        return self.replays.totals([policy], traces, keys)[0, :, :-1]

    def propose(self, goal: Goal) -> Candidate | None:
        """Return what the planner proposes."""
        return self.planner.propose(goal)

    def estimate(self, policy: Policy, goal: Goal) -> tuple[float, float] | None:
        """Return the planner's estimate."""
        return self.planner.estimate(policy, goal)

    def earned(self) -> float:
        """Return the planner's estimate."""
        return self.planner.earned()

    def proposals(self, aims: Sequence[Array]) -> Iterator[tuple[Candidate, Array]]:
        """Yield, for each aim (m,), a candidate whose mean utilities on the traces should reach it, and its totals."""
        return self._optima(aims) if self._size else self._schedules(aims)

    # listed states

    def _optima(self, aims: Sequence[Array]) -> Iterator[tuple[Candidate, Array]]:
        """Yield the exact constrained optimum of the empirical model for each aim, with its totals (n, 1 + m).

        The model takes steps to be independent given the state. Where replays say that it is too hopeful, it aims
        higher. With several limits there is none for an aim that no policy reaches.
        """
        task, replays = self.task, self.replays
        assert isinstance(replays, ListedReplays)
        H, S, A, start = task.horizon or 0, task.num_states or 0, task.num_actions or 0, task.initial_state
        seen = np.zeros((H, len(replays.values)), dtype=np.int64)
        h, e = np.nonzero(self._chances[: self._size].T >= 0)
        np.add.at(seen, (h, self._chances[e, h]), 1)
        P, signals, known = replays.model(self._counts, seen)
        rows, steps = np.minimum(np.arange(H), len(P) - 1), list[Any](P)
        if P.nbytes > SPARSE:
            import scipy.sparse  # here, because it takes a tenth of the time of all imports

            steps = [scipy.sparse.csr_array(step.reshape(S * A, S)) for step in P]
        kernel = [steps[row] for row in rows.tolist()]
        signals, known, one_hot = signals[rows], known[rows], np.eye(A)
        first = max(self._size - MOST_TRACES, 0)

        @cache
        def greedy(weights: bytes) -> tuple[Array, IntArray]:
            actions, V = greedy_actions(kernel, signals, np.frombuffer(weights))
            return V[start], actions

        for aim in aims:
            wanted = aim
            for _ in range(ROUNDS):
                found = best_mixture(lambda weights: greedy(weights.tobytes()), wanted)
                stuck = bool(np.isinf(found.multipliers).any())
                mass = [share * occupancy(kernel, one_hot[actions], start) for share, actions in found.parts]
                table = markov_policy(np.add.reduce(mass), one_hot[found.parts[-1][1]])
                policy = TablePolicy(np.where(known[..., None], table, task.incumbent.table()))
                totals = self.totals(policy, first)
                lacking = np.maximum(aim - totals[:, 1:].mean(axis=0), 0)
                if stuck or not lacking.any():
                    break
                wanted = wanted + lacking
            if not (stuck and len(aim) > 1):
                lam = math.nan if stuck else float(found.multipliers.sum())
                yield Candidate("", policy, float(totals[:, 0].mean()), "traces", lam), totals

    # states that are not listed

    def _schedules(self, aims: Sequence[Array]) -> Iterator[tuple[Candidate, Array]]:
        """Yield, for each aim, the schedule of largest mean reward whose mean utilities reach it, of those tried.

        Tried are one action for all steps and, from the best of these, the changes of single steps that seem to bring
        most: chosen as if they added up, and replayed together.
        """
        H, A = self.task.horizon or 0, self.task.num_actions or 0
        replayed: Callable[[IntArray, int], Array]
        replayed = lambda actions, first: self.totals(StepPolicy(np.eye(A)[actions]), first)  # noqa: E731
        constant = [(np.full(H, a), replayed(np.full(H, a), 0)) for a in range(A)]
        changes: dict[int, Array] = {}
        for aim in aims:

            def worth(one: tuple[IntArray, Array], aim: Array = aim) -> tuple[float, float]:
                reward, *utilities = one[1].mean(axis=0)
                return float(np.minimum(utilities - aim, 0.0).sum()), float(reward)

            best = max(range(A), key=lambda a: worth(constant[a]))
            if best not in changes:
                changes[best] = self._changes(constant[best][0], replayed)
            tried = _combined(constant[best][1][:, 1:].mean(axis=0), changes[best], aim)
            actions, totals = max((constant[best], *((one, replayed(one, 0)) for one in tried)), key=worth)
            yield Candidate("", StepPolicy(np.eye(A)[actions]), float(totals[:, 0].mean()), "traces"), totals

    def _changes(self, actions: IntArray, replayed: Callable[[IntArray, int], Array]) -> Array:
        """Return what another action at one step adds to mean reward and utilities, (H, A, 1 + m)."""
        H, A, first = len(actions), self.task.num_actions or 0, max(self.num_traces - CHANGED, 0)
        mean = replayed(actions, first).mean(axis=0)
        found = np.zeros((H, A, len(mean)))
        for h, a in product(range(H), range(A)):
            if a != actions[h]:
                found[h, a] = replayed(np.where(np.arange(H) == h, a, actions), first).mean(axis=0) - mean
        return found


def _combined(utilities: Array, changes: Array, aim: Array) -> list[IntArray]:
    """Return schedules with the change of largest Δr + λΣΔu at each step, for λ that bring utilities near the aim."""
    (lower, upper), found = LAMS, list[IntArray]()
    for _ in range(HALVINGS):
        lam = math.sqrt(lower * upper)
        actions = (changes[..., 0] + lam * changes[..., 1:].sum(axis=2)).argmax(axis=1)
        reaches = bool((utilities + changes[np.arange(len(actions)), actions, 1:].sum(axis=0) >= aim).all())
        lower, upper = (lower, lam) if reaches else (lam, upper)
        if reaches and not any(np.array_equal(actions, one) for one in found):
            found.append(actions)
    return found
