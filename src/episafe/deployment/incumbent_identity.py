"""Which incumbent a journal is about. Everything certified stands on it, so it is not to be swapped unseen.

A table is part of the agent's fingerprint, and so is of a function what it does at the start. Of a function reports
show the rest: each is kept with the probabilities of what was done at the states that were visited, had the incumbent
acted. A sample of them is asked for again when a folder is opened, all of them in an audit. Or its user gives it a
version, and nothing else is asked.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from episafe.errors import DamagedFile
from episafe.storage.frames import UNREADABLE
from episafe.storage.json_values import as_text, from_text
from episafe.storage.state_reader import State

MOST = 256  # sightings that are asked for again when a folder is opened
DIGITS, TOLERANCE = 6, 2e-6  # of a probability: functions need not be right to the last bit


class IncumbentIdentity:
    """What a journal knows of its incumbent.

    Args:
        task: what knows it now.
        head: of the journal.

    Attributes:
        fingerprint: of the agent that it was part of when it was last accepted.
        version: as its user called it; "" where it is known by what it does.
        name: a hash of what stands for it, a text or a number; "" where it is a policy, or nobody noted it.
        replaced: why there was another one before, in order.
    """

    def __init__(self, task: Any, head: Mapping[str, Any]) -> None:
        self._task, self.fingerprint, self.version = task, head.get("fingerprint", ""), head.get("incumbent", "")
        self.name = head.get("incumbent_name", "")
        self.replaced: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._count, self._stride = 0, 1
        self._sample: list[tuple[int, str, float]] = []  # number, place and probability

    def noted(self, report: tuple[Any, ...]) -> dict[str, list[float | None]]:
        """What a frame says of it beside a report."""
        said = [] if self.version else self.sighted(report)
        return {"incumbent": said} if said else {}

    def sighted(self, report: tuple[Any, ...]) -> list[float | None]:
        """What it gives the actions of a report, at its states."""
        places = self._task.places(*report)
        probabilities = [self._probability(place) for place in places]
        self._see(places, probabilities)
        return probabilities

    def see(self, report: tuple[Any, ...], said: list[float | None]) -> None:
        """Remember what a frame says of it."""
        self._see(self._task.places(*report), said)

    def _see(self, places: list[Any], said: list[float | None]) -> None:
        """Remember some sightings: those whose number, hashed, is divisible by 2^n, for the n with which there is room
        for all of them."""
        for place, probability in zip(places, said, strict=True):
            self._count += 1
            if probability is not None and self._is_taken(self._count):
                self._sample.append((self._count, as_text(place), float(probability)))
        while len(self._sample) > MOST:
            self._stride *= 2
            self._sample = [row for row in self._sample if self._is_taken(row[0])]

    def _is_taken(self, number: int) -> bool:
        return zlib.crc32(number.to_bytes(8, "little")) % self._stride == 0

    def replace(self, notes: Mapping[str, Any]) -> None:
        """A person has put another one in its place: what was seen of it is of no interest any more."""
        self.fingerprint, self.version, self.name = notes["fingerprint"], notes["version"], notes.get("name", "")
        self.replaced.append(notes["reason"])
        self._begin()

    def otherwise(self, report: tuple[Any, ...], said: list[float | None]) -> str:
        """The first place where it does not do now what a frame says of it; "" if there is none."""
        sightings = zip(self._task.places(*report), said, strict=True)
        found = (self._differs(place, float(was)) for place, was in sightings if was is not None)
        return next((one for one in found if one), "")

    @property
    def is_known(self) -> bool:
        """Whether one can tell another one from it: by version, by name, or by what it does."""
        return bool(self.version or self.name) or self._task.kind != "rollout"

    def differing(self, fingerprint: str, version: str) -> str:
        """How the one that the task has differs from the one that is known here; "" if it does not."""
        if version != self.version:
            return f"its version is {version!r}, and was {self.version!r}"
        if self.name not in ("", self._task.incumbent_name) and not version:
            return "the name that stands for it is another"
        for _, place, was in self._sample:
            if said := self._differs(from_text(place), was):
                return said
        if fingerprint != self.fingerprint:
            return "its table, or what it does at the start, is another"
        return ""

    def _differs(self, place: Any, was: float) -> str:
        now = self._probability(place)
        if now is not None and abs(now - was) <= TOLERANCE:
            return ""
        h, state, action = place
        return f"at step {h}, state {state!r}, it takes action {action} with probability {now}, and took it with {was}"

    def _probability(self, place: Any) -> float | None:
        """What it gives an action at a state that was visited; None where it cannot say."""
        h, state, action = place
        try:
            return round(float(self._task.safe_policy.probabilities(h, state)[action]), DIGITS)
        except Exception:  # a report must not be lost because a function of the user fails
            return None

    def state(self) -> State:
        """All of it as named arrays."""
        said = [self.fingerprint, self.version, self.replaced, self._count, self._stride, self._sample, self.name]
        return {"incumbent": np.frombuffer(json.dumps(said).encode(), np.uint8)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        try:
            said = json.loads(state["incumbent"].tobytes())
            fingerprint, version, replaced, count, stride, sample, *name = said  # before, no name was noted
            rows = [(int(number), str(place), float(was)) for number, place, was in sample]
        except UNREADABLE as error:
            raise DamagedFile(
                f"what is known of the incumbent cannot be read ({error}): delete the checkpoint"
            ) from error
        self.fingerprint, self.version, self.replaced = fingerprint, version, replaced
        self.name = str(name[0]) if name else "" if replaced else self.name
        self._count, self._stride, self._sample = count, stride, rows
