"""What the theorem says of the incumbent's deployments and of regret, for given constants. See docs/theory.md."""

import math

from episafe.learning.constants import Constants
from episafe.learning.theory_constants import Sizes
from episafe.problems.sampled_problem import AnyTask, known_slack

MAX_ROUNDS = 500  # N stands inside a logarithm: each round gains a factor


def squared_bonus_sum(task: AnyTask | Sizes, num_episodes: float, delta: float) -> float:
    """Σ_k V^{π⁽ᵏ⁾,β}(s₁)² ≤ 4H²d ln(1 + K/d) + 4H² ln(2KH/δ), with probability 1−δ (Lemma "Bonus summation bound").

    Differs from the paper: 4H²d where it has 2H²d; the potential gives 2d and the passage to expectations doubles it.
    It holds all the more where steps share their data: β is then smaller at every (s, a).
    """
    H, d = task.horizon, task.dim
    return 4 * H**2 * (d * math.log1p(num_episodes / d) + math.log(2 * num_episodes * H / delta))


def bonus_sum(task: AnyTask, num_episodes: float, delta: float) -> float:
    """Σ_k V^{π⁽ᵏ⁾,β}(s₁) ≤ √K √(Σ_k V^{π⁽ᵏ⁾,β}(s₁)²)."""
    return math.sqrt(num_episodes * squared_bonus_sum(task, num_episodes, delta))


def incumbent_deployments(task: AnyTask, C_u: float, delta: float = 0.05) -> float:
    """How often the incumbent may be deployed because the check fails: each time V^{π_sf,β} > ξ/(4C_u)."""
    return _episodes_until(task, _slack(task) / (4 * C_u), delta)


def incumbent_phase(task: AnyTask | Sizes, C_u: float, delta: float = 0.05) -> float:
    """N₀, first episodes (or logged ones) of the incumbent after which V^{π_sf,β} ≤ ξ/(2C_u) for ever.

    From then on every episode is optimistic, which closes the gap in the paper's regret proof (docs/theory.md).
    """
    return _episodes_until(task, _slack(task) / (2 * C_u), delta)


def _slack(task: AnyTask | Sizes) -> float:
    return task.slack if isinstance(task, Sizes) else known_slack(task)


def _episodes_until(task: AnyTask | Sizes, width: float, delta: float) -> float:
    """The largest N with N·width² ≤ the bound of Σ_{k≤N} V^{π_sf,β}(s₁)²: after it V^{π_sf,β} is less."""
    count = 1.0
    for _ in range(MAX_ROUNDS):
        more = max(1.0, squared_bonus_sum(task, count, delta) / width**2)
        if more <= count * (1 + 1e-12):
            return float(math.ceil(more)) if more < 2**53 else more
        count = more
    raise ArithmeticError(f"the number of incumbent episodes did not settle in {MAX_ROUNDS} rounds at width {width}")


def regret_bound(task: AnyTask, constants: Constants, num_episodes: int, delta: float = 0.05) -> dict[str, float]:
    """The theorem's regret bound, term by term, with probability 1−2δ, after N₀ episodes of the incumbent.

    H N₀ + H D   +   2C_r Σβ   +   (B_† + 2C_†) Σβ   +   1   +   κKH ln A
    """
    H, A = task.horizon, task.num_actions
    total = bonus_sum(task, num_episodes, delta)
    incumbent = incumbent_phase(task, constants.C_u, delta) + incumbent_deployments(task, constants.C_u, delta)
    return {
        "incumbent": H * incumbent,
        "optimism": 2 * constants.C_r * total,
        "compensation": (constants.B_dagger + 2 * constants.C_dagger) * total,
        "search": 1.0,
        "entropy": constants.kappa * num_episodes * H * math.log(A),
    }
