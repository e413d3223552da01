"""Taking in episodes: slots for states, then the regression (see model_arrays.py).

Where steps share their data (see learning/shared_steps.py) a state has one slot at all steps and row 0 learns.
"""

import numpy as np

from episafe.kernels.compilation import by_model, inlined_kernel, kernel, lean_kernel
from episafe.kernels.model_arrays import CountModel, DenseModel


@inlined_kernel
def describe(visited, h, s, i):  # type: ignore[no-untyped-def]
    """Give state s slot i of step h, with what is known of it."""
    known, slot_of, state_of, support, phi = visited
    support.size[h] += 1
    slot_of[h, s], state_of[h, i] = i, s
    for a in range(phi.shape[1]):
        support.reward[h, a, i], support.utility[h, a, i] = known.reward[h, a, s], known.utility[h, a, s]
        for k in range(phi.shape[2]):
            phi[h, a, k, i] = known.phi[0, a, k, s]


@lean_kernel
def enter(visited, states, slots):  # type: ignore[no-untyped-def]
    """Slots (H,) of the states of one episode; a state new to its step gets the next slot and is described there."""
    slot_of, size = visited.slot_of, visited.support.size
    for h in range(slots.shape[0]):
        if slot_of[h, states[h]] < 0:
            describe(visited, h, states[h], size[h])
        slots[h] = slot_of[h, states[h]]


@lean_kernel
def enter_all_steps(visited, states, slots):  # type: ignore[no-untyped-def]
    """Slots (H+1,) of the states of one episode; a new state gets the next slot, and is described, at every step."""
    for t in range(slots.shape[0]):
        if visited.slot_of[0, states[t]] < 0:
            i = visited.support.size[0]
            for h in range(slots.shape[0] - 1):
                describe(visited, h, states[t], i)
        slots[t] = visited.slot_of[0, states[t]]


def _absorb_dense(model, slots, actions):  # type: ignore[no-untyped-def]
    H, d = model.gram.shape[0], model.gram.shape[1]
    x, direction = np.empty(d), np.empty(d)
    for h in range(H):
        for k in range(d):
            x[k] = model.phi[h, actions[h], k, slots[h]]
        scale = 1.0
        for k in range(d):
            total = 0.0
            for m in range(d):
                total += model.gram_inv[h, k, m] * x[m]
            direction[k] = total
            scale += x[k] * total
        for k in range(d):
            for m in range(d):
                model.gram[h, k, m] += x[k] * x[m]
                model.gram_inv[h, k, m] -= direction[k] * direction[m] / scale
        model.log_det[h] += np.log(scale)
        if h < H - 1:
            for k in range(d):
                model.moments[h, k, slots[h + 1]] += x[k]


@inlined_kernel
def count_transition(model, h, a, i, j, times):  # type: ignore[no-untyped-def]
    """Count that action a at slot i of step h led to slot j of the next, −1 for none, `times` times."""
    model.log_det[h] += np.log1p(times / (model.visits[h, a, i] + model.ridge))
    model.visits[h, a, i] += times
    if j >= 0:
        t = model.first[h, a, i]
        while t >= 0 and model.target[h, t] != j:
            t = model.following[h, t]
        if t < 0:
            t = model.num_transitions[h]
            model.num_transitions[h] += 1
            model.target[h, t] = j
            model.following[h, t] = model.first[h, a, i]
            model.first[h, a, i] = t
        model.times[h, t] += times


def _absorb_counts(model, slots, actions):  # type: ignore[no-untyped-def]
    H = model.visits.shape[0]
    for h in range(H):
        count_transition(model, h, actions[h], slots[h], slots[h + 1] if h < H - 1 else -1, 1.0)


@lean_kernel
def count_in_one(model, slots, actions):  # type: ignore[no-untyped-def]
    """Count one episode in row 0, for all steps: slots (H+1,), actions (H,)."""
    for h in range(actions.shape[0]):
        count_transition(model, 0, actions[h], slots[h], slots[h + 1], 1.0)


@by_model(kernel, {DenseModel: _absorb_dense, CountModel: _absorb_counts})
def absorb(model, slots, actions):  # type: ignore[no-untyped-def]
    """Add one episode, slots and actions (H,): Λ ← Λ + φφᵀ with inverse and ln det, m_j ← m_j + φ; or the counts."""


@inlined_kernel
def longest(lengths):  # type: ignore[no-untyped-def]
    """The largest of lengths (H,); `lengths.max()` would cost a tenth of a short episode."""
    found = 0
    for length in lengths:
        found = max(found, length)
    return found


def _is_full_dense(model, size, n, ahead):  # type: ignore[no-untyped-def]
    return longest(size) + ahead > n


def _is_full_counts(model, size, n, ahead):  # type: ignore[no-untyped-def]
    return longest(size) + ahead > n or longest(model.num_transitions) + ahead > model.times.shape[1]


@by_model(kernel, {DenseModel: _is_full_dense, CountModel: _is_full_counts})
def is_full(model, size, n, ahead):  # type: ignore[no-untyped-def]
    """Whether `ahead` more slots and transitions a step might not fit, with room for n slots."""


@kernel
def take_in_all(visited, model, states, actions):  # type: ignore[no-untyped-def]
    """Take in episodes, states (n, H+1) and actions (n, H), one after another while there is room; how many were."""
    n, H = actions.shape
    slots = np.empty(H, dtype=np.int64)
    for e in range(n):
        if is_full(model, visited.support.size, visited.phi.shape[3], 1):
            return e
        enter(visited, states[e], slots)
        absorb(model, slots, actions[e])
    return n


@kernel
def count_all_in_one(visited, model, states, actions):  # type: ignore[no-untyped-def]
    """The same in row 0, for all steps, where transitions are counted."""
    n, H = actions.shape
    slots = np.empty(H + 1, dtype=np.int64)
    for e in range(n):
        if is_full(model, visited.support.size, visited.phi.shape[3], H + 1):
            return e
        enter_all_steps(visited, states[e], slots)
        count_in_one(model, slots, actions[e])
    return n
