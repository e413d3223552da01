"""Proposals from traces: each trace can be replayed under any policy, so no exploration is needed.

This file is heuristic; proposals are certified on later traces.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.certify.reached import Reached
from episafe.certify.replays import ListedReplays, Replays, Trace, Traces, replays_of
from episafe.core.agent import Candidate
from episafe.core.checks import TOLERANCE
from episafe.core.policy import Policy, TablePolicy
from episafe.core.task import Task
from episafe.core.types import Array, Episode, IntArray
from episafe.kernels.replay import add_moves, reach
from episafe.kernels.tabular_optimum import best_mixture, greedy_actions, markov_policy, occupancy
from episafe.linear.planner import SoftmaxProposer

MOST_GUARDED = 300  # traces up to which guarded proposals are offered where no floor is demanded
AFTER_ALARM = 14  # traces that a restart keeps
ROUNDS = 3  # of raising the aim where replays say that a proposal falls short of it
MOST_TRACES = 2048  # that a proposal is replayed on, the newest ones
PRIOR = 2.0  # traces that all steps together count for at each one; chosen on seeds 100 to 103 of the real problems
MANY_STATES = 128  # from here on few traces lead to each state,
STEP = 8.0  # and all states of a step count for so many traces; chosen on seeds 3000 to 3009 of a chance of 330 states
SPARSE = 1 << 22  # bytes of a model from which on it is held as sparse matrices
MOST_UNLISTED = 64  # newest traces that a policy is replayed on where states are not listed: each step is a call


class Guard(NamedTuple):
    """Actions that keep the shortfall of an episode small on every trace of the support, (H, S, A).

    `elsewhere` (H, S, A) acts where there are no data. The floor of a proposal is computed from its table
    (`ListedReplays.least_totals`), so no proof rests on guards.
    """

    allowed: NDArray[np.bool_]
    elsewhere: Array


def guards_of(replays: Replays) -> list[Guard | None]:
    """Return the guards to propose under: none, and the strictest one. If floors are demanded: those that keep them."""
    task = replays.task
    if not isinstance(replays, ListedReplays) or replays.possible is None:
        return [None]
    excess, least = excesses(replays)
    if np.isinf(task.floors).all():
        return [None, guard(replays, excess, 0.0)]
    spare = (task.horizon or 0) - float(task.floors.max()) - least  # of the shortfall; the floors do not allow more
    return [guard(replays, excess, most) for most in dict.fromkeys([max(spare, 0.0) / (task.horizon or 1), 0.0])]


def excesses(replays: ListedReplays) -> tuple[Array, float]:
    """Return by how much each action raises the shortfall that is certain to suffice, (H, S, A), and need_1(s_1).

        need_h(s) = min_a need_h(s, a),   need_h(s, a) = max_w [Σ_c (1 − u_c) + need_{h+1}(s')]

    The maximum is over the support. A policy whose actions raise it by at most c in each step falls short by at most
    need_1(s_1) + Hc on every trace of the support.
    """
    assert replays.possible is not None
    task, tables, W = replays.task, replays.tables, replays.possible.shape[2]
    H, S, A = task.horizon or 0, task.num_states or 0, task.num_actions or 0
    after, found = np.zeros(S), np.zeros((H, S, A))
    for h in reversed(range(H)):
        row = min(h, len(tables.next_states) - 1)
        comes, utilities = tables.next_states[row, :, :, :W], tables.utilities[row, :, :, :W]
        loss = (1 - utilities).sum(axis=3) + np.where(comes >= 0, after[comes], float(H))
        need = np.where(replays.possible[row][:, None], loss, 0.0).max(axis=2)
        after = need.min(axis=1)
        found[h] = need - after[:, None]
    return found, float(after[task.initial_state])


def guard(replays: ListedReplays, excess: Array, most: float) -> Guard:
    """Return the guard whose actions raise the shortfall by at most `most` in each step."""
    allowed = excess <= most + TOLERANCE
    kept = np.where(allowed, replays.task.incumbent.table(), 0.0)
    elsewhere = np.where(kept.sum(axis=2, keepdims=True) > 0, kept, excess <= TOLERANCE)
    return Guard(allowed, elsewhere / elsewhere.sum(axis=2, keepdims=True))


class TraceProposer(SoftmaxProposer):
    """Proposes from traces: each can be replayed under any policy, so no exploration is needed.

    A proposal is the constrained optimum of the empirical law of chance. If the task does not list the states, the
    states that actions lead to on the traces are used. `propose` is that of the planner, for use when replays are
    refuted.

    Args:
        task: it must have `move`.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.replays = replays_of(task, "proposals")
        self._traces: list[Trace] = []
        self._counts = np.zeros((0, 0, 0), dtype=np.int64)  # of listed states, else of what was reached
        self._reached = None if task.is_listed else Reached(task)
        self.guards = guards_of(self.replays)

    def observe(self, episode: Episode) -> None:
        """Learn from an episode in canonical form and from its trace."""
        super().observe(episode)
        if episode.trace is not None:
            self.take_in([self.replays.read(episode.trace)])

    def take_in(self, traces: Traces) -> None:
        """Add traces, and count n_h(s, w) on them."""
        self._traces.extend(traces)
        if self._reached is not None:
            for trace in traces:
                self._reached.follow(tuple(trace))
            return
        assert isinstance(self.replays, ListedReplays)
        shape = self.task.horizon or 0, self.task.num_states or 0, len(self.replays.values)
        if self._counts.shape != shape:
            counts, self._counts = self._counts, np.zeros(shape, dtype=np.int64)
            self._counts[: counts.shape[0], : counts.shape[1], : counts.shape[2]] = counts
        reach(self.replays.tables.next_states, np.asarray(traces), self.task.initial_state, self._counts)

    def keep(self, number: int) -> None:
        """Forget all but the newest traces."""
        newest, self._traces = self._traces[-number:], []
        self._counts[:] = 0
        if self._reached is not None:
            self._reached.forget()
        if newest:
            self.take_in(newest)

    def restart(self) -> None:
        """Keep the last traces only."""
        self.keep(AFTER_ALARM)

    @property
    def num_traces(self) -> int:
        """Return the number of traces."""
        return len(self._traces)

    def totals(self, policies: Sequence[Policy], first: int = 0) -> Array:
        """Return total reward and utilities (n, E, 1 + m) of policies on each trace from number `first` on."""
        first = first if self._reached is None else max(first, self.num_traces - MOST_UNLISTED)
        return self.replays.totals(policies, self._traces[first:], range(first, self.num_traces))[:, :, :-1]

    def law(
        self, shrinkage: float | None = None
    ) -> tuple[list[Any], Array, int, Callable[[Array, Guard | None], Policy]]:
        """Return the empirical kernel by steps, mean signals (H, S, A, 1 + m), and the number of the first state.

        The last function turns a table (H, S, A) into a policy; where there are no data the incumbent acts, or what the
        guard says. The law p̄_h of a step over all states counts for `shrinkage` traces in each state.
        """
        as_policy: Callable[[Array], Policy] = TablePolicy
        if self._reached is None:
            (kernel, signals, known), incumbent = self._listed_law(shrinkage), self.task.incumbent.table()
        else:
            kernel, signals, known, incumbent = self._reached.model(STEP if shrinkage is None else shrinkage)
            as_policy = self._reached.policy

        def made(table: Array, guard: Guard | None) -> Policy:
            return as_policy(np.where(known[..., None], table, incumbent if guard is None else guard.elsewhere))

        return kernel, signals, self.task.initial_state if self._reached is None else 0, made

    def proposals(self, aims: Sequence[Array]) -> Iterator[tuple[Candidate, Array]]:
        """Yield the exact constrained optimum of the empirical model for each guard and aim (m,), with its totals.

        The totals are (n, 1 + m). The model assumes that steps are independent given the state. If replays show that it
        is too optimistic, the aim is raised. With several limits, an aim that no policy reaches has no proposal.
        """
        one_hot, first = np.eye(self.task.num_actions or 0), max(self.num_traces - MOST_TRACES, 0)
        kernel, signals, start, as_policy = self.law()
        demanded = self.guards[0] is not None
        for guard in self.guards if demanded or self.num_traces <= MOST_GUARDED else self.guards[:1]:
            known, allowed = dict[bytes, tuple[Array, IntArray]](), None if guard is None else guard.allowed

            def best(weights: Array, known: dict[Any, Any] = known, allowed: Any = allowed) -> tuple[Array, IntArray]:
                key = weights.tobytes()
                if key not in known:
                    actions, V = greedy_actions(kernel, signals, weights, allowed)
                    known[key] = V[start], actions
                return known[key]

            points: list[tuple[Array, IntArray]] = []
            for aim in aims:
                wanted = aim
                for _ in range(ROUNDS):
                    found = best_mixture(best, wanted, points)
                    stuck = bool(np.isinf(found.multipliers).any())
                    mass = [share * occupancy(kernel, one_hot[actions], start) for share, actions in found.parts]
                    table = markov_policy(np.add.reduce(mass), one_hot[found.parts[-1][1]])
                    policy = as_policy(table, guard)
                    totals = self.totals([policy], first)[0]
                    lacking = np.maximum(aim - totals[:, 1:].mean(axis=0), 0)
                    if stuck or not lacking.any():
                        break
                    wanted = wanted + lacking
                if not (stuck and len(aim) > 1):
                    lam = math.nan if stuck else float(found.multipliers.sum())
                    yield Candidate("", policy, float(totals[:, 0].mean()), "traces", lam), totals

    def _listed_law(self, shrinkage: float | None) -> tuple[list[Any], Array, Array]:
        """Return the kernel by steps, mean signals (H, S, A, 1 + m) and which (h, s) have data, of listed states."""
        replays = self.replays
        assert isinstance(replays, ListedReplays)
        seen = np.zeros((self.task.horizon or 0, len(replays.values)), dtype=np.int64)
        chances = np.asarray(self._traces)
        h, e = np.nonzero(chances.T >= 0)
        np.add.at(seen, (h, chances[e, h]), 1)
        P, signals, known = empirical_model(replays, self._counts, seen, shrinkage)
        rows, steps = np.minimum(np.arange(len(seen)), len(P) - 1), list[Any](P)
        if P.nbytes > SPARSE:
            import scipy.sparse  # here, because it takes a tenth of the time of all imports

            steps = [scipy.sparse.csr_array(step.reshape(-1, step.shape[2])) for step in P]
        return [steps[row] for row in rows.tolist()], signals[rows], known[rows]


def empirical_model(
    replays: ListedReplays, counts: IntArray, seen: IntArray, shrinkage: float | None = None
) -> tuple[Array, Array, Array]:
    """Return P̂ (n, S, A, S), mean signals (n, S, A, 1 + m), and which (h, s) have any data, (n, S).

        P̂_h(s'|s,a) = Σ_w p̂_h(w|s) 1{s' = f_h(s, a, w)},   p̂_h(w|s) ∝ n_h(s, w) + 2·n(s, w)/n(s)

    n_h(s, w) counts the traces with w at step h on which some actions lead to s, n(s, w) = Σ_h n_h(s, w). Steps
    share their counts where the task says that they are the same: n is 1 then. With many states 8·p̄_h(w) is
    added, p̄_h(w) ∝ n_h(w) + 2·n(w)/n by the traces `seen` (H, W) that have w at step h. The model assumes that w_h
    depends on the past only through the state; no certificate rests on this. With `shrinkage`, its part of the law
    of each step is added to n_h(s, w), and nothing else.
    """
    task, pooled = replays.task, counts.sum(axis=0).astype(np.float64)
    if task.time_homogeneous:
        n = len(replays.tables.next_states)
        weights = np.ascontiguousarray(np.broadcast_to(pooled, (n, *pooled.shape)))
    elif shrinkage is not None:
        shares = seen / np.maximum(seen.sum(axis=1, keepdims=True), 1)
        weights = counts + shrinkage * shares[:, None]
    else:
        weights = counts + PRIOR * pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1)
        if len(pooled) >= MANY_STATES:
            at_step = seen + PRIOR * seen.sum(axis=0) / seen.sum()
            shares = at_step / at_step.sum(axis=1, keepdims=True)
            weights += STEP * pooled.any(axis=1)[:, None] * shares[:, None]
    (n, S, _), A = weights.shape, task.num_actions or 0
    P, signals = np.zeros((n, S, A, S)), np.zeros((n, S, A, 1 + task.num_constraints))
    add_moves(replays.tables, weights, P, signals)
    total = P.sum(axis=3)
    known = (total > 0).all(axis=2)
    total[~known] = 1.0
    P /= total[..., None]
    P[~known] = np.eye(S)[np.nonzero(~known)[1]][:, None, :]  # no trace leads there: it stays
    return P, signals / total[..., None], known
