"""What a request may cost before anything of it is believed: its size, its depth, its share of the service's time."""

import json
import math
import re
import time
from dataclasses import dataclass
from typing import Any

from episafe.checks import as_number

TEXT, BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL), re.compile(rb"[\[\]{}]")


@dataclass(frozen=True)
class RequestLimits:
    """What is borne.

    Attributes:
        body: bytes of a request.
        depth: of lists and objects inside each other.
        at_once: requests under way together; beyond that plans and actions are the incumbent's, and
            reports are sent away for a second.
        per_second: requests a second on average, and twice as many in a burst.
        seconds: a plan or an action may take; after that it is the incumbent's.
    """

    body: int = 1 << 20
    depth: int = 16
    at_once: int = 64
    per_second: float = 2000.0
    seconds: float = 2.0

    def __post_init__(self) -> None:
        for name in ("body", "depth", "at_once", "per_second", "seconds"):
            if as_number(name, getattr(self, name)) <= 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)!r}")


BORNE = RequestLimits()


class Bucket:
    """A bucket of permissions that fills by `rate` a second, up to two seconds' worth."""

    def __init__(self, rate: float) -> None:
        self._rate, self._left, self._then = rate, 2 * rate, time.monotonic()

    def take(self) -> bool:
        """Whether there is one more."""
        now = time.monotonic()
        self._left = min(2 * self._rate, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def read_json(body: bytes, depth: int) -> dict[str, Any]:
    """The object that a request holds; {} for an empty body. Anything else is a ValueError."""
    if not body.strip():
        return {}
    if _depth(body) > depth:
        raise ValueError(f"lists and objects more than {depth} deep")
    try:
        found = json.loads(body, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {type(found).__name__}")
    return found


def _depth(body: bytes) -> int:
    depth = deepest = 0
    for bracket in BRACKETS.findall(TEXT.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:20]} is too large")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found
