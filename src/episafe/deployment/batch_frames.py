"""Batches of a simulation as arrays of a frame: episodes, the plans they began with, and the columns of its record."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from episafe.deployment.episode_tapes import TAPES, Arrays, ReportOf, Tape, episode_bytes, num_episodes, tape_of
from episafe.deployment.journal_folder import constraint_names, settings_of
from episafe.deployment.session_book import Book
from episafe.runs.record import Columns, Record
from episafe.storage.audit_trail import Trail
from episafe.storage.frames import Frame
from episafe.types import HELD, SOURCES, Amount

NOTES = {"episode", "round", "streams", "seconds", "halts", "names", "trail"}
ARRAYS = {"begins", "plans", "sources", "bounds", "values", "log_dets"}
SAMPLED = 8  # episodes of a batch
NONE_BEFORE = -2  # the plan before the first: no plan has this number


def batch_arrays(columns: Columns, tape: Tape, start: int, stop: int, num_known: int) -> Arrays:
    """Episodes `start` to `stop`; of each new plan, one row with where it `begins`."""
    facts = columns.facts
    before = facts.plan_ids[start - 1 : stop - 1] if start else np.r_[NONE_BEFORE, facts.plan_ids[: stop - 1]]
    new = facts.plan_ids[start:stop] != before
    if columns.optima is not None:  # arms change, and with them the incumbent that is held
        new |= facts.plan_ids[start:stop] == HELD
    begins = np.flatnonzero(new)
    at = start + begins
    known = np.array([tape.known(k, num_known) for k in at.tolist()]).reshape(len(at), num_known)
    arrays = {
        **tape.arrays(start, stop),
        "begins": begins,
        "plans": facts.plan_ids[at],
        "sources": facts.sources[at],
        "bounds": facts.bounds[at],
        "values": facts.values[at],
        "log_dets": known,
    }
    if columns.coins is not None:
        arrays["components"] = columns.coins.components[start:stop].astype(np.uint8)
        arrays["acting"] = columns.coins.acting[start:stop]
        arrays["weights"] = columns.coins.weights[at]
    return arrays | {name: column[start:stop] for name, column in columns.others().items()}


def fill(columns: Columns, arrays: Arrays, start: int, names: Sequence[str]) -> None:
    """Write the rows of a batch into the columns of a run; `names` are those of what has acted so far."""
    stop = start + num_episodes(arrays)
    facts, which = columns.facts, np.zeros(stop - start, dtype=np.int64)
    which[arrays["begins"]] = 1
    which = np.cumsum(which) - 1  # −1: the plan of the batch before
    for column, name in ((facts.plan_ids, "plans"), (facts.sources, "sources"), (facts.bounds, "bounds"),
                         (facts.values, "values")):  # fmt: skip
        rows = arrays[name]
        carried = column[start - 1 : start] if start else rows[:1]
        column[start:stop] = np.concatenate([carried, rows])[which + 1]
    columns.names = {name: number for number, name in enumerate(names)}
    if "weights" in arrays:
        columns.widen(arrays["weights"].shape[1])
        assert columns.coins is not None
        columns.coins.components[start:stop] = arrays["components"]
        columns.coins.acting[start:stop] = arrays["acting"]
        rows, n = arrays["weights"], arrays["weights"].shape[1]
        carried = columns.coins.weights[start - 1 : start, :n] if start else rows[:1]
        columns.coins.weights[start:stop, :n] = np.concatenate([carried, rows])[which + 1]
    for name, column in columns.others().items():
        column[start:stop] = arrays[name]


def unfinished_record(batches: list[Frame], head: Mapping[str, Any], optimum: float, threshold: Amount) -> Record:
    """The record that the batches of a simulation make up, as far as it came."""
    first, length = batches[0].arrays, sum(num_episodes(frame.arrays) for frame in batches)
    kinds = {"totals": "totals" in first, "changing": "optima" in first, "mixes": False}
    m = first["bounds"].shape[1] - 1
    columns = Columns(length, **kinds, num_constraints=m)
    for frame in batches:
        fill(columns, frame.arrays, frame.notes["episode"], frame.notes["names"])
    return columns.record(optimum, threshold, settings_of(head), constraint_names(head, m))


def is_batch(notes: Mapping[str, Any], arrays: Arrays) -> bool:
    """Whether a frame has all that a batch needs."""
    return NOTES <= notes.keys() and ARRAYS <= arrays.keys() and any(kind in arrays for kind in TAPES)


def planned(arrays: Arrays, i: int) -> dict[str, Any]:
    """What a batch says of its plan i."""
    lam, *bounds = arrays["bounds"][i].tolist()
    figures = {"plan": int(arrays["plans"][i]), "source": SOURCES[arrays["sources"][i]], "lam": lam, "bounds": bounds}
    weights = {"weights": arrays["weights"][i].tolist()} if "weights" in arrays else {}
    return {**figures, "log_dets": arrays["log_dets"][i].tolist(), **weights}


def padded(weights: Sequence[float], n: int) -> list[float]:
    """The weights of a plan, none of what is no mixture, as a batch has them where mixtures have up to n components."""
    known = list(weights) or [1.0][:n]
    return known + [0.0] * (n - len(known))


def trail_lines(arrays: Arrays, start: int, book: Book, halts: Mapping[int, str], trail: Trail) -> Iterator[str]:
    """The lines of the trail that a batch stands for: plans and halts; book and trail go on by them."""
    rows, done = episode_bytes(arrays), 0
    begins = {begin: i for i, begin in enumerate(arrays["begins"].tolist())}
    halted = {k - start + 1: reason for k, reason in halts.items()}
    for position in sorted(begins.keys() | halted.keys() | {num_episodes(arrays)}):
        if done < position:
            part = rows[done:position]
            book.learn(b"".join(part) if isinstance(part, list) else np.ascontiguousarray(part))
            done = position
        book.started = book.reported = start + position
        if position in halted:
            yield trail.event("halt", {"reason": halted[position], "time": ""})
        if position in begins:
            yield book.line(trail, planned(arrays, begins[position]))


def sampled_reports(arrays: Arrays, task: Any) -> list[tuple[Any, ...]]:
    """Some episodes of a batch, by which its incumbent is known; none where the task lists that."""
    if "texts" not in arrays:
        return []
    every = -(-num_episodes(arrays) // SAMPLED)
    return [report_of(None) for report_of in islice(tape_of(arrays).read(arrays, task), 0, None, every)]


def recorded_episodes(arrays: Arrays, task: Any) -> Iterator[tuple[dict[str, Any] | None, ReportOf]]:
    """Of each episode the plan that begins with it, None if it is the last one's, and its report."""
    begins = {begin: i for i, begin in enumerate(arrays["begins"].tolist())}
    for k, report_of in enumerate(tape_of(arrays).read(arrays, task)):
        plan = planned(arrays, begins[k]) if k in begins else None
        yield plan, report_of
