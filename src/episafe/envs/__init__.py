"""Environments by name, the paper's and real ones. To add one: write its constructor beside these and name it here."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from episafe.checks import as_whole
from episafe.envs.battery import battery
from episafe.envs.cloud import cloud
from episafe.envs.inventory import inventory
from episafe.envs.linear import linear
from episafe.envs.options import said_options
from episafe.envs.streaming import streaming
from episafe.envs.tabular import tabular
from episafe.envs.threshold_draw import Variant
from episafe.problems.cmdp import LinearCMDP

PAPER: dict[str, Callable[..., LinearCMDP]] = {
    "tabular": tabular,
    "streaming": streaming,
    "linear": linear,
}
ENVIRONMENTS: dict[str, Callable[..., LinearCMDP]] = {
    **PAPER,
    "inventory": inventory,
    "battery": battery,
    "cloud": cloud,
}


def make(name: str, seed: int = 0, variant: Variant = "released", **options: Any) -> LinearCMDP:
    """The environment `name`, drawn with `seed`.

    Args:
        name: "tabular", "streaming" or "linear", the paper's; "inventory", "battery" or "cloud".
        seed: of this draw; the same seed gives the same problem.
        variant: "released" follows the code behind the published figures, "text" the words of the paper; others than
            the paper's have one only.
        options: the environment's own parameters, e.g. `num_states=20`.

    Example:
        >>> import episafe as es
        >>> es.make("linear", seed=1, num_states=50).task.num_states
        50
    """
    if name not in ENVIRONMENTS:
        raise ValueError(f"no environment {name!r}; there are {', '.join(ENVIRONMENTS)}")
    if variant not in ("released", "text"):
        raise ValueError(f'variant must be "released" or "text", got {variant!r}')
    seed, known = as_whole("seed", seed, 0), options_of(name)
    for option in options:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}; it has {', '.join(known)}")
    origin = {"env": name, "seed": seed, "variant": variant, **said_options(options, known)}
    made = ENVIRONMENTS[name](np.random.default_rng(seed), variant, origin=origin, **options)
    made.origin |= {"H": made.task.horizon, "S": made.task.num_states, "A": made.task.num_actions}
    return made


def options_of(name: str) -> dict[str, Any]:
    """The parameters of an environment with their defaults."""
    parameters = inspect.signature(ENVIRONMENTS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in ("rng", "variant", "origin")}
