"""One model for all steps, where transitions do not depend on the step: Λ = ρI + Σ_i Σ_h φ_h^i (φ_h^i)ᵀ, and

    P̂V(s,a) = φ(s,a)ᵀ Λ⁻¹ Σ_i Σ_h φ(s_h^i, a_h^i) V(s_{h+1}^i)        β = ‖φ‖_{Λ⁻¹}

Every state that was seen at some step has the same slot at all of them, also the one after the last step. An episode is
taken in by row 0 of the model (see model_arrays.py); before a decision `spread` copies it to the other rows, so that
kernels read what they always read. With n states and m transitions seen, an episode costs O(H) for counts and O(Hd²)
for features, `spread` O(H(An + m)) or O(H(d² + dn)), and each λ as much as n states seen at each step. For continuous
states n is K·H, so that the features take H·KH·A·d numbers: use cells and one-hot features there.
"""

import numpy as np

from episafe.kernels.model_arrays import DenseModel, Model
from episafe.kernels.model_update import count_in_one
from episafe.types import Array, IntArray


def absorb_episode(model: Model, slots: IntArray, actions: IntArray) -> None:
    """Add one episode to row 0: slots (H+1,), actions (H,). ln det Λ is that of all steps."""
    if model.is_dense:
        for slot, action, following in zip(slots[:-1], actions, slots[1:], strict=True):
            _regress_on(model, model.phi[0, action, :, slot], following)
    else:
        count_in_one(model, slots, actions)
    model.log_det[:] = model.log_det[0]


def _regress_on(model: DenseModel, x: Array, following: int) -> None:
    """Λ ← Λ + xxᵀ with inverse and ln det, m_j ← m_j + x, in row 0."""
    direction = model.gram_inv[0] @ x
    scale = 1.0 + x @ direction
    model.gram[0] += np.outer(x, x)
    model.gram_inv[0] -= np.outer(direction, direction) / scale
    model.log_det[0] += np.log(scale)
    model.moments[0, :, following] += x


def spread(model: Model) -> None:
    """Copy what is learned from row 0 to the other steps."""
    for name in ("gram_inv", "moments") if model.is_dense else ("visits", "first", "following", "target", "times"):
        getattr(model, name)[1:] = getattr(model, name)[0]
