"""What to propose where states are not listed: policies that go by the step alone, chosen by replays.

Heuristic throughout: what is proposed is certified by others, on traces that came later. Actions that say what to bring
about (order up to 24, charge to half) make such policies good ones; where the state must be looked at they are a
beginning, beside the planner's own.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from episafe.learning.planner import Proposal
from episafe.learning.traces import SampledTraces
from episafe.problems.policy import StepPolicy
from episafe.types import Amount, Array, IntArray, amounts

MOST_TRACES = 40  # the newest ones, that changes of single steps are judged by
HALVINGS, LAMS = 12, (1e-3, 1e3)  # of the multiplier, and where it is looked for

Replayed = tuple[IntArray, Array]  # an action for each step, (H,), and what replays say of it: (n, 1 + m)


def proposals(traces: SampledTraces, aims: Sequence[Amount]) -> Iterator[tuple[Proposal, Array]]:
    """For each aim the plan of largest mean reward whose mean utility reaches it, of those looked at; with its totals.

    Looked at are one action for all steps, and, from the best of these, the changes of single steps that seem to bring
    most: taken together as if they added up, and replayed as they are.
    """
    H, A = traces.task.horizon, traces.task.num_actions
    constant = [_replayed(traces, np.full(H, action)) for action in range(A)]
    changes: dict[int, Array] = {}
    for aim in map(amounts, aims):
        best = max(range(A), key=lambda a: _worth(constant[a], aim))
        if best not in changes:
            changes[best] = _changes(traces, constant[best][0])
        changed = _changed(traces, constant[best], changes[best], aim)
        actions, totals = max((constant[best], *changed), key=lambda one: _worth(one, aim))
        yield Proposal(StepPolicy(np.eye(A)[actions]), math.nan, float(totals[:, 0].mean())), totals


def _worth(replayed: Replayed, aim: Array) -> tuple[float, float]:
    """How far it falls short of the aim, and among equals its reward."""
    reward, *utilities = replayed[1].mean(axis=0)
    return float(np.minimum(utilities - aim, 0.0).sum()), float(reward)


def _replayed(traces: SampledTraces, actions: IntArray, first: int = 0) -> Replayed:
    return actions, traces.totals(StepPolicy(np.eye(traces.task.num_actions)[actions]), first)


def _changes(traces: SampledTraces, actions: IntArray) -> Array:
    """What another action at one step adds to mean reward and utilities, (H, A, 1 + m), on the newest traces."""
    H, A = len(actions), traces.task.num_actions
    first = max(len(traces) - MOST_TRACES, 0)
    mean = _replayed(traces, actions, first)[1].mean(axis=0)
    found = np.zeros((H, A, len(mean)))
    for h, a in product(range(H), range(A)):
        if a != actions[h]:
            other = np.where(np.arange(H) == h, a, actions)
            found[h, a] = _replayed(traces, other, first)[1].mean(axis=0) - mean
    return found


def _changed(traces: SampledTraces, replayed: Replayed, changes: Array, aim: Array) -> Iterator[Replayed]:
    """Plans with the changes of largest Δr + λΣΔu at each step, for λ that bring the utilities near the aim."""
    (lower, upper), seen = LAMS, set()
    utilities = replayed[1][:, 1:].mean(axis=0)
    for _ in range(HALVINGS):
        lam = math.sqrt(lower * upper)
        actions = (changes[..., 0] + lam * changes[..., 1:].sum(axis=2)).argmax(axis=1)
        expected = utilities + changes[np.arange(len(actions)), actions, 1:].sum(axis=0)
        reaches = bool((expected >= aim).all())
        lower, upper = (lower, lam) if reaches else (lam, upper)
        if reaches and tuple(actions) not in seen:
            seen.add(tuple(actions))
            yield _replayed(traces, actions)
