"""Changes of an agent in use: other thresholds, slacks or constants, by the rule that what was proved stays proved.

A bound L on V(π) does not depend on b, so it survives any change of b, also one that depends on data. The incumbent
keeps v = b + ξ of before; a person who knows better states another slack.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from episafe.checks import as_number, as_slack
from episafe.errors import Infeasible
from episafe.learning.constants import DERIVED, Constants
from episafe.problems.task import Constraint

Limits = tuple[tuple[float, ...], tuple[float | None, ...]]


@dataclass(frozen=True)
class Change:
    """What holds from here on.

    Attributes:
        thresholds: b of each constraint.
        slacks: ξ of each; None where it is not known.
        constants: those that are others than before, by name.
    """

    thresholds: tuple[float, ...]
    slacks: tuple[float | None, ...]
    constants: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> "Change":
        """What `as_json` gave."""
        thresholds = tuple(as_number("threshold", b) for b in said["thresholds"])
        constants = {str(name): value for name, value in said["constants"].items()}
        return cls(thresholds, tuple(map(as_slack, said["slacks"])), constants)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"thresholds": list(self.thresholds), "slacks": list(self.slacks), "constants": dict(self.constants)}


class Begun(NamedTuple):
    """What an agent was built with, before its first change."""

    task: Any
    constants: Constants | None
    fingerprint: str
    fingerprint_but_incumbent: str
    identity: dict[str, Any]


def changed_limits(task: Any, proved: Any, threshold: Any, slack: Any) -> Limits:
    """Thresholds and slacks that hold from now on; refused if the incumbent is not known to be above a threshold.

    Args:
        task: as it was.
        proved: what the incumbent is known to have of each constraint at least, where no slack is.
        threshold, slack: new ones, a number or one for each constraint; None for what stays.
    """
    m = task.num_constraints
    limits = [
        _changed(one, float(known), b, xi)
        for one, known, b, xi in zip(task.constraints, proved, _each(threshold, m), _each(slack, m), strict=True)
    ]
    return tuple(b for b, _ in limits), tuple(xi for _, xi in limits)


def _each(given: Any, num_constraints: int) -> list[Any]:
    """One value for each constraint."""
    if given is None or (num_constraints == 1 and np.ndim(given) == 0):
        return [given] * num_constraints
    if np.shape(given) != (num_constraints,):
        raise ValueError(f"give {num_constraints} numbers, one a constraint, got {given!r}")
    return list(given)


def _changed(one: Constraint, proved: float, threshold: Any, slack: Any) -> tuple[float, float | None]:
    b = one.threshold if threshold is None else as_number("threshold", threshold)
    if one.slack is None:
        if slack is not None:
            raise ValueError("the slack was not known when this began, and the incumbent is proved by its own episodes")
        if b > proved:
            raise Infeasible(
                f"the incumbent is proved to have {proved:.6g} and the threshold{one.of} would be {b:.6g}: wait until "
                "more is proved of it, or begin a new folder with another incumbent"
            )
        return b, None
    if slack is not None:
        return b, as_slack(slack)
    known = one.threshold + one.slack
    rest = known - b
    if not rest > 0:
        raise Infeasible(
            f"the incumbent is known to have {known:.6g} and the threshold{one.of} would be {b:.6g}: state the slack "
            "that it has above it, if somebody knows that, or begin a new folder with another incumbent"
        )
    return b, rest if b + rest <= known else math.nextafter(rest, 0.0)


def changed_constants(was: Constants, now: Any) -> dict[str, float]:
    """The constants that are others than before, by name."""
    if not isinstance(now, Constants):
        raise TypeError(f"constants must be es.Constants, got {now!r}: agent.constants.replace(C_r=…) makes some")
    before = asdict(was)
    return {name: value for name, value in asdict(now).items() if name not in DERIVED and value != before[name]}
