"""The constants of Algorithm 2 and of its peers, and the level of guarantee that comes with them."""

import math
import warnings
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

Level = Literal["theorem", "calibrated", "heuristic"]

BRACKET_OVER_KAPPA = 0.1  # a final bracket above κ/10 moves the softmax visibly (regret 1895 against 780, κ = 0.001)


@dataclass(frozen=True)
class Constants:
    """Bonus scales, entropy coefficient and search limits, under the paper's names.

    Attributes:
        C_r: scale of the reward bonus.
        C_u: scale of the utility bonus; the only one that safety depends on.
        C_dagger: scale of the compensation's own bonus (C_d in the paper's experiments).
        B_dagger: scale of the compensation for pessimism.
        kappa: entropy coefficient κ > 0.
        lam_max: C_λ, the largest multiplier tried.
        num_halvings: T, halvings of [0, lam_max].
        ridge: ρ > 0.
        C_theta: C_θ, scale of the bonus of reward and utility where they are learned; read only there.
        level: what the certificate is worth, not to be set: constants set by hand are "heuristic", however well they do
    """

    C_r: float
    C_u: float
    C_dagger: float
    B_dagger: float
    kappa: float
    lam_max: float
    num_halvings: int
    ridge: float = 1.0
    C_theta: float = 1.0
    level: Level = field(default="heuristic", init=False)

    def __post_init__(self) -> None:
        for name in ("C_r", "C_u", "C_dagger", "B_dagger", "kappa", "lam_max", "ridge", "C_theta"):
            object.__setattr__(self, name, _real(name, getattr(self, name), positive=name in ("kappa", "ridge")))
        object.__setattr__(self, "num_halvings", _whole("num_halvings", self.num_halvings))
        self._warn_of_a_wide_bracket()

    def _warn_of_a_wide_bracket(self) -> None:
        bracket = math.ldexp(self.lam_max, -self.num_halvings)
        if bracket > BRACKET_OVER_KAPPA * self.kappa:
            needed = math.ceil(math.log2(self.lam_max) - math.log2(BRACKET_OVER_KAPPA) - math.log2(self.kappa))
            warnings.warn(
                f"the final bracket lam_max·2^-num_halvings = {bracket:.3g} is not far below kappa = {self.kappa:.3g}: "
                f"the deployed λ is coarse and regret grows; use num_halvings >= {needed}",
                stacklevel=4,
            )

    def settings(self) -> dict[str, str | int | float]:
        """The constants as plain values, for records."""
        return asdict(self)

    def replace(self, **changes: Any) -> "Constants":
        """The same constants with some changed; names that do not exist are an error."""
        values = {name: value for name, value in asdict(self).items() if name != "level"}
        for name in changes:
            if name not in values:
                raise ValueError(f"no constant {name!r}; there are {', '.join(values)}")
        return Constants(**{**values, **changes})

    @classmethod
    def paper(cls, name: str, agent: str = "opse") -> "Constants":
        """The published constants of one environment and agent.

        "linear" is not in the text; its values are those of the released notebook. DOPE reads C_r and C_u only.
        """
        if name not in _PUBLISHED:
            raise ValueError(f"no published constants for {name!r}; there are those of {', '.join(_PUBLISHED)}")
        if agent not in ("opse", "ghosh", "dope"):
            raise ValueError(f'agent must be "opse", "ghosh" or "dope", got {agent!r}')
        scale, kappa = _PUBLISHED[name]
        if agent == "dope":
            scale = 1.0
        compensation = (scale, 1.0) if agent == "opse" else (0.0, 0.0)
        return cls(scale, scale, *compensation, kappa=kappa, lam_max=300.0, num_halvings=20)


# environment: (C_r = C_u = C_dagger of OPSE and Ghosh, kappa)
_PUBLISHED = {"tabular": (1.0, 0.1), "streaming": (2.0, 0.1), "linear": (5.0, 0.01)}


def _real(name: str, value: Any, *, positive: bool) -> float:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be a finite number {'> 0' if positive else '>= 0'}, got {value!r}")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{name} must be a whole number >= 0, got {value!r}")
    return int(value)
