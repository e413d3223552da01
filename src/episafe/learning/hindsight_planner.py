"""What to propose from traces: every trace can be replayed under any policy, so that nothing has to be explored.

Heuristic throughout: what is proposed is certified by others, on traces that came later.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from episafe.errors import Infeasible
from episafe.learning import step_proposals
from episafe.learning.empirical_model import EmpiricalModel, empirical_model
from episafe.learning.listed_traces import ListedTraces
from episafe.learning.planner import Aim, Proposal
from episafe.learning.traces import SampledTraces, Traces
from episafe.problems.model_answers import Steps, optimum, optimum_of_several
from episafe.problems.policy import TablePolicy
from episafe.problems.sampled_problem import AnyTask
from episafe.types import Amount, Array, amounts

ROUNDS = 3  # of correcting the aim by what replays say
MOST_TRACES = 2048  # that are replayed for that, the last ones

Proposed = Iterator[tuple[Proposal, Array]]  # and the totals (n, 1 + m) of its replays


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
    return found.policy, float(found.multipliers.sum())
