"""What to propose from traces: every trace can be replayed under any policy, so that nothing has to be explored.

Where states are listed, a model is made of traces alone: what chance brought, pushed through `move`. Nothing is read
off the task's mean reward and utility: under the law of chance they give it away.

Heuristic throughout: what is proposed is certified by others, on traces that came later.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.errors import Infeasible
from episafe.learning import step_proposals
from episafe.learning.listed_traces import ListedTraces
from episafe.learning.planner import Aim, Proposal
from episafe.learning.traces import SampledTraces, Traces
from episafe.problems.listed_move import chance_key
from episafe.problems.model_answers import Steps, optimum, optimum_of_several
from episafe.problems.policy import TablePolicy
from episafe.problems.sampled_problem import AnyTask
from episafe.types import Amount, Array, IntArray, amounts

ROUNDS = 3  # of correcting the aim by what replays say
MOST_TRACES = 2048  # that are replayed for that, the last ones
PRIOR = 2.0  # traces that all steps together stand for at each one; chosen on seeds 100 to 103 of the real problems
MANY_STATES = 128  # from here on few traces lead to each, and few states can come next from one
STEP = 8.0  # with many states, traces that all of a step stand for; chosen on seeds 3000 to 3009 of a chance of 330

Proposed = Iterator[tuple[Proposal, Array]]  # and the totals (n, 1 + m) of its replays


class EmpiricalModel(NamedTuple):
    """Estimates P̂ (H, S, A, S), r̂ (H, S, A) and û (m, H, S, A), and in which (h, s) there is anything to estimate from,
    (H, S).
    """

    P: Array
    reward: Array
    utilities: Array
    known: NDArray[np.bool_]

    def steps(self) -> Steps:
        """P̂ by its steps: sparse matrices (S·A, S) where there are many states, of which few can come next."""
        _, S, A, _ = self.P.shape
        if S < MANY_STATES:
            return self.P
        import scipy.sparse  # here, because it takes a tenth of the time of all imports

        return [scipy.sparse.csr_array(step.reshape(S * A, S)) for step in self.P]


def empirical_model(traces: ListedTraces) -> EmpiricalModel:
    """P̂_h(s'|s,a) = Σ_w p̂_h(w|s) 1{s' = f_h(s, a, w)}, and so r̂ and û, with

        p̂_h(w|s) ∝ n_h(s, w) + 2·n(s, w)/n(s),    n(s, w) = Σ_h n_h(s, w)

    where n_h(s, w) counts the traces with w at step h on which some actions lead to s; all steps count alike where the
    task says that they are. With many states, of which few traces lead to each, 8·p̄_h(w) is added: with n_h(w) the
    traces that have w at step h, p̄_h(w) ∝ n_h(w) + 2·n(w)/n. That w_h depends on the past through the state alone is a
    choice of this model. A proposal suffers where it is wrong; a certificate does not rest on it.
    """
    task = traces.task
    H, S, A = task.reward.shape
    values, weights = _weights(traces)
    P, signals = np.zeros((H, S, A, S)), np.zeros((H, S, A, 1 + task.num_constraints))
    for (h, i), states in _cells(weights):
        next_states, seen = traces.moves(traces.number(h, values[i]), states)
        weight = np.where(next_states >= 0, weights[h, states, i][:, None], 0.0)
        np.add.at(P[h], (states[:, None], np.arange(A), next_states), weight)  # −1 adds nothing to the last state
        signals[h, states] += weight[..., None] * seen
    total = P.sum(axis=3)
    known = (total > 0).all(axis=2)
    total[~known] = 1.0
    P /= total[..., None]
    P[~known] = np.eye(S)[np.nonzero(~known)[1]][:, None, :]  # nobody knows, and nobody gets there: it stays
    signals /= total[..., None]
    return EmpiricalModel(P, signals[..., 0], np.moveaxis(signals[..., 1:], -1, 0), known)


def _weights(traces: ListedTraces) -> tuple[list[object], Array]:
    """All that chance brought, W values, and the weight of each at a step in a state, (H, S, W)."""
    task = traces.task
    pairs, counts = traces.reached()
    values = {chance_key(w): w for _, w in pairs}
    number = {name: i for i, name in enumerate(values)}
    seen = np.zeros((task.horizon, task.num_states, len(number)))
    for c, (h, w) in enumerate(pairs):
        seen[h, :, number[chance_key(w)]] = counts[c]
    pooled = seen.sum(axis=0)
    if task.time_homogeneous:
        return list(values.values()), np.broadcast_to(pooled, seen.shape)
    weights = seen + PRIOR * pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1)
    if task.num_states >= MANY_STATES:
        at_step = np.zeros((task.horizon, len(number)))
        for (h, w), times in zip(pairs, traces.seen_by_step().tolist(), strict=True):
            at_step[h, number[chance_key(w)]] = times
        at_step += PRIOR * at_step.sum(axis=0) / at_step.sum()
        reached = pooled.any(axis=1)[:, None]
        weights += STEP * reached * (at_step / at_step.sum(axis=1, keepdims=True))[:, None]
    return list(values.values()), weights


def _cells(weights: Array) -> Iterator[tuple[tuple[int, int], IntArray]]:
    """Each (h, i) with a weight, and the states where it has one."""
    for h, i in np.argwhere(weights.any(axis=1)).tolist():
        yield (h, i), np.flatnonzero(weights[h, :, i])


def propose(traces: ListedTraces, aim: Aim) -> Proposal:
    """The policy of largest estimated reward whose estimated utility reaches the aim; else that of largest utility.

    It is the exact constrained optimum of the empirical model. The model takes steps for independent given the state;
    where replays of the proposal say that it is too hopeful, it aims higher.
    """
    return next(proposals(traces, [aim.utility]))[0]


def proposals(traces: ListedTraces, aims: Sequence[Amount]) -> Proposed:
    """For each aim the same, on one model, with the totals (n, 1 + m) of its replays on the last so many traces.

    Where there are several constraints, and no policy reaches all that is aimed at, there is none.
    """
    model = empirical_model(traces)
    steps = model.steps()
    for aim in aims:
        with suppress(Infeasible):
            yield _aimed(traces, model, steps, amounts(aim))


def replays_of(task: AnyTask) -> tuple[type[Traces], Callable[[Any, Sequence[Amount]], Proposed]]:
    """What holds traces of this task, and (traces, aims) ↦ for each aim a proposal and its totals."""
    return (ListedTraces, proposals) if task.is_listed else (SampledTraces, step_proposals.proposals)


def _aimed(traces: ListedTraces, model: EmpiricalModel, steps: Steps, wanted: Array) -> tuple[Proposal, Array]:
    task, threshold, first = traces.task, wanted, max(len(traces) - MOST_TRACES, 0)
    for _ in range(ROUNDS):
        found, lam = _optimum(model, steps, threshold, task.initial_state)
        policy = TablePolicy(np.where(model.known[..., None], found, task.safe_policy.table()))
        totals = traces.totals(policy, first)
        reward, *utilities = totals.mean(axis=0)
        if np.all(utilities >= wanted) or math.isinf(lam):
            break
        threshold = threshold + np.maximum(wanted - utilities, 0)
    return Proposal(policy, math.nan if math.isinf(lam) else lam, float(reward)), totals


def _optimum(model: EmpiricalModel, steps: Steps, thresholds: Array, start: int) -> tuple[Array, float]:
    """The constrained optimum of a model, a table (H, S, A), and the sum of its multipliers."""
    P, reward, utilities, _ = model
    if len(thresholds) == 1:
        _, table, lam = optimum(P, reward, utilities[0], float(thresholds[0]), start, steps)
        return table, lam
    found = optimum_of_several(P, reward, utilities, thresholds, start)
    return found.table, float(found.lam.sum())
