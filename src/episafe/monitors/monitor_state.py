"""What monitors know of deployments, reports and alarms; and all that they remember, as named arrays and back."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from episafe.errors import DamagedFile
from episafe.monitors.residual_test import ResidualData
from episafe.monitors.statements import Watched
from episafe.storage.state_reader import State

INFINITE = ("ends", "utilities", "lacks", "promise")  # entries that may be infinite or NaN: nothing is known yet
GROWING = ("alarms.", "line.", "waiting")  # entries of any length
COLUMNS = {"what": np.str_, "says": np.str_, "after": np.int64, "halts": np.bool_}  # of alarms
SAFE, WAITS, FEATURES = 1, 2, 4  # bits of a turn in the line of reports


@dataclass(frozen=True)
class Alarm:
    """A contradiction between the data and what a monitor watches. Each monitor raises its alarm once, until a
    person lets the agent go on.

    Attributes:
        what: which monitor.
        says: what is contradicted, by which figures, in words.
        after: how many episodes had been watched since the monitors began, or began anew, this one included.
        halts: whether exploration should stop: `session.halt(alarm.says)`.
    """

    what: Watched
    says: str
    after: int
    halts: bool = True


def halt_reason(alarms: Iterable[Alarm]) -> str:
    """Why to stop exploring, in words; "" if no alarm asks for it."""
    return "; ".join(alarm.says for alarm in alarms if alarm.halts)


def in_words(alarms: Iterable[Alarm]) -> str:
    """Every alarm, as a record says it; "none" where there is none."""
    return "; ".join(f"{alarm.what} after {alarm.after}: {alarm.says}" for alarm in alarms) or "none"


class Coin(NamedTuple):
    """The coin of a mixture: the weights of its components, which of them are the incumbent, and the component that
    was known last when it was tossed, −1 if none was."""

    weights: tuple[float, ...]
    safe: tuple[bool, ...]
    before: int


class Expected(NamedTuple):
    """What is known of a deployment before its report comes.

    `who` has the bits of `utility_tests`, INCUMBENT where it acts, or may; `bound` is that of its plan; `sigma` of its
    utility, where that is noisy; `coin` is the one that the report will tell of, if any; `place` among all deployments.
    """

    who: int
    bound: float
    sigma: float = 0.0
    coin: Coin | None = None
    place: int = 0


class ReportSummary(NamedTuple):
    """What a report says: the total utility, NaN if it does not count; which component acted, None if it does not say;
    what the residual test needs, None if it does not say; what is outside its range, in words."""

    utility: float
    component: int | None = None
    features: ResidualData | None = None
    outside: str = ""


class Turn(NamedTuple):
    """A deployment in the line: whether the incumbent acts, or may; whether it is waited for; the incumbent's utility,
    NaN if that is missing, NOT_ITS if it did not act; what the residual test needs, None if that is missing; what it
    lacks to the threshold, g of `claim_wealth`, NaN where no check was passed."""

    incumbent: bool
    waits: bool = False
    utility: float = math.nan
    features: ResidualData | None = None
    lack: float = math.nan


def stored(watch: Any) -> State:
    """All that decides future alarms of a `Watch`."""
    arrays = {name: array.copy() for name, array in _arrays(watch)}
    for name, dtype in COLUMNS.items():
        arrays[f"alarms.{name}"] = np.array([getattr(alarm, name) for alarm in watch.alarms], dtype=dtype)
    arrays |= {f"line.{name}": array for name, array in _stored_line(watch.line).items()}
    arrays["waiting"] = np.frombuffer(json.dumps(list(watch.waiting.items())).encode(), np.uint8)
    arrays["promise"] = np.array([watch.delta, *watch.promise])
    return arrays


def restore(watch: Any, state: State) -> None:
    """Let a `Watch` that was built alike go on from what `stored` gave."""
    ours, state = stored(watch), {"past": np.zeros(2, dtype=np.int64), **state}  # earlier versions never began anew
    for name in ours.keys() | state.keys():
        if name not in state or name not in ours:
            raise DamagedFile(f"the monitors' state {'lacks' if name in ours else 'has an unknown'} {name!r}")
        _check(name, state[name], ours[name])
    if not np.array_equal(state["promise"], ours["promise"], equal_nan=True):
        raise ValueError("the state is of monitors for another task or delta: build them as they were")
    first, turns, waiting = int(state["line.first"][0]), _turns(state), _waiting(state["waiting"])
    for name, array in _arrays(watch):
        array[...] = state[name]
    columns = [state[f"alarms.{name}"].tolist() for name in COLUMNS]
    watch.alarms = [Alarm(*row) for row in zip(*columns, strict=True)]
    watch.line.first, watch.waiting = first, waiting
    watch.line.turns.clear()
    watch.line.turns.extend(turns)


def _arrays(watch: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    yield from _named("utilities", watch.seen)
    yield "last_coin", watch.last_coin
    yield "past", watch.past
    yield from _named("spell", watch.spell)
    if watch.residual is not None:
        yield from _named("residual", watch.residual.seen)


def _stored_line(line: Any) -> State:
    """The line of reports."""
    turns = line.turns
    bits = [SAFE * turn.incumbent + WAITS * turn.waits + FEATURES * (turn.features is not None) for turn in turns]
    features = [turn.features for turn in turns if turn.features is not None]
    phi, cells, boxes = zip(*features, strict=True) if features else ([], [], [])
    return {
        "first": np.array([line.first]),
        "bits": np.array(bits, dtype=np.int64),
        "utilities": np.array([turn.utility for turn in turns], dtype=np.float64),
        "lacks": np.array([turn.lack for turn in turns], dtype=np.float64),
        "phi": np.concatenate(phi) if phi else np.zeros((0, 0, 0)),
        "cells": np.concatenate(cells) if cells else np.zeros((0, 0), dtype=np.int64),
        "boxes": np.concatenate(boxes) if boxes else np.zeros((0, 0), dtype=np.int64),
    }


def _turns(state: State) -> list[Turn]:
    """The turns in the line of reports."""
    bits, utilities, lacks = (state[f"line.{name}"].tolist() for name in ("bits", "utilities", "lacks"))
    features = [state[f"line.{name}"] for name in ("phi", "cells", "boxes")]
    told = sum(bit & FEATURES != 0 for bit in bits)
    if not len(utilities) == len(lacks) == len(bits) or any(len(array) != told for array in features):
        raise DamagedFile("the monitors' state has a line of reports whose parts do not fit each other")
    turns, k = [], 0
    for bit, utility, lack in zip(bits, utilities, lacks, strict=True):
        seen: ResidualData | None = None
        if bit & FEATURES:
            seen = (features[0][k : k + 1], features[1][k : k + 1], features[2][k : k + 1])
            k += 1
        turns.append(Turn(bool(bit & SAFE), bool(bit & WAITS), utility, seen, lack))
    return turns


def _named(prefix: str, value: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The arrays of nested named tuples, by dotted paths."""
    if isinstance(value, np.ndarray):
        yield prefix, value
    else:
        for name, part in value._asdict().items():
            yield from _named(f"{prefix}.{name}", part)


def _check(name: str, given: Any, ours: np.ndarray[Any, Any]) -> None:
    alike = isinstance(given, np.ndarray) and given.dtype.kind == ours.dtype.kind and given.ndim == ours.ndim
    if not alike or (not name.startswith(GROWING) and given.shape != ours.shape):
        raise DamagedFile(f"the monitors' state has {name!r} of another kind or shape")
    infinite = name.rsplit(".", 1)[-1] in INFINITE
    if given.dtype.kind == "f" and not (infinite or np.isfinite(given).all()):
        raise DamagedFile(f"the monitors' state has a number in {name!r} that is not finite")


def _waiting(given: np.ndarray[Any, Any]) -> dict[int, Expected]:
    """The deployments that are waited for, of what `state` says."""
    try:
        found = {}
        for number, (who, bound, sigma, coin, place) in json.loads(given.tobytes()):
            tossed = None if coin is None else Coin(tuple(coin[0]), tuple(coin[1]), coin[2])
            found[number] = Expected(who, bound, sigma, tossed, place)
    except (TypeError, ValueError, IndexError) as error:
        raise DamagedFile(f"the monitors' state does not say what is waited for ({error})") from error
    return found
