"""Flat settings as TOML: what `tomllib` reads, written without a dependency. And the versions behind a run."""

import json
import math
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

import numpy as np

Scalar = str | int | float


def to_toml(settings: Mapping[str, Scalar]) -> str:
    """A flat mapping as TOML, one line a key."""
    return "".join(f"{key} = {_literal(value)}\n" for key, value in settings.items())


@cache
def versions() -> dict[str, Scalar]:
    """What a number may depend on: episafe, Python, numpy, numba."""
    packages = {f"{name}_version": version(name) for name in ("episafe", "numpy", "numba")}
    return {**packages, "python_version": platform.python_version()}


def _literal(value: Scalar | np.generic) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # TOML has nan, inf, -inf
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(value)  # a JSON string is a TOML basic string
