"""Batches of a simulated run: episodes, the plans they began with, and what the run needs to go on from there."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.agents.base import Episode
from episafe.problems.sampled import AnyTask
from episafe.problems.task import Task
from episafe.runs.run import SOURCES, Run
from episafe.runs.tape import SampledTape, StateHash, Tape, num_bytes, numbers, rows_of
from episafe.storage.audit_trail import Deployed
from episafe.storage.frames import Frame
from episafe.storage.json_values import from_text

GENERATORS = ("choices", "transitions", "coin")


def batch_of(run: Run, tape: Tape | SampledTape, start: int, stop: int, num_log_dets: int) -> dict[str, NDArray[Any]]:
    """Episodes `start` to `stop` of a run as arrays; of each new plan, one row with where it `begins`."""
    facts = run.facts
    before = facts.plan_ids[start - 1 : stop - 1] if start else np.r_[-1, facts.plan_ids[: stop - 1]]
    begins = np.flatnonzero(facts.plan_ids[start:stop] != before)
    at = start + begins
    arrays = {
        **tape.episodes(start, stop),
        "begins": begins,
        "plans": facts.plan_ids[at],
        "sources": facts.sources[at],
        "bounds": facts.bounds[at],
        "values": facts.values[at],
        "log_dets": np.array([tape.log_dets(k, num_log_dets) for k in at.tolist()]).reshape(len(at), num_log_dets),
    }
    if run.totals is not None:
        arrays["totals"] = run.totals[start:stop]
    if run.coins is not None:
        arrays["components"] = run.coins.components[start:stop].astype(np.uint8)
        arrays["weights"] = run.coins.weights[at]
    return arrays


def deployments(arrays: dict[str, NDArray[Any]], start: int, state: StateHash) -> Iterator[Deployed]:
    """What the trail says of the plans of a batch; `state` goes on by its episodes."""
    rows, position = rows_of(arrays), 0
    columns = [arrays[name].tolist() for name in ("begins", "plans", "sources", "bounds", "log_dets")]
    for i, (begin, plan, source, (lam, bound), known) in enumerate(zip(*columns, strict=True)):
        _add(state, rows, position, begin)
        position = begin
        besides = {"weights": arrays["weights"][i].tolist()} if "weights" in arrays else {}
        yield Deployed(plan, start + begin, SOURCES[source], lam, bound, start + begin, known, state.now(), besides)
    _add(state, rows, position, len(rows))


def _add(state: StateHash, rows: list[bytes] | NDArray[np.uint8], start: int, stop: int) -> None:
    if start < stop:
        state.add(b"".join(rows[start:stop]) if isinstance(rows, list) else rows[start:stop])


def length(frame: Frame) -> int:
    """How many episodes a batch has."""
    return len(frame.arrays["ends" if "ends" in frame.arrays else "rows"])


def episodes_of(frame: Frame, task: AnyTask) -> Iterator[Episode]:
    """The episodes of a batch, as the agent saw them."""
    arrays = frame.arrays
    if "ends" in arrays:
        for text in rows_of(arrays):
            states, actions, rewards, utilities, component = from_text(bytes(text).decode())
            yield Episode(states, actions, rewards, utilities, component)
        return
    mixed = arrays["components"].tolist() if "components" in arrays else None
    assert isinstance(task, Task)
    H, wide, narrow = task.horizon, num_bytes(task.num_states), num_bytes(task.num_actions)
    if arrays["rows"].shape[1] != (H + 1) * wide + H * narrow:
        raise ValueError("its episodes are of another length")
    states = numbers(arrays["rows"], 0, H + 1, wide)
    actions = numbers(arrays["rows"], (H + 1) * wide, H, narrow)
    for k in range(len(states)):
        yield Episode(states[k], actions[k], component=None if mixed is None else mixed[k])


def fill(run: Run, frame: Frame) -> None:
    """Write the rows of a batch into the columns of a run."""
    arrays, start = frame.arrays, frame.notes["episode"]
    stop = start + length(frame)
    facts, which = run.facts, np.zeros(stop - start, dtype=np.int64)
    which[arrays["begins"]] = 1
    which = np.cumsum(which) - 1  # −1: the plan of the batch before
    for column, name in ((facts.plan_ids, "plans"), (facts.sources, "sources"), (facts.bounds, "bounds"),
                         (facts.values, "values")):  # fmt: skip
        rows = arrays[name]
        carried = column[start - 1 : start] if start else rows[:1]
        column[start:stop] = np.concatenate([carried, rows])[which + 1]
    if run.totals is not None:
        run.totals[start:stop] = arrays["totals"]
    if run.coins is not None:
        run.coins.components[start:stop] = arrays["components"]
        run.coins.weights[start:stop] = arrays["weights"][which]


def generators(run: Run) -> dict[str, Any]:
    """The states of the run's streams."""
    return {name: getattr(run, name).bit_generator.state for name in GENERATORS}


def set_generators(run: Run, states: dict[str, Any]) -> None:
    """Put the run's streams where they were."""
    for name in GENERATORS:
        getattr(run, name).bit_generator.state = states[name]
