"""What an agent hands out: a policy to deploy, and why it may be."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from episafe.learning.constants import Level
from episafe.problems.policy import Policy

Source = Literal["safe", "zero", "search", "fixed"]


@dataclass(frozen=True)
class Plan:
    """A policy to deploy and why it may be.

    Attributes:
        policy: what to deploy.
        source: "safe" (the incumbent), "zero" (λ = 0), "search" (found by search) or "fixed".
        lam: the multiplier; NaN where there is none.
        utility_bound: the bound that was checked against the threshold; for "safe" the one that failed.
        level: what the bound is worth: "theorem", "calibrated" or "heuristic".
        reason: why the incumbent is deployed, where it is.
        id: counts the plans of one agent from 0.
    """

    policy: Policy
    source: Source
    lam: float = np.nan
    utility_bound: float = np.nan
    level: Level = "heuristic"
    reason: str = ""
    id: int = 0
