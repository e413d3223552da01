"""What certifiers ask of their settings."""

from typing import Any

import numpy as np


def as_probability(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(f"{name} must be a number in (0, 1), e.g. 0.05, got {value!r}")
    return float(value)
