"""Occupancies w_h(s, a): where a policy is under a kernel, and the Markov policy that is where several are."""

from typing import Any

import numpy as np

from episafe.types import Array

Steps = Any  # a kernel by its steps: an array (H, S, A, S), or H sparse matrices (S·A, S)


def occupancy(P: Steps, policy: Array, initial_state: int) -> Array:
    """w_h(s, a) = ℙ(s_h = s, a_h = a), shape (H, S, A)."""
    H, S, A = policy.shape
    state_mass = np.zeros(S)
    state_mass[initial_state] = 1.0
    out = np.empty((H, S, A))
    for h in range(H):
        out[h] = state_mass[:, None] * policy[h]
        state_mass = out[h].reshape(S * A) @ P[h].reshape(S * A, S)
    return out


def markov_policy(mass: Array, elsewhere: Array | float) -> Array:
    """π_h(a|s) = w_h(s, a) / Σ_a w_h(s, a) of an occupancy (H, S, A); `elsewhere` where that is 0/0."""
    total = mass.sum(axis=-1, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1.0), elsewhere)
