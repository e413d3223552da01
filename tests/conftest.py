"""Small problems that many tests share."""

import random
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import episafe as es
import oracles

Drawn = tuple[es.LinearCMDP, dict[str, Any]]


@pytest.fixture(autouse=True)
def fixed_secrets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the secrets of sessions and environments from the test's name: no test passes or fails by chance."""
    drawn = random.Random(request.node.nodeid)
    monkeypatch.setattr(secrets, "token_hex", lambda size=16: drawn.randbytes(size).hex())
    monkeypatch.setattr(secrets, "randbelow", drawn.randrange)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def draw_cmdp() -> Callable[..., Drawn]:
    """Return a random problem with b = scale · (largest utility), and its raw arrays with explicit features."""

    def draw(
        rng: np.random.Generator, S: int = 4, A: int = 3, H: int = 3, d: int | None = None, scale: float = 0.6
    ) -> Drawn:
        raw = oracles.random_cmdp(rng, S, A, H, d)
        free = es.LinearCMDP(raw["P"], raw["reward"], raw["utility"], initial_state=raw["initial_state"], threshold=-1)
        largest = free.evaluate(free.task.incumbent)[1]
        cmdp = es.LinearCMDP(
            raw["P"],
            raw["reward"],
            raw["utility"],
            phi=None if d is None else raw["phi"],
            initial_state=raw["initial_state"],
            threshold=scale * largest,
        )
        return cmdp, raw

    return draw


def constants(**changes: float) -> es.Constants:
    """Return constants under which random data reach every branch of Algorithm 2."""
    base = {"C_r": 0.3, "C_u": 0.2, "C_dagger": 0.1, "B_dagger": 0.2, "kappa": 0.1, "lam_max": 300.0}
    return es.Constants(**{**base, "num_halvings": 25, **changes})
