"""Linear bandits to test agents on. The limits of each drawn problem bind: its optimum is at every threshold."""

from collections.abc import Callable
from typing import Any

import numpy as np

from episafe.core.checks import as_count
from episafe.core.types import Array
from episafe.envs.common import described_options
from episafe.problems.bandit import Ellipsoid, LinearBandit

NUM_CONTEXTS = 1_000  # rounds after which the contexts repeat
MAX_REDRAWS = 1_000


def make(name: str, seed: int = 0, **options: object) -> LinearBandit:
    """Return the environment `name`, drawn with `seed` until its limits bind; options are its keyword arguments.

    Example:
        >>> make("ball", seed=1, dim=3).task.dim
        3
    """
    described = described_options("bandit", ENVIRONMENTS, name, options)
    entropy = [list(ENVIRONMENTS).index(name), as_count("seed", seed, 0)]
    rng = np.random.default_rng(np.random.SeedSequence(entropy))
    for redraws in range(MAX_REDRAWS):
        bandit = ENVIRONMENTS[name](rng, **options)
        value, utilities = bandit.evaluate(bandit.optimal_policy())
        binding = np.all(utilities <= bandit.task.thresholds + 1e-9)
        if binding and value > bandit.evaluate(bandit.task.incumbent)[0]:
            bandit.origin |= {"env": name, "variant": "", "seed": seed, "redraws": redraws, **described}
            return bandit
    raise ValueError(
        f"{name}: in none of {MAX_REDRAWS} draws do all limits bind: lower slack, raise dim, or state fewer limits"
    )


def finite(
    rng: np.random.Generator,
    *,
    dim: int = 5,
    num_arms: int = 50,
    slack: float = 0.3,
    noise: float = 0.5,
    num_constraints: int = 1,
) -> LinearBandit:
    """Return arms of norm 1/2 to 1 in random directions, unit θ; the incumbent plays the three of largest utility.

    Each utility after the first comes from a stream of its own. The incumbent's arms are then those of the largest sum.
    """
    as_count("num_arms", num_arms, 3)  # the incumbent plays three of them
    others = rng.spawn(num_constraints - 1)
    arms = _directions(rng, num_arms, dim) * rng.uniform(0.5, 1, size=(num_arms, 1))
    theta_r, theta_u = _directions(rng, 2, dim)
    if others:
        theta_u = np.vstack([theta_u, *(_directions(stream, 1, dim) for stream in others)])
    return _with_best(3, theta_r, theta_u, arms, noise=noise, slack=slack)


def _with_best(count: int, theta_r: Array, theta_u: Array, arms: Array, slack: float, **facts: Any) -> LinearBandit:
    """Return a bandit whose incumbent plays the `count` arms of largest utility and has the slack."""
    incumbent, several = np.zeros(len(arms)), theta_u.ndim > 1
    utilities = arms @ (theta_u.sum(axis=0) if several else theta_u)
    incumbent[np.argsort(utilities)[-count:]] = 1 / count
    threshold = theta_u @ (incumbent @ arms) - slack  # (m,) of several
    told = np.full(len(threshold), slack) if several else slack
    return LinearBandit(theta_r, theta_u, arms, threshold, incumbent, slack=told, **facts)


def ball(rng: np.random.Generator, *, dim: int = 5, slack: float = 0.3, noise: float = 0.5) -> LinearBandit:
    """Return the unit ball, unit θ; the incumbent is 0.8 of the action of largest utility and 0.2 of a random one."""
    return _convex(rng, Ellipsoid.ball(dim), dim, slack, noise)


def ellipsoid(rng: np.random.Generator, *, dim: int = 10, slack: float = 0.3, noise: float = 0.5) -> LinearBandit:
    """Return a random ellipsoid with half-axes between 1/2 and 1; θ and incumbent as for the ball."""
    V = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    M = V @ np.diag(rng.uniform(0.5, 1, size=dim) ** -2.0) @ V.T
    return _convex(rng, Ellipsoid((M + M.T) / 2), dim, slack, noise)


def _convex(rng: np.random.Generator, actions: Ellipsoid, dim: int, slack: float, noise: float) -> LinearBandit:
    theta_r, theta_u = _directions(rng, 2, dim)
    root = actions.root
    best = root @ root.T @ theta_u  # the action of largest utility, up to its length
    best /= np.linalg.norm(np.linalg.solve(root, best))
    aside = root @ _directions(rng, 1, dim)[0]
    incumbent = 0.8 * best + 0.2 * aside
    threshold = float(incumbent @ theta_u) - slack
    return LinearBandit(theta_r, theta_u, actions, threshold, incumbent, noise=noise, slack=slack)


def contexts(
    rng: np.random.Generator, *, dim: int = 5, num_arms: int = 20, slack: float = 0.3, noise: float = 0.5
) -> LinearBandit:
    """Return arms that change and repeat after 1,000 rounds; the first is the incumbent's, of utility b + ξ or more."""
    theta_r, theta_u = _directions(rng, 2, dim)
    arms = _directions(rng, NUM_CONTEXTS * num_arms, dim).reshape(NUM_CONTEXTS, num_arms, dim)
    arms *= rng.uniform(0.5, 1, size=(NUM_CONTEXTS, num_arms, 1))
    threshold = 0.3
    arms[:, 0] += (np.maximum(threshold + slack - arms[:, 0] @ theta_u, 0))[:, None] * theta_u
    long = np.linalg.norm(arms[:, 0], axis=1) > 1
    arms[long, 0] = theta_u * (threshold + slack + 1) / 2  # the lift left the unit ball: straight up θ_u does not
    incumbent = np.eye(1, num_arms)[0]
    return LinearBandit(
        theta_r, theta_u, lambda k: arms[k % NUM_CONTEXTS], threshold, lambda k: incumbent, noise=noise, slack=slack
    )


def catalogue(rng: np.random.Generator, *, num_items: int = 40, slack: float = 0.1) -> LinearBandit:
    """Return the items of a shop: popularity, price, novelty and four departments. The reward is a click.

    The utility is the margin. Cheap and popular items are clicked and earn little; the incumbent shows the items of
    best margin. The data are invented: features in [0, 1], click rates of 5 to 45 %, margins with noise.
    """
    as_count("num_items", num_items, 4)  # the incumbent shows four of them
    popularity, price, novelty = rng.beta(2, 3, size=(3, num_items))
    department = np.eye(4)[rng.integers(4, size=num_items)]
    arms = np.column_stack([popularity, price, novelty, department]) / 2
    theta_r = np.concatenate([[0.6, -0.4, 0.1], rng.uniform(0.25, 0.45, size=4)])
    theta_u = np.concatenate([[-0.1, 0.6, 0.1], rng.uniform(0.0, 0.3, size=4)])
    return _with_best(4, theta_r, theta_u, arms, noise=0.5, norm_bound=1.2, slack=slack, clicks=True)


def _directions(rng: np.random.Generator, number: int, dim: int) -> Array:
    """Return points uniform on the unit sphere, (number, d)."""
    drawn = rng.normal(size=(number, dim))
    directions: Array = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return directions


ENVIRONMENTS: dict[str, Callable[..., LinearBandit]] = {
    made.__name__: made for made in (finite, ball, ellipsoid, contexts, catalogue)
}
