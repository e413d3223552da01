"""Episodes of a softmax agent on a known kernel."""

from typing import NamedTuple

import numpy as np

from episafe.core.types import SAFE, Array, IntArray
from episafe.kernels.compilation import kernel
from episafe.kernels.simulation import policy_values, simulate
from episafe.kernels.softmax_decision import decide_all
from episafe.kernels.softmax_learning import is_full, learn, most_transitions


class Deployed(NamedTuple):
    """The plan in force, and the incumbent's table.

    `table` (H, S, A) and its running sums; `values` (1+m,): V^r and V^u; `bounds` (1+m,): Σλ and the bounds; `marks`
    (3,): source, plan id, and whether a new plan is due; `information` (R,): ln det Λ when it was made; `incumbent`
    (H, S, A); `none`: an empty table.
    """

    table: Array
    running: Array
    values: Array
    bounds: Array
    marks: IntArray
    information: Array
    incumbent: Array
    none: Array


@kernel
def play(law, deployed, learner, streams, facts, start, stop):  # type: ignore[no-untyped-def]
    """Play episodes `start` to `stop`, or until the model is full; return the first episode not played.

    `learner`: model, slots, phi, work, scales, search, and the growth of ln det Λ
    after which to plan again. `facts`: values and bounds (K, 1+m), sources and plan ids (K,). `law.utility` is
    (m, H, S, A).
    """
    (model, slots, phi, work, _, _, growth), (choices, transitions) = learner, streams
    values, bounds, sources, plan_ids = facts
    H = work.V.shape[0] - 1
    states, places = np.empty(H + 1, dtype=np.int64), np.zeros(H + 1, dtype=np.int64)
    actions, ahead = np.empty(H, dtype=np.int64), most_transitions(slots, H)
    for k in range(start, stop):
        if deployed.marks[2]:
            replan(law, deployed, learner)
        if is_full(model, ahead):
            return k
        for g in range(values.shape[1]):
            values[k, g], bounds[k, g] = deployed.values[g], deployed.bounds[g]
        sources[k], plan_ids[k] = deployed.marks[0], deployed.marks[1]
        states[0] = law.initial_state
        simulate(deployed.running, law.running, choices, transitions, states, actions)
        learn(model, slots, phi, states, actions, places, False)
        for p in range(model.log_det.shape[0]):
            if model.log_det[p] - deployed.information[p] > growth:
                deployed.marks[2] = 1
    return stop


@kernel
def replan(law, deployed, learner):  # type: ignore[no-untyped-def]
    """Decide, and put the new plan in force."""
    model, slots, _, work, scales, search, _ = learner
    source = decide_all(model, slots, work, scales, search, deployed.table, deployed.none)
    H, S, A = deployed.table.shape
    for p in range(model.log_det.shape[0]):
        deployed.information[p] = model.log_det[p]
    for h in range(H):
        for s in range(S):
            total = 0.0
            for a in range(A):
                if source == SAFE:
                    deployed.table[h, s, a] = deployed.incumbent[h, s, a]
                total += deployed.table[h, s, a]
                deployed.running[h, s, a] = total
    deployed.bounds[0] = np.nan if source == SAFE else 0.0
    for c in range(work.lam.shape[0]):
        deployed.bounds[0] += work.lam[c]
        deployed.bounds[1 + c] = work.bound[c]
        V_r, V_u = policy_values(law.P, law.reward, law.utility[c], deployed.table, law.initial_state)
        deployed.values[0], deployed.values[1 + c] = V_r, V_u
    deployed.marks[0], deployed.marks[2] = source, 0
    deployed.marks[1] += 1
