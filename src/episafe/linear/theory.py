"""The theorem's constants from the paper's lemmas, as logarithms so that nothing overflows."""

import math
import sys
from dataclasses import dataclass

import numpy as np

from episafe.core.checks import TOLERANCE, as_count, as_probability
from episafe.core.errors import Infeasible
from episafe.core.task import TableFeatures, Task

LN_2, LN_4, LN_8 = math.log(2.0), math.log(4.0), math.log(8.0)
SETTLED = 1e-12  # relative change of ln C below which the fixed point counts as found
LARGEST_LOG = math.log(sys.float_info.max)
MAX_ROUNDS = 500  # each fixed point stands inside a logarithm: a round gains a factor


@dataclass(frozen=True)
class Sizes:
    """What the theorem's constants depend on: H, A, d, ξ, K, δ and the norm bound B of μ.

    `shared` says that all steps learn from the same n = KH transitions, else each from n = K of its own.
    """

    horizon: int
    num_actions: int
    dim: int
    slack: float
    num_episodes: int
    delta: float
    norm_bound: float
    shared: bool = False

    def __post_init__(self) -> None:
        as_count("num_episodes", self.num_episodes)
        as_probability("delta", self.delta)

    @property
    def num_samples(self) -> int:
        """Return n, how many transitions a regression has seen after K episodes."""
        return self.num_episodes * (self.horizon if self.shared else 1)


@dataclass(frozen=True)
class Logs:
    """ln C_r, ln C_u, ln C_†, ln B_†, ln C_λ and ln κ."""

    C_r: float
    C_u: float
    C_dagger: float
    B_dagger: float
    lam_max: float
    kappa: float


def theorem(sizes: Sizes) -> Logs:
    """The smallest constants that satisfy the recipe, by iteration from C_r = C_u = C_† = 1.

        H_κ = H(1 + κ ln A)   B_† = 4C_u H/ξ   C_λ = 8H_κ²(B_† + 1)/ξ   κ = min{ξ²/(32H_κ²(B_† + 1)), 1/(H ln A √K)}
        C_g = B_g(B + 2√((d/2) ln(1+n)) + 2√(ln N_V^g(1/n) + ln(3H/δ))) + 4,   B_r, B_u, B_† := H_κ, H, B_†H

    B is the norm bound of μ, √d in the paper. n = K, or KH where steps share their data. Each C stands inside its own
    covering number, hence the iteration; it grows from below to the least fixed point.
    """
    C_r = C_u = C_dagger = 0.0
    for _ in range(MAX_ROUNDS):
        logs = _with_relations(sizes, C_r, C_u, C_dagger)
        radii = [_radius(sizes, logs, g) for g in ("r", "u", "†")]
        moved = max(abs(new - old) for new, old in zip(radii, (C_r, C_u, C_dagger), strict=True))
        C_r, C_u, C_dagger = radii
        if moved <= SETTLED * max(1.0, abs(C_dagger)):
            return _with_relations(sizes, C_r, C_u, C_dagger)
    raise ArithmeticError(f"the theorem's constants did not settle in {MAX_ROUNDS} rounds: {sizes}")


def _with_relations(sizes: Sizes, C_r: float, C_u: float, C_dagger: float) -> Logs:
    """B_†, C_λ and κ that go with C_u (all logarithms)."""
    ln_slack = math.log(sizes.slack)
    B_dagger = LN_4 + C_u + math.log(sizes.horizon) - ln_slack
    kappa = -math.inf  # H_κ contains κ ≤ 1/32: a few rounds settle it
    for _ in range(20):
        size = 2 * ln_H_kappa(sizes, kappa) + _ln_1p(B_dagger)
        kappa = min(2 * ln_slack - math.log(32) - size, _ln_kappa_limit(sizes))
    lam_max = LN_8 + 2 * ln_H_kappa(sizes, kappa) + _ln_1p(B_dagger) - ln_slack
    return Logs(C_r, C_u, C_dagger, B_dagger, lam_max, kappa)


def _ln_kappa_limit(sizes: Sizes) -> float:
    """ln 1/(H ln A √K), with which entropy costs at most √K in all; no limit where there is one action."""
    if sizes.num_actions == 1:
        return math.inf
    return -math.log(sizes.horizon * math.log(sizes.num_actions)) - 0.5 * math.log(sizes.num_episodes)


def ln_H_kappa(sizes: Sizes, kappa: float) -> float:  # noqa: N802
    """ln H(1 + κ ln A)."""
    return math.log(sizes.horizon) + math.log1p(math.exp(kappa) * math.log(sizes.num_actions))


def _radius(sizes: Sizes, logs: Logs, g: str) -> float:
    """ln C_g: Lemma "hP-P-V bound" at ρ = 1, ε = 1/n, for all steps and the three classes together at level δ."""
    d, n = sizes.dim, sizes.num_samples
    span = {
        "r": ln_H_kappa(sizes, logs.kappa),
        "u": math.log(sizes.horizon),
        "†": logs.B_dagger + math.log(sizes.horizon),
    }[g]
    cover = ln_value_cover(sizes, logs, g, -math.log(n))
    fixed = sizes.norm_bound + 2 * math.sqrt(d / 2 * math.log1p(n))
    uniform = 2 * math.sqrt(cover + math.log(3 * sizes.horizon / sizes.delta))
    return _ln_sum(span + math.log(fixed + uniform), LN_4)


def ln_value_cover(sizes: Sizes, logs: Logs, g: str, eps: float) -> float:
    """ln N_V^g(ε) = ln(N_∘(ε/(2Z)) + 1) + ln N_Q^g(ε/2): Lemma "V covers"; `eps` is ln ε."""
    composite = ln_composite_cover(sizes, logs, eps - LN_2 - ln_Z(sizes, logs))
    return _ln_1p(composite) + ln_q_cover(sizes, logs, g, eps - LN_2)


def ln_Z(sizes: Sizes, logs: Logs) -> float:  # noqa: N802
    """ln Z, Z = 2 + (8/κ)(B_†H + 2H_κ + C_λH): how far a composite Q moves the value of its softmax policy."""
    H, H_kappa = math.log(sizes.horizon), ln_H_kappa(sizes, logs.kappa)
    reach = _ln_sum(_ln_sum(logs.B_dagger + H, LN_2 + H_kappa), logs.lam_max + H)
    return _ln_sum(LN_2, LN_8 - logs.kappa + reach)


def ln_composite_cover(sizes: Sizes, logs: Logs, x: float) -> float:
    """ln N_∘(x) = ln(1 + 8HC_λ/x) + ln N_Q^u(x/(4C_λ)) + ln N_Q^r(x/4) + ln N_Q^†(x/4): Lemma "Composite Q cover"."""
    multipliers = _ln_1p(LN_8 + math.log(sizes.horizon) + logs.lam_max - x)
    utilities = ln_q_cover(sizes, logs, "u", x - LN_4 - logs.lam_max)
    return multipliers + utilities + sum(ln_q_cover(sizes, logs, g, x - LN_4) for g in ("r", "†"))


def ln_q_cover(sizes: Sizes, logs: Logs, g: str, x: float) -> float:
    """ln N_Q^g(x) = d ln(1 + 4W/x) + d² ln(1 + 8√d C²/x²): Lemma "Q covers", W = n·(H_κ | H | B_†H)."""
    d, H, n = sizes.dim, math.log(sizes.horizon), math.log(sizes.num_samples)
    W, C = {
        "r": (n + ln_H_kappa(sizes, logs.kappa), logs.C_r),
        "u": (n + H, logs.C_u),
        "†": (n + H + logs.B_dagger, logs.C_dagger),
    }[g]
    return d * _ln_1p(LN_4 + W - x) + d**2 * _ln_1p(LN_8 + 0.5 * math.log(d) + 2 * C - 2 * x)


def num_halvings(sizes: Sizes, logs: Logs) -> int:
    """T with which the search costs at most 1 in all: C_λ K · X^H H² Y · C_λ 2^{-T} ≤ 1.

        Y = 2 + (8/κ)(2B_†H + 2H_κ + C_λH + H)   X = n(1 + (1 + C_λ)Y)

    Differs from the paper: its X and Y leave out the entropy of V^r, and its bracket is 2^{-T} for C_λ 2^{-T}.
    """
    H, K = math.log(sizes.horizon), math.log(sizes.num_episodes)
    reach = _ln_sum(LN_2 + _ln_sum(logs.B_dagger + H, ln_H_kappa(sizes, logs.kappa)), _ln_1p(logs.lam_max) + H)
    Y = _ln_sum(LN_2, LN_8 - logs.kappa + reach)
    X = math.log(sizes.num_samples) + _ln_1p(_ln_1p(logs.lam_max) + Y)
    return max(0, math.ceil((2 * logs.lam_max + K + sizes.horizon * X + 2 * H + Y) / LN_2))


def _ln_1p(x: float) -> float:
    """ln(1 + e^x)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _ln_sum(x: float, y: float) -> float:
    """ln(e^x + e^y)."""
    return max(x, y) + math.log1p(math.exp(-abs(x - y)))


def require_linear(task: Task) -> None:
    """Raise Infeasible if no kernel that is linear in the features keeps the norm bound B.

    w = Σ_s' μ_h(s') has φ(s,a)ᵀw = 1 everywhere, for any P, and ‖w‖ ≤ B.
    """
    norm_bound, least = task.norm_bound or 0.0, 0.0
    if isinstance(task.features, TableFeatures):
        rows = task.features.phi.reshape(-1, task.dim)
        w = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
        least = float(np.linalg.norm(w)) if np.abs(rows @ w - 1).max() <= TOLERANCE else math.inf
    if math.isinf(norm_bound) or norm_bound < least * (1 - TOLERANCE):
        text = f"no kernel that is linear in these features has norm_bound {norm_bound:.6g}"
        raise Infeasible(f"{text}: state one that its μ keeps, at least {least:.6g}, or use es.certify.Observation")
