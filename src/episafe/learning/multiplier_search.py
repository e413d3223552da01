"""How λ is looked for. Whatever finds it, `kernels.evaluate` and `admits` certify it: only time and regret differ.

`Bisection` is the paper's, and the default. The others may find another λ where V̲ᵘ is not monotone in λ, and so deploy
another certified policy. `factor` is 0 without a warm start, `points` 0 where one λ is evaluated at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from episafe.checks import as_whole


@dataclass(frozen=True)
class Bisection:
    """C_λ, 0, then `num_halvings` halvings of [0, C_λ], as in Algorithm 2."""

    factor: ClassVar[float] = 0.0
    points: ClassVar[int] = 0


@dataclass(frozen=True)
class WarmStart:
    """Begin around the λ of the last plan, λ·factor admitted and λ/factor not; otherwise as `Bisection`.

    The bracket at the end is as narrow as that of bisection, after about half as many evaluations.
    """

    factor: float = 1.1
    points: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not self.factor > 1:
            raise ValueError(f"factor must be > 1, got {self.factor!r}; to begin at [0, lam_max] use Bisection()")


@dataclass(frozen=True)
class Sections:
    """Divide the bracket at `points` λ at once, all of them evaluated in one pass as matrix products: for large d.

    The next bracket ends at the smallest λ admitted. Each pass reads the features once, whatever the number of points.
    """

    points: int = 16
    factor: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        as_whole("points", self.points, 2)


LamSearch = Bisection | WarmStart | Sections


def smallest_passing(passes: Callable[[float], bool], upper: float, num_halvings: int) -> float:
    """The right end of [0, upper] after so many halvings: only what passes replaces it, whether `upper` does or not."""
    lower = 0.0
    for _ in range(num_halvings):
        middle = (lower + upper) / 2
        lower, upper = (lower, middle) if passes(middle) else (middle, upper)
    return upper
