"""What to propose from traces: every trace can be replayed under any policy, so that nothing has to be explored.

Heuristic throughout: what is proposed is certified by others, on traces that came later.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from episafe.learning import step_proposals
from episafe.learning.empirical_model import EmpiricalModel, empirical_model
from episafe.learning.listed_traces import ListedTraces
from episafe.learning.planner import Aim, Proposal
from episafe.learning.sampled_traces import SampledTraces
from episafe.problems.model_answers import optimum
from episafe.problems.policy import TablePolicy
from episafe.problems.sampled_problem import AnyTask
from episafe.types import Array

ROUNDS = 3  # of correcting the aim by what replays say


def propose(traces: ListedTraces, aim: Aim) -> Proposal:
    """The policy of largest estimated reward whose estimated utility reaches the aim; else that of largest utility.

    It is the exact constrained optimum of the empirical model. The model takes steps for independent given the state;
    where replays of the proposal say that it is too hopeful, it aims higher.
    """
    (proposal, _), *_ = proposals(traces, [float(aim.utility)])
    return proposal


def proposals(traces: ListedTraces, aims: list[float]) -> Iterator[tuple[Proposal, Array]]:
    """For each aim the same, on one model; with the totals (n, 2) of its replays."""
    model = empirical_model(traces)
    for aim in aims:
        yield _aimed(traces, model, aim)


class Replays(NamedTuple):
    """How problems of one kind are replayed, and planned from that.

    Attributes:
        traces: what holds traces: `traces(task)`, `traces.restored(saved, task)`, and the methods of `ListedTraces`
            `len`, `take_in`, `totals`, `fault_of`, `beginning` and `state`.
        proposals: (traces, aims) ↦ for each aim a proposal and its totals.
    """

    traces: Any
    proposals: Callable[[Any, list[float]], Iterator[tuple[Proposal, Array]]]


def replays_of(task: AnyTask) -> Replays:
    """How traces of this task are replayed."""
    return Replays(ListedTraces, proposals) if task.is_listed else Replays(SampledTraces, step_proposals.proposals)


def _aimed(traces: ListedTraces, model: EmpiricalModel, wanted: float) -> tuple[Proposal, Array]:
    task, unknown, threshold = traces.task, ~model.known, wanted
    for _ in range(ROUNDS):
        found = optimum(model.P, model.reward, model.utility, threshold, task.initial_state)
        policy = TablePolicy(np.where(unknown[..., None], task.safe_policy.table(), found.table))
        totals = traces.totals(policy)
        reward, utility = totals.mean(axis=0)
        if utility >= wanted or math.isinf(found.lam):
            break
        threshold += wanted - utility
    return Proposal(policy, math.nan if math.isinf(found.lam) else found.lam, float(reward)), totals
