"""Environments by name: the paper's, real ones, those of other papers. To add one, name it below."""

from collections.abc import Callable
from typing import Any

import numpy as np

from episafe.checks import as_whole
from episafe.envs.battery import battery
from episafe.envs.cloud import cloud
from episafe.envs.grids import box, cliff, rover
from episafe.envs.inventory import inventory
from episafe.envs.literature import jobs, media, queue, ring, riverswim
from episafe.envs.options import defaults_of, said_options
from episafe.envs.paper_environments import linear, streaming, tabular
from episafe.envs.random_tables import dirichlet, stepmix
from episafe.envs.shop import shop
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Variant

ENVIRONMENTS: dict[str, Callable[..., LinearCMDP]] = {made.__name__: made for made in (
    tabular, streaming, linear, inventory, battery, cloud, shop, media, ring, jobs, rover, box, cliff, riverswim,
    dirichlet, queue, stepmix,
)}  # fmt: skip
PAPER = {name: ENVIRONMENTS[name] for name in ("tabular", "streaming", "linear")}


def make(name: str, seed: int = 0, variant: Variant = "released", **options: Any) -> LinearCMDP:
    """The environment `name`, drawn with `seed`.

    Args:
        name: "tabular", "streaming" or "linear", the paper's; "inventory", "battery", "cloud" or "shop"; "media",
            "ring", "jobs", "rover", "box", "cliff", "riverswim", "dirichlet", "queue" or "stepmix", of other papers.
        seed: of this draw; the same seed gives the same problem. Of those of other papers only "dirichlet"
            and "stepmix" are drawn; the others are what they are.
        variant: "released" follows the code behind the published figures, "text" the words of the paper; others than
            the paper's have one only.
        options: the environment's own parameters, e.g. `num_states=20`.

    Example:
        >>> import episafe as es
        >>> es.make("linear", seed=1, num_states=50).task.num_states
        50
    """
    if name not in ENVIRONMENTS:
        raise ValueError(
            f"no environment {name!r}; there are {', '.join(ENVIRONMENTS)}; one of your own is run by "
            "es.run(problem, agent, num_episodes, folder=…)"
        )
    if variant not in ("released", "text"):
        raise ValueError(f'variant must be "released" or "text", got {variant!r}')
    seed, said = as_whole("seed", seed, 0), said_options(name, options, options_of(name))
    given = options | {"variant": variant} if name in PAPER else options
    made = ENVIRONMENTS[name](np.random.default_rng(seed), **given)
    sizes = {"H": made.task.horizon, "S": made.task.num_states, "A": made.task.num_actions}
    made.origin = {"env": name, "seed": seed, "variant": variant, **said, **made.origin, **sizes}
    return made


def options_of(name: str) -> dict[str, Any]:
    """The parameters of an environment with their defaults."""
    return defaults_of(ENVIRONMENTS[name])
