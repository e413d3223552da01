"""A policy of a bandit: a distribution with finitely many atoms."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from episafe.checks import as_distributions, as_finite
from episafe.types import Array


@dataclass(frozen=True, eq=False)
class Mixture:
    """Plays `atoms[i]` with probability `probabilities[i]`.

    Attributes:
        atoms: (m, d).
        probabilities: (m,).
    """

    atoms: Array
    probabilities: Array

    def mean(self) -> Array:
        """E[a], (d,)."""
        return self.probabilities @ self.atoms

    def draw(self, rng: np.random.Generator) -> Array:
        """An action, (d,)."""
        p = np.maximum(self.probabilities, 0.0)  # what is within the tolerance of a distribution is drawn from too
        action: Array = self.atoms[rng.choice(len(p), p=p / p.sum())]
        return action.copy()


def as_mixture(policy: Any, dim: int) -> Mixture:
    """A Mixture, anything with atoms and probabilities, or one action (d,), checked."""
    if not hasattr(policy, "atoms"):
        return Mixture(as_finite("policy", policy, (dim,))[None, :], np.ones(1))
    atoms = as_finite("atoms", policy.atoms, (None, dim))
    return Mixture(atoms, as_distributions("probabilities", policy.probabilities, (len(atoms),)))


def without_negatives(probabilities: Array) -> Array:
    """Distributions (…, n) with entries below 0, which the tolerance lets in, dropped and the rest scaled to sum 1."""
    below = (probabilities < 0).any(axis=-1, keepdims=True)
    if not below.any():
        return probabilities
    kept = np.maximum(probabilities, 0.0)
    found: Array = np.where(below, kept / kept.sum(axis=-1, keepdims=True), probabilities)
    found.setflags(write=False)
    return found


def over_arms(arms: Array, probabilities: Array) -> Mixture:
    """A distribution over arms as a mixture of those it plays."""
    played = np.flatnonzero(probabilities > 0)
    return Mixture(arms[played], probabilities[played])
