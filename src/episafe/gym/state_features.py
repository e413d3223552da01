"""φ of observations, with one more dimension for each state outside of the environment."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from episafe.checks import as_finite
from episafe.errors import InvalidProblem
from episafe.gym.spaces import num_values
from episafe.problems.features import OneHot, blocks
from episafe.types import Array

Described = tuple[Callable[[Any], Array] | None, int, Callable[[Any], Any] | None]


def describe_states(features: Any, first: Any, num_actions: int, space: Any, outside: Sequence[Hashable]) -> Described:
    """φ, None if it is one-hot; d; and what one-hot features tell apart.

    No two states outside share a dimension: in a model of all steps the start would then lead where the end does.
    """
    if isinstance(features, OneHot):
        size = features.size or num_values(space)
        if size is None:
            raise InvalidProblem(
                f"one-hot features need countable observations, and {space} has not: use Tiles, Fourier, RBF, "
                "Polynomial, or OneHot(cells, cells.size) with Cells"
            )
        return None, (size + len(outside)) * num_actions, features.cell
    if not callable(features) or isinstance(features, type):
        raise InvalidProblem(f"features must be OneHot() or a function of an observation: give one, not {features!r}")
    shape = _shape_of(features(first), num_actions)
    d = num_actions * shape[0] if len(shape) == 1 else shape[1]

    def wide(state: Any) -> Array:
        phi = np.zeros((num_actions, d + len(outside)))
        for i, one in enumerate(outside):
            if state is one:
                phi[:, d + i] = 1.0
                return phi
        found = as_finite(f"features at {state!r}", features(state), shape)
        phi[:, :d] = blocks(found, num_actions) if found.ndim == 1 else found
        return phi

    return wide, d + len(outside), None


def _shape_of(features: Any, num_actions: int) -> tuple[int, ...]:
    """(k,) of ψ or (A, d) of φ, as they are at the start."""
    given = np.asarray(features)
    if given.ndim not in (1, 2) or given.size == 0:
        raise InvalidProblem(
            f"features at the start have shape {given.shape}: return ψ (k,), or φ (A, d) with A = {num_actions} rows"
        )
    if given.ndim == 2 and given.shape[0] != num_actions:
        raise InvalidProblem(
            f"features at the start have shape {given.shape}: give one row for each of {num_actions} actions"
        )
    return given.shape
