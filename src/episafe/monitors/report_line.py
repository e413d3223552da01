"""Reports in the order of their deployments, for tests that go from one episode to the next: drift, spell, residual.

A report waits here for those of the deployments before it. If more than LONGEST deployments are waiting, the oldest is
given up: it counts as missing for ever.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from episafe.errors import DamagedFile
from episafe.monitors.residual_test import ResidualData

LONGEST = 512
SAFE, WAITS, FEATURES = 1, 2, 4  # bits of an entry in the stored line


class Turn(NamedTuple):
    """A deployment in the line: whether the incumbent acts, or may; whether it is waited for; the incumbent's utility,
    NaN if that is missing, NOT_ITS if it did not act; what the residual test needs, None if that is missing; what it
    lacks to the threshold, g of `claim_wealth`, NaN where no check was passed."""

    incumbent: bool
    waits: bool = False
    utility: float = math.nan
    features: ResidualData | None = None
    lack: float = math.nan


class ReportLine:
    """The line.

    Attributes:
        first: the place of the first entry among all deployments.
    """

    def __init__(self) -> None:
        self.first = 0
        self._line: deque[Turn] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def expect(self, incumbent: bool, lack: float = math.nan) -> list[Turn]:
        """One more deployment, at the end, `lack` is the best that may come of it; those whose turn has come."""
        self._line.append(Turn(incumbent, waits=True, lack=lack))
        return self._due()

    def put(self, place: int, turn: Turn) -> list[Turn]:
        """What came of a deployment, or that nothing will, unless its turn is over; those whose turn has come."""
        if place >= self.first:
            self._line[place - self.first] = turn
        return self._due()

    def pass_by(self, count: int) -> None:
        """So many deployments whose turn came at once; the line must be empty."""
        self.first += count

    def _due(self) -> list[Turn]:
        """Those whose turn has come, taken out of the line."""
        found = []
        while self._line and (not self._line[0].waits or len(self._line) > LONGEST):
            found.append(self._line.popleft())
        self.first += len(found)
        return found

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """All of it as named arrays."""
        turns = self._line
        bits = [SAFE * turn.incumbent + WAITS * turn.waits + FEATURES * (turn.features is not None) for turn in turns]
        features = [turn.features for turn in turns if turn.features is not None]
        phi, cells, boxes = zip(*features, strict=True) if features else ([], [], [])
        return {
            "first": np.array([self.first]),
            "bits": np.array(bits, dtype=np.int64),
            "utilities": np.array([turn.utility for turn in turns], dtype=np.float64),
            "lacks": np.array([turn.lack for turn in turns], dtype=np.float64),
            "phi": np.concatenate(phi) if phi else np.zeros((0, 0, 0)),
            "cells": np.concatenate(cells) if cells else np.zeros((0, 0), dtype=np.int64),
            "boxes": np.concatenate(boxes) if boxes else np.zeros((0, 0), dtype=np.int64),
        }

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray[Any, Any]]) -> "ReportLine":
        """The line that `state` told of."""
        bits, utilities, lacks = (state[name].tolist() for name in ("bits", "utilities", "lacks"))
        features = [state[name] for name in ("phi", "cells", "boxes")]
        told = sum(bit & FEATURES != 0 for bit in bits)
        if not len(utilities) == len(lacks) == len(bits) or any(len(array) != told for array in features):
            raise DamagedFile("the monitors' state has a line of reports whose parts do not fit each other")
        made, k = cls(), 0
        made.first = int(state["first"][0])
        for bit, utility, lack in zip(bits, utilities, lacks, strict=True):
            seen: ResidualData | None = None
            if bit & FEATURES:
                seen = (features[0][k : k + 1], features[1][k : k + 1], features[2][k : k + 1])
                k += 1
            made._line.append(Turn(bool(bit & SAFE), bool(bit & WAITS), utility, seen, lack))
        return made
