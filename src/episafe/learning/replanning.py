"""When to plan again.

Between plans the policy is fixed and stays certified, so that the rule for it touches regret, never safety.
"""

from dataclasses import dataclass
from typing import Protocol

from episafe.types import Array


class Replanning(Protocol):
    """Decides from how much is known: `information` is ln det Λ_h per step, or ln(n ∨ 1) per (h, s, a) for DOPE."""

    def due(self, information_then: Array, information_now: Array) -> bool:
        """Whether to plan again before the next episode."""


@dataclass(frozen=True)
class Every:
    """Plan before every episode, as the paper does."""

    def due(self, information_then: Array, information_now: Array) -> bool:
        """Always."""
        return True


@dataclass(frozen=True)
class Doubling:
    """Plan again when some information grew by more than `growth` since the last plan (rare switching).

    With ln det Λ_h this makes at most 1 + dH ln(1 + K/(ρd))/growth plans in K episodes.
    """

    growth: float = 0.3

    def __post_init__(self) -> None:
        if not self.growth > 0:
            raise ValueError(f"growth must be > 0, got {self.growth!r}; to plan before every episode use Every()")

    def due(self, information_then: Array, information_now: Array) -> bool:
        """Whether some entry grew by more than `growth`."""
        return bool((information_now - information_then > self.growth).any())


def parse_replan(text: str) -> Replanning:
    """ "every" or "doubling:GROWTH" as a replanning rule."""
    kind, _, growth = text.partition(":")
    if kind == "every" and not growth:
        return Every()
    if kind == "doubling":
        try:
            return Doubling(float(growth)) if growth else Doubling()
        except ValueError as error:
            raise ValueError(f"replan {text!r}: {error}") from error
    raise ValueError(f'replan must be "every" or "doubling:GROWTH", e.g. "doubling:0.3", got {text!r}')
