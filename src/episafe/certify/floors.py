"""Guards: the actions that keep the shortfall of an episode small on every trace of the support. Proposals use them.

The floor of a proposal is computed from its table (`ListedReplays.least_totals`): no proof rests on this file.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.certify.replays import ListedReplays, Replays
from episafe.core.checks import TOLERANCE
from episafe.core.types import Array


class Guard(NamedTuple):
    """The actions that may be taken, (H, S, A), and the policy (H, S, A) that acts where there are no data."""

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
