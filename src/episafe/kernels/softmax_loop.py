"""The loop for softmax agents on a known kernel: the same steps, in the same order, as the plain loop.

Deciding, learning, simulating and evaluating are the functions that the plain loop calls; a test compares the records
of both bit for bit.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.decision import decide
from episafe.kernels.episode_trace import write_down
from episafe.kernels.model_update import absorb, enter, is_full
from episafe.kernels.simulation import policy_values, simulate
from episafe.kernels.softmax_actions import policy_table
from episafe.types import SAFE, Array, IntArray


class Deployed(NamedTuple):
    """The plan in force, and the incumbent `safe_table` (H, S, A).

    `table` (H, S, A) and its running sums; `figures` (4,): V^r, V^u, λ, bound; `marks` (3,): source, id, and whether a
    new plan is due; `log_det` (H,): ln det Λ_h when it was made.
    """

    table: Array
    running: Array
    figures: Array
    marks: IntArray
    log_det: Array
    safe_table: Array


@kernel
def play(world, deployed, learner, streams, facts, trace, start, stop):  # type: ignore[no-untyped-def]
    """Episodes `start` to `stop`, or until the arrays are full; returns the first episode not made.

    `learner`: visited, model, work, scales, search, and the growth of ln det Λ_h after which to decide again.
    """
    (visited, model, work, _, _, growth), (choices, transitions) = learner, streams
    size, (H, _, n) = visited.support.size, work.bonus.shape
    states, actions, slots = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64), np.empty(H, dtype=np.int64)
    traced = trace.rows.shape[0] > 0
    for k in range(start, stop):
        if is_full(model, size, n, 1):
            return k
        if deployed.marks[2]:
            replan(world, deployed, learner)
        facts.values[k, 0], facts.values[k, 1] = deployed.figures[0], deployed.figures[1]
        facts.bounds[k, 0], facts.bounds[k, 1] = deployed.figures[2], deployed.figures[3]
        facts.sources[k], facts.plan_ids[k] = deployed.marks[0], deployed.marks[1]
        states[0] = world.initial_state
        simulate(deployed.running, world.running, choices, transitions, states, actions)
        if traced:
            write_down(trace, k, states, actions, deployed.log_det)
        enter(visited, states, slots)
        absorb(model, slots, actions)
        for h in range(H):
            if model.log_det[h] - deployed.log_det[h] > growth:
                deployed.marks[2] = 1
    return stop


@kernel
def replan(world, deployed, learner):  # type: ignore[no-untyped-def]
    """Decide, and put the new plan in force."""
    visited, model, work, scales, search, _ = learner
    source, lam, bound = decide(model, visited.support, work, scales, search)
    if source != SAFE:
        policy_table(model, visited, work, scales, lam, deployed.table)
    H, S, A = deployed.table.shape
    for h in range(H):
        deployed.log_det[h] = model.log_det[h]
        for s in range(S):
            total = 0.0
            for a in range(A):
                if source == SAFE:
                    deployed.table[h, s, a] = deployed.safe_table[h, s, a]
                total += deployed.table[h, s, a]
                deployed.running[h, s, a] = total
    V_r, V_u = policy_values(world.P, world.reward, world.utility, deployed.table, world.initial_state)
    deployed.figures[0], deployed.figures[1], deployed.figures[2], deployed.figures[3] = V_r, V_u, lam, bound
    deployed.marks[0], deployed.marks[2] = source, 0
    deployed.marks[1] += 1
