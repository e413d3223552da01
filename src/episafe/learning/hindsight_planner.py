"""What to propose from traces: every trace can be replayed under any policy, so that nothing has to be explored.

Heuristic throughout: what is proposed is certified by others, on traces that came later.
"""

import math

import numpy as np

from episafe.learning.empirical_model import empirical_model
from episafe.learning.listed_traces import ListedTraces
from episafe.learning.planner import Aim, Proposal
from episafe.problems.model_answers import optimum
from episafe.problems.policy import TablePolicy

ROUNDS = 3  # of correcting the aim by what replays say


def propose(traces: ListedTraces, aim: Aim) -> Proposal:
    """The policy of largest estimated reward whose estimated utility reaches the aim; else that of largest utility.

    It is the exact constrained optimum of the empirical model. The model takes steps for independent given the state;
    where replays of the proposal say that it is too hopeful, it aims higher.
    """
    task, model = traces.task, empirical_model(traces)
    unknown, wanted, threshold = ~model.known, aim.utility, aim.utility
    for _ in range(ROUNDS):
        found = optimum(model.P, model.reward, model.utility, threshold, task.initial_state)
        table = np.where(unknown[..., None], task.safe_policy.table(), found.table)
        policy = TablePolicy(table)
        reward, utility = traces.totals(policy).mean(axis=0)
        if utility >= wanted or math.isinf(found.lam):
            break
        threshold += wanted - utility
    return Proposal(policy, math.nan if math.isinf(found.lam) else found.lam, float(reward))
