"""The confidence radius C of a bandit's regression as it grows; learning/bandit_radius.py says which are proved."""

import math
from typing import NamedTuple

from episafe.kernels.compilation import kernel


class Radius(NamedTuple):
    """C = offset + noise·√(per_log_det·ln det Λ + per_log_count·ln(1 + n) + constant), for n < limit observations."""

    offset: float
    noise: float
    per_log_det: float
    per_log_count: float
    constant: float
    limit: float


@kernel
def radius_now(radius, log_det, count):  # type: ignore[no-untyped-def]
    """C after `count` observations."""
    growing = radius.per_log_det * log_det + radius.per_log_count * math.log(1.0 + count)
    return radius.offset + radius.noise * math.sqrt(growing + radius.constant)
