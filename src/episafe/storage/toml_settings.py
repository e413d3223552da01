"""Flat settings as TOML: what `tomllib` reads, written without a dependency. And the versions behind a run."""

import hashlib
import json
import math
import platform
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Scalar = str | int | float
BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(settings: Mapping[str, Scalar]) -> str:
    """A flat mapping as TOML, one line a key."""
    return "".join(f"{_key(key)} = {_literal(value)}\n" for key, value in settings.items())


def _key(key: str) -> str:
    """A key as TOML has it: bare where it may be, else in quotes."""
    return key if BARE.fullmatch(key) else json.dumps(key)


@cache
def versions() -> dict[str, Scalar]:
    """What a number may depend on: episafe, with a hash of its sources, Python, numpy, numba."""
    from importlib.metadata import version  # who only reads a folder does not wait for it

    packages = {f"{name}_version": version(name) for name in ("episafe", "numpy", "numba")}
    return {**packages, "python_version": platform.python_version(), "source_version": _source_hash()}


def said_versions(said: Mapping[str, Any]) -> dict[str, Any]:
    """The versions among what a head or a frame says."""
    return {name: value for name, value in said.items() if name.endswith("_version")}


def other_versions(said: Mapping[str, Any]) -> str:
    """What to do where other versions wrote a journal than would go on with it; "" where they are the same."""
    were, are = said_versions(said), versions()
    names = sorted(name for name in were.keys() | are.keys() if were.get(name) != are.get(name))
    if not names:
        return ""
    told = ", ".join(f"{name.removesuffix('_version')} {were.get(name)}, now {are.get(name)}" for name in names)
    return (
        f". It was written by other versions ({told}): go on with those, or begin a new folder; `episafe audit` holds "
        "what was deployed against its check all the same"
    )


def _source_hash() -> str:
    """The first letters of a SHA-256 over this package: two states of one release are two versions."""
    found, package = hashlib.sha256(), Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:12]


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
