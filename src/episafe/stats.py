"""Every interval that is not part of a certificate or a monitor: for means, by three assumptions, and for a rate."""

import math

import numpy as np

from episafe.types import Array

Z_95, Z_99 = 1.96, 2.5758  # quantiles of two-sided normal intervals
BOLDEST = 0.9  # of the largest bet at which no capital can be lost in full
HALVINGS = 50
RHO = 0.18  # an anytime radius is tightest after some tens of values


def normal_interval(values: Array, z: float = Z_95) -> tuple[Array, Array]:
    """Mean and half-width z·s/√n along the first axis, (n, …) to (…); asymptotic, for n ≥ 2."""
    half_width: Array = z * values.std(axis=0, ddof=1) / len(values) ** 0.5
    return values.mean(axis=0), half_width


def t_interval(values: Array, confidence: float = 0.95) -> tuple[Array, Array]:
    """Mean and t_{n−1}((1 + confidence)/2)·s/√n along the first axis; exact for normal values, NaN for n = 1."""
    from scipy.special import stdtrit  # here, since few need it

    n, mean = len(values), values.mean(axis=0)
    if n == 1:
        return mean, np.full_like(mean, np.nan)
    half_width: Array = stdtrit(n - 1, (1 + confidence) / 2) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, half_width


def rate_bound(num_hits: int, num_trials: int, confidence: float) -> float:
    """Clopper-Pearson upper bound: the p with ℙ(Binomial(n, p) ≤ hits) = 1 − confidence; 1 where all are hits."""
    from scipy.stats import beta  # takes half a second to import

    if num_hits == num_trials:
        return 1.0
    return float(beta.ppf(confidence, num_hits + 1, num_trials - num_hits))


def rate_interval(num_hits: int, num_trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate: each end is missed with probability (1 − confidence)/2 at most."""
    one_sided = (1 + confidence) / 2
    return 1 - rate_bound(num_trials - num_hits, num_trials, one_sided), rate_bound(num_hits, num_trials, one_sided)


def anytime_radius(n: float, deviations: float, level: float) -> float:
    """How far the mean of n values may be from the truth on one side; `deviations`: their Σ(x − mean)².

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2021): for large n the mean
    is never off by more, at all n together, with probability 1 − level. Infinite for n < 2.

        s √(2 (nρ² + 1)/(n²ρ²) · ln(√(nρ² + 1)/level)),   s the standard deviation
    """
    if n < 2:
        return math.inf
    s, grows = math.sqrt(deviations / (n - 1)), n * RHO**2 + 1
    return s * math.sqrt(2 * grows / (n * RHO) ** 2 * math.log(math.sqrt(grows) / level))


def mean_interval(values: Array, delta: float) -> tuple[float, float]:
    """The mean of `values` in [0, 1], in order of arrival, lies inside with probability at least 1 − δ.

    The betting interval of Waudby-Smith and Ramdas (JRSS B 2024, section 4.4). If m is the mean, the capital

        K(m) = Π_t (1 + min{λ_t, 0.9/m}·(x_t − m)),   λ_t = √(2 ln(2/δ) / (n σ̂²_{t−1}))

    is a nonnegative martingale, since λ_t goes by x_1..x_{t−1} alone, so it reaches 2/δ with probability δ/2 at most.
    K falls in m: the lower end is the largest m at which it does reach 2/δ. The upper end is that of 1 − x.
    """
    x = np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0)
    return _lower(x, delta / 2), 1.0 - _lower(1.0 - x, delta / 2)


def _lower(x: Array, delta: float) -> float:
    """The largest m with ln K(m) ≥ ln(1/δ), by halving; 0 if there is none."""
    bets, low, high = _bets(x, delta), 0.0, 1.0
    for _ in range(HALVINGS):
        m = 0.5 * (low + high)
        capital = np.log1p(np.minimum(bets, BOLDEST / m) * (x - m)).sum()
        low, high = (m, high) if capital >= np.log(1 / delta) else (low, m)
    return low


def _bets(x: Array, delta: float) -> Array:
    """λ_t, by the variance σ̂² of what came before, with ¼ at the beginning."""
    n = len(x)
    counts = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(x)) / (counts + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2)) / (counts + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    return np.sqrt(2 * np.log(1 / delta) / (n * before))
