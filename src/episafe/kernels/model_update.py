"""Taking in episodes, compiled: slots for states, then the regression (see model.py)."""

import numpy as np
from numba.extending import overload

from episafe.kernels.compilation import kernel
from episafe.kernels.model_arrays import CountModel, DenseModel
from episafe.types import IntArray


@kernel
def enter(known, slot_of, state_of, support, phi, states, slots):  # type: ignore[no-untyped-def]
    """Slots (H,) of the states of one episode; a state new to its step gets the next slot and is described there.

    slot_of (H, S), −1 for unseen; state_of (H, n); phi (H, A, d, n), d = 0 for counts.
    """
    H, A, d, _ = phi.shape
    for h in range(H):
        s = states[h]
        if slot_of[h, s] < 0:
            i = support.size[h]
            support.size[h] += 1
            slot_of[h, s], state_of[h, i] = i, s
            for a in range(A):
                support.reward[h, a, i], support.utility[h, a, i] = known.reward[h, a, s], known.utility[h, a, s]
                for k in range(d):
                    phi[h, a, k, i] = known.phi[0, a, k, s]
        slots[h] = slot_of[h, s]


def absorb(model: DenseModel | CountModel, slots: IntArray, actions: IntArray) -> None:
    """Add one episode, slots and actions (H,): Λ ← Λ + φφᵀ with inverse and ln det, m_j ← m_j + φ; or the counts."""


@overload(absorb)
def _absorb(model, slots, actions):  # type: ignore[no-untyped-def]
    return _absorb_dense if model.instance_class is DenseModel else _absorb_counts


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


@kernel
def count_transition(model, h, a, i, j, times):  # type: ignore[no-untyped-def]
    """Count that action a at slot i of step h led to slot j of the next, −1 for none, `times` times.

    What `absorb` does for each step of an episode; that keeps its own copy, since with a call of this one a run on a
    small problem takes half as long again.
    """
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
        a, i = actions[h], slots[h]
        model.log_det[h] += np.log1p(1.0 / (model.visits[h, a, i] + model.ridge))
        model.visits[h, a, i] += 1.0
        if h < H - 1:
            t = model.first[h, a, i]
            while t >= 0 and model.target[h, t] != slots[h + 1]:
                t = model.following[h, t]
            if t < 0:
                t = model.num_transitions[h]
                model.num_transitions[h] += 1
                model.target[h, t] = slots[h + 1]
                model.following[h, t] = model.first[h, a, i]
                model.first[h, a, i] = t
            model.times[h, t] += 1.0


def is_full(model: DenseModel | CountModel, size: IntArray, n: int) -> bool:
    """Whether one more episode might not fit."""
    transitions_full = isinstance(model, CountModel) and bool(model.num_transitions.max() == model.times.shape[1])
    return transitions_full or bool(size.max() == n)


@kernel
def _any_equal(lengths, room):  # type: ignore[no-untyped-def]
    found = False
    for length in lengths:
        found = found or length == room
    return found


@overload(is_full)
def _is_full(model, size, n):  # type: ignore[no-untyped-def]
    if model.instance_class is DenseModel:
        return lambda model, size, n: _any_equal(size, n)
    return lambda model, size, n: _any_equal(size, n) or _any_equal(model.num_transitions, model.times.shape[1])


@kernel
def absorb_episode(model, slots, actions):  # type: ignore[no-untyped-def]
    """`absorb` as Python calls it."""
    absorb(model, slots, actions)
