"""Learning from episodes: slots for states, then Λ and its inverse, or counts (see softmax_arrays.py)."""

import numpy as np

from episafe.kernels.compilation import by_model, inlined_kernel, kernel
from episafe.kernels.softmax_arrays import Counts, Dense
from episafe.kernels.softmax_pass import row


@inlined_kernel
def swap(array, index, i, j):  # type: ignore[no-untyped-def]
    """Exchange entries i and j of the last axis."""
    x = array[index + (i,)]  # noqa: RUF005  # numba adds tuples
    array[index + (i,)] = array[index + (j,)]  # noqa: RUF005
    array[index + (j,)] = x  # noqa: RUF005


@inlined_kernel
def enter(slots, p, s, phi):  # type: ignore[no-untyped-def]
    """Return the slot of listed state s in row p. A state that is new there takes the first slot not yet visited.

    All listed states are described from the beginning, so that two slots change places; phi (R, A, d, n).
    """
    i, j = slots.slot_of[p, s], slots.size[p]
    if i < j:
        return i
    slots.size[p] += 1
    if i > j:
        other = slots.state_of[p, j]
        slots.slot_of[p, s], slots.slot_of[p, other] = j, i
        slots.state_of[p, j], slots.state_of[p, i] = s, other
        steps = slots.reward.shape[0]
        begin, end = (p, p + 1) if slots.size.shape[0] == steps else (0, steps)
        for a in range(slots.reward.shape[1]):
            for h in range(begin, end):
                swap(slots.reward, (h, a), i, j)
                for c in range(slots.utility.shape[0]):
                    swap(slots.utility, (c, h, a), i, j)
            for k in range(phi.shape[2]):
                swap(phi, (p, a, k), i, j)
    return j


def _absorb_dense(model, slots, states, actions, every_action):  # type: ignore[no-untyped-def]
    d, H, scratch = model.phi.shape[2], actions.shape[0], model.scratch
    for h in range(H):
        p = row(h, model.gram)
        for k in range(d):
            scratch[0, k] = model.phi[p, actions[h], k, states[h]]
        scale = 1.0
        for k in range(d):
            total = 0.0
            for m in range(d):
                total += model.gram_inv[p, k, m] * scratch[0, m]
            scratch[1, k] = total
            scale += scratch[0, k] * total
        for k in range(d):
            for m in range(d):
                model.gram[p, k, m] += scratch[0, k] * scratch[0, m]
                model.gram_inv[p, k, m] -= scratch[1, k] * scratch[1, m] / scale
        model.log_det[p] += np.log(scale)
        for k in range(d):
            model.moments[p, k, states[h + 1]] += scratch[0, k]


@inlined_kernel
def count_transition(model, p, a, i, j):  # type: ignore[no-untyped-def]
    """Count that action a at slot i of row p led to slot j."""
    model.log_det[p] += np.log1p(1.0 / (model.visits[p, a, i] + model.ridge))
    model.visits[p, a, i] += 1.0
    t = model.first[p, a, i]
    while t >= 0 and model.target[p, t] != j:
        t = model.following[p, t]
    if t < 0:
        t = model.num_transitions[p]
        model.num_transitions[p] += 1
        model.source[p, t], model.target[p, t], model.times[p, t] = i * model.visits.shape[1] + a, j, 0.0
        model.following[p, t] = model.first[p, a, i]
        model.first[p, a, i] = t
    model.times[p, t] += 1.0


def _absorb_counts(model, slots, states, actions, every_action):  # type: ignore[no-untyped-def]
    for h in range(actions.shape[0]):
        for a in range(model.visits.shape[1]):
            if a == actions[h] or (every_action and h == 0):
                count_transition(model, row(h, model.visits), a, states[h], states[h + 1])


@by_model({Dense: _absorb_dense, Counts: _absorb_counts})
def absorb(model, slots, states, actions, every_action):  # type: ignore[no-untyped-def]
    """Add one episode, slots (H+1,) and actions (H,): Λ ← Λ + φφᵀ with inverse and ln det, m_j ← m_j + φ; or counts.

    With `every_action` the first step is a dummy one, whose transition is the same for all actions.
    """


def _is_full_dense(model, ahead):  # type: ignore[no-untyped-def]
    return False


def _is_full_counts(model, ahead):  # type: ignore[no-untyped-def]
    most = 0
    for length in model.num_transitions:  # `max()` would cost a tenth of a short episode
        most = max(most, length)
    return most + ahead > model.times.shape[1]


@by_model({Dense: _is_full_dense, Counts: _is_full_counts})
def is_full(model, ahead):  # type: ignore[no-untyped-def]
    """Return whether `ahead` more transitions in a row might not fit."""


@inlined_kernel
def learn(model, slots, phi, states, actions, places, every_action):  # type: ignore[no-untyped-def]
    """Add one episode: states (H+1,), or slots where states are not listed; `places` (H+1,) is memory for slots.

    Where steps have rows of their own, the last state of an episode has slot 0: its values are the same everywhere.
    """
    H, listed = actions.shape[0], slots.slot_of.shape[1] > 0
    for h in range(H + 1):
        if not listed:
            places[h] = states[h]
        elif h < H or slots.size.shape[0] < H:
            places[h] = enter(slots, row(h, slots.size), states[h], phi)
    absorb(model, slots, places, actions, every_action)


@inlined_kernel
def most_transitions(slots, H):  # type: ignore[no-untyped-def]
    """Return how many transitions an episode can add to a row: those of H steps that share it, A at the start."""
    return slots.reward.shape[1] + (H if slots.size.shape[0] < H else 0)


@kernel
def learn_all(model, slots, phi, states, actions, every_action):  # type: ignore[no-untyped-def]
    """Add episodes, states (n, H+1) and actions (n, H), one after another while memory suffices; return how many."""
    n, H = actions.shape
    places, ahead = np.zeros(H + 1, dtype=np.int64), most_transitions(slots, H)
    for e in range(n):
        if is_full(model, ahead):
            return e
        learn(model, slots, phi, states[e], actions[e], places, every_action)
    return n
