"""A model of a listed problem from traces alone: what chance brought, pushed through `move`.

Nothing is read off the task's mean reward and utility: under the law of chance they give it away.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.learning.listed_traces import ListedTraces
from episafe.problems.listed_move import chance_key
from episafe.problems.model_answers import Steps
from episafe.types import Array

PRIOR = 2.0  # traces that all steps together stand for at each one; chosen on seeds 100 to 103 of the real problems
MANY_STATES = 128  # from here on few traces lead to each, and few states can come next from one
STEP = 8.0  # with many states, traces that all of a step stand for; chosen on seeds 3000 to 3009 of a chance of 330


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


def _cells(weights: Array):  # type: ignore[no-untyped-def]
    """Each (h, i) with a weight, and the states where it has one."""
    for h, i in np.argwhere(weights.any(axis=1)).tolist():
        yield (h, i), np.flatnonzero(weights[h, :, i])
