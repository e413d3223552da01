"""Small problems that the batteries run on: listed states, linear features, states by functions, bandits."""

from typing import Any

import numpy as np

import episafe as es
from episafe.problems.listed_move import ListedMove

HORIZON = 3
CORNERS = ((0.0, "left"), (0.5, "left"), (1.0, "left"), (0.5, "right"))


def small_problems() -> dict[str, Any]:
    """One problem of each kind that an agent may be built for, by name."""
    return {"one-hot": one_hot(), "features": linear(), "functions": by_functions()}


def small_bandits() -> dict[str, es.bandits.LinearBandit]:
    """A bandit with listed arms and one on a ball; both tell the incumbent's slack exactly."""
    theta_r, theta_u = [0.7, 0.1], [-0.2, 0.8]
    arms = [[0.0, 1.0], [1.0, 0.0], [0.6, 0.6], [-0.5, 0.2]]
    return {
        "arms": es.bandits.LinearBandit(theta_r, theta_u, arms, 0.4, [1.0, 0.0, 0.0, 0.0], noise=0.1),
        "ball": es.bandits.LinearBandit(theta_r, theta_u, es.bandits.Ball(dim=2), 0.4, [0.0, 1.0], noise=0.1),
    }


def one_hot(seed: int = 0, num_states: int = 3, share: float = 0.7) -> es.LinearCMDP:
    """A random problem with b = share · (largest utility); what pays in reward mostly costs utility."""
    rng = np.random.default_rng(seed)
    shape = (HORIZON, num_states, 2)
    P, reward = rng.dirichlet(np.ones(num_states), shape), rng.random(shape)
    return _with_threshold(share, P, reward, np.clip(1 - reward + 0.3 * rng.normal(size=shape), 0, 1))


def linear(seed: int = 0, num_states: int = 6, dim: int = 3, share: float = 0.7) -> es.LinearCMDP:
    """The same with P_h(s'|s,a) = μ_h(s')ᵀφ(s,a), reward and utility linear in φ too."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(dim, 0.5), (num_states, 2))
    mu = rng.dirichlet(np.ones(num_states), (HORIZON, dim))
    weights = rng.random((HORIZON, dim))
    reward, utility = (np.moveaxis(phi @ theta.T, -1, 0) for theta in (weights, 1 - weights))
    return _with_threshold(share, np.einsum("hdt,sad->hsat", mu, phi), reward, utility, phi)


def exogenous(seed: int = 0, num_states: int = 3, share: float = 0.7) -> es.LinearCMDP:
    """A random problem whose chance is exogenous, one of three values a step, whatever the state."""
    rng = np.random.default_rng(seed)
    shape = (HORIZON, num_states, 2, 3)
    rewards = rng.random(shape)
    utilities = np.clip(1 - rewards + 0.3 * rng.normal(size=shape), 0, 1)
    move = ListedMove(("a", "b", "c"), rng.integers(num_states, size=shape), rewards, utilities)
    law = np.repeat(rng.dirichlet(np.ones(3), (HORIZON, 1)), num_states, axis=1)
    return _with_threshold(share, *move.means(law), move=move, law=law)


def _with_threshold(share: float, P: Any, reward: Any, utility: Any, phi: Any = None, **told: Any) -> es.LinearCMDP:
    free = es.LinearCMDP(P, reward, utility, phi=phi, threshold=-1.0)
    largest = free.evaluate(free.task.safe_policy)[1]
    return es.LinearCMDP(P, reward, utility, phi=phi, threshold=share * largest, **told)


def by_functions() -> es.SampledCMDP:
    """States are tuples of a number and a word, and nobody lists them; action 0 is safe and earns little."""

    def features(state: Any) -> Any:
        x = np.array([state[0], 1.0, float(state[1] == "left")]) / np.sqrt(3)
        return np.kron(np.eye(2), x)

    def sample(h: int, state: Any, action: int, rng: np.random.Generator) -> Any:
        return CORNERS[min(int(rng.integers(4)) + action, 3)]

    return es.SampledCMDP(
        features,
        reward=lambda h, state: np.array([0.2, 0.5 + state[0] / 2]),
        utility=lambda h, state: np.array([0.9, 0.4]),
        sample=sample,
        horizon=HORIZON,
        num_actions=2,
        initial_state=CORNERS[0],
        threshold=1.5,
        safe_policy=lambda h, state: np.array([1.0, 0.0]),
        slack=1.0,
    )
