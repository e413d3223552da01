"""A policy of a bandit, a distribution with finitely many atoms, and a plan that deploys one."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from episafe.checks import as_distributions, as_finite
from episafe.types import Array, Level, Source


@dataclass(frozen=True, eq=False)
class Mixture:
    """Plays `atoms[i]` with probability `probabilities[i]`.

    Attributes:
        atoms: (m, d).
        probabilities: (m,).
    """

    atoms: Array
    probabilities: Array
    name: ClassVar[str] = ""

    @property
    def components(self) -> "tuple[Mixture, ...]":
        """Itself: no coin is tossed before a round."""
        return (self,)

    @property
    def weights(self) -> Array:
        """The probability of itself."""
        return np.ones(1)

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


@dataclass(frozen=True, eq=False)
class BanditPlan:
    """A policy to deploy and why it may be: an `es.Plan` whose policy is a mixture of actions.

    Attributes:
        atoms, probabilities: (m, d) and (m,): what to play, with which probability.
            They are copied and cannot be written to.
        source: "safe" (the incumbent) or "search".
        lam, level, reason, id, failed, deployment: as of an `es.Plan`.
        utility_bound: for "search" the bound that was checked against the threshold; for "safe" the incumbent's own.
    """

    atoms: Array
    probabilities: Array
    source: Source
    lam: float = np.nan
    utility_bound: float = np.nan
    level: Level = "heuristic"
    reason: str = ""
    id: int = 0
    failed: bool = False
    deployment: int | None = None

    def __post_init__(self) -> None:
        for name in ("atoms", "probabilities"):
            copied = np.array(getattr(self, name), dtype=np.float64, order="C")
            copied.setflags(write=False)  # the agent deploys it again: nobody may change it meanwhile
            self.__dict__[name] = copied

    @property
    def policy(self) -> Mixture:
        """What is deployed."""
        return Mixture(self.atoms, self.probabilities)

    def draw(self, rng: np.random.Generator) -> Array:
        """An action to play, (d,)."""
        return self.policy.draw(rng)
