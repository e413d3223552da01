"""The theorem's constants from the paper's lemmas; covering numbers are logarithms."""

import math
from dataclasses import dataclass

import numpy as np

from episafe.core.checks import TOLERANCE, as_count, as_probability
from episafe.core.errors import Infeasible, InvalidProblem
from episafe.core.task import TableFeatures, Task

SETTLED = 1e-12  # relative change of C below which the fixed point counts as found
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
class Theorem:
    """C_r, C_u, C_†, B_†, C_λ and κ."""

    C_r: float
    C_u: float
    C_dagger: float
    B_dagger: float
    lam_max: float
    kappa: float


def theorem(sizes: Sizes) -> Theorem:
    """The smallest constants that satisfy the recipe, by iteration from C_r = C_u = C_† = 1.

        H_κ = H(1 + κ ln A)   B_† = 4C_u H/ξ   C_λ = 8H_κ²(B_† + 1)/ξ   κ = min{ξ²/(32H_κ²(B_† + 1)), 1/(H ln A √K)}
        C_g = B_g(B + 2√((d/2) ln(1+n)) + 2√(ln N_V^g(1/n) + ln(3H/δ))) + 4,   B_r, B_u, B_† := H_κ, H, B_†H

    B is the norm bound of μ, √d in the paper. n = K, or KH where steps share their data. Each C stands inside its own
    covering number, hence the iteration; it grows from below to the least fixed point.
    """
    scales, d, n = [1.0, 1.0, 1.0], sizes.dim, sizes.num_samples
    fixed = sizes.norm_bound + 2 * math.sqrt(d / 2 * math.log1p(n))
    try:
        for _ in range(MAX_ROUNDS):
            found = _with_relations(sizes, *scales)
            # Lemma "hP-P-V bound" at ρ = 1, ε = 1/n, for all steps and the three classes together at level δ
            covers = [ln_value_cover(sizes, found, g, 1 / n) + math.log(3 * sizes.horizon / sizes.delta) for g in "ru†"]
            spans = [_span(sizes, found, g)[0] for g in "ru†"]
            radii = [span * (fixed + 2 * math.sqrt(cover)) + 4 for span, cover in zip(spans, covers, strict=True)]
            if all(math.isclose(new, old, rel_tol=SETTLED) for new, old in zip(radii, scales, strict=True)):
                return found
            scales = radii
    except (OverflowError, ZeroDivisionError) as error:
        raise InvalidProblem(
            f"the theorem's constants at slack {sizes.slack:.3g} are too large for float64, so the theorem cannot "
            "be applied: use an incumbent with more slack, or a lower threshold"
        ) from error
    raise ArithmeticError(f"the theorem's constants did not converge in {MAX_ROUNDS} rounds: {sizes}")


def _with_relations(sizes: Sizes, C_r: float, C_u: float, C_dagger: float) -> Theorem:
    """Add the B_†, C_λ and κ that go with C_u. With 1/(H ln A √K) entropy costs at most √K in all."""
    H, ln_A, xi = sizes.horizon, math.log(sizes.num_actions), sizes.slack
    most = 1 / (H * ln_A * math.sqrt(sizes.num_episodes)) if ln_A else math.inf
    B_dagger, kappa = 4 * C_u * H / xi, 0.0
    for _ in range(20):  # H_κ contains κ ≤ 1/32: a few rounds settle it
        lam_max = 8 * H_kappa(sizes, kappa) ** 2 * (B_dagger + 1) / xi
        kappa = min(xi / (4 * lam_max), most)
    return Theorem(C_r, C_u, C_dagger, B_dagger, lam_max, kappa)


def H_kappa(sizes: Sizes, kappa: float) -> float:  # noqa: N802
    """H(1 + κ ln A)."""
    return sizes.horizon * (1 + kappa * math.log(sizes.num_actions))


def _span(sizes: Sizes, c: Theorem, g: str) -> tuple[float, float]:
    """H_κ, H or B_†H, and C_g."""
    H = sizes.horizon
    return {"r": (H_kappa(sizes, c.kappa), c.C_r), "u": (H, c.C_u), "†": (c.B_dagger * H, c.C_dagger)}[g]


def ln_value_cover(sizes: Sizes, c: Theorem, g: str, eps: float) -> float:
    """ln N_V^g(ε) = ln(N_∘(ε/(2Z)) + 1) + ln N_Q^g(ε/2): Lemma "V covers".

    Z = 2 + (8/κ)(B_†H + 2H_κ + C_λH) is how far a composite Q moves the value of its softmax policy.
    """
    Z = 2 + 8 / c.kappa * ((c.B_dagger + c.lam_max) * sizes.horizon + 2 * H_kappa(sizes, c.kappa))
    composite = ln_composite_cover(sizes, c, eps / (2 * Z))
    return float(np.logaddexp(0.0, composite)) + ln_q_cover(sizes, c, g, eps / 2)


def ln_composite_cover(sizes: Sizes, c: Theorem, x: float) -> float:
    """ln N_∘(x) = ln(1 + 8HC_λ/x) + ln N_Q^u(x/(4C_λ)) + ln N_Q^r(x/4) + ln N_Q^†(x/4): Lemma "Composite Q cover"."""
    covers = ln_q_cover(sizes, c, "u", x / (4 * c.lam_max)), *(ln_q_cover(sizes, c, g, x / 4) for g in "r†")
    return math.log1p(8 * sizes.horizon * c.lam_max / x) + sum(covers)


def ln_q_cover(sizes: Sizes, c: Theorem, g: str, x: float) -> float:
    """ln N_Q^g(x) = d ln(1 + 4W/x) + d² ln(1 + 8√d C²/x²): Lemma "Q covers", W = n·(H_κ | H | B_†H)."""
    d, (span, C) = sizes.dim, _span(sizes, c, g)
    return d * math.log1p(4 * sizes.num_samples * span / x) + d**2 * math.log1p(8 * math.sqrt(d) * (C / x) ** 2)


def num_halvings(sizes: Sizes, c: Theorem) -> int:
    """T with which the search costs at most 1 in all: C_λ K · X^H H² Y · C_λ 2^{-T} ≤ 1.

        Y = 2 + (8/κ)(2B_†H + 2H_κ + C_λH + H)   X = n(1 + (1 + C_λ)Y)

    Differs from the paper: its X and Y leave out the entropy of V^r, and its bracket is 2^{-T} for C_λ 2^{-T}.
    """
    H = sizes.horizon
    Y = 2 + 8 / c.kappa * ((2 * c.B_dagger + c.lam_max + 1) * H + 2 * H_kappa(sizes, c.kappa))
    X = sizes.num_samples * (1 + (1 + c.lam_max) * Y)
    factors = c.lam_max, c.lam_max, sizes.num_episodes, H, H, Y
    return max(0, math.ceil(sum(map(math.log2, factors)) + H * math.log2(X)))


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
        raise Infeasible(
            f"{text}: state a bound that its μ satisfies, at least {least:.6g}, or use es.certify.Observation"
        )
