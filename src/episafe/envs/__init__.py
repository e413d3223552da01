"""Environments by name: the paper's, real ones, those of other papers. To add one, name it in ENVIRONMENTS."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from episafe.core.checks import as_count, require
from episafe.envs.common import defaults_of, described_options
from episafe.envs.grids import box, cliff, rover
from episafe.envs.literature import dirichlet, jobs, media, queue, ring, riverswim, stepmix
from episafe.envs.paper import linear, streaming, tabular
from episafe.envs.real import battery, cloud, inventory, shop
from episafe.problems.linear import LinearCMDP

ENVIRONMENTS: dict[str, Callable[..., LinearCMDP]] = {made.__name__: made for made in (
    tabular, streaming, linear, inventory, battery, cloud, shop, media, ring, jobs, rover, box, cliff, riverswim,
    dirichlet, queue, stepmix,
)}  # fmt: skip
PAPER = {name: ENVIRONMENTS[name] for name in ("tabular", "streaming", "linear")}


def make(name: str, seed: int = 0, variant: Literal["released", "text"] = "released", **options: object) -> LinearCMDP:
    """Return the environment `name`, drawn with `seed`.

    Args:
        name: "tabular", "streaming" or "linear", the paper's; "inventory", "battery", "cloud" or "shop"; "media",
            "ring", "jobs", "rover", "box", "cliff", "riverswim", "dirichlet", "queue" or "stepmix", of other papers.
        seed: the same seed gives the same problem. Of those of other papers only "dirichlet" and "stepmix" are random.
        variant: "released" follows the code behind the published figures, "text" the words of the paper. Only the
            paper's environments have two variants.
        options: the environment's own parameters, e.g. `num_states=20`; `episafe list` prints them.

    Example:
        >>> import episafe as es
        >>> es.make("linear", seed=1, num_states=50).task.num_states
        50
    """
    described = described_options("environment", ENVIRONMENTS, name, options)
    require(variant in ("released", "text"), f'variant must be "released" or "text", got {variant!r}', ValueError)
    seed, given = as_count("seed", seed, 0), options | {"variant": variant} if name in PAPER else options
    made = ENVIRONMENTS[name](np.random.default_rng(seed), **given)
    H, S, A, _ = made.P.shape
    made.origin = {"env": name, "seed": seed, "variant": variant, **described, **made.origin, "H": H, "S": S, "A": A}
    return made


def options_of(name: str) -> dict[str, object]:
    """Return the parameters of an environment with their defaults."""
    return defaults_of(ENVIRONMENTS[name])
