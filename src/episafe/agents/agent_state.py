"""An agent as named arrays, and back: all that decides later plans. One that was built alike goes on bit for bit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from episafe.agents import plan_arrays
from episafe.agents.changes import Change, apply
from episafe.certify.base import INCUMBENT
from episafe.certify.ordered_reports import OrderedReports
from episafe.learning.policy_arrays import PolicyArrays, restored_policies
from episafe.storage.atomic_files import read_arrays
from episafe.storage.json_values import as_text, from_text
from episafe.storage.state_reader import Saved, State, under
from episafe.types import HELD

VERSION = 3  # of the names and meanings of the entries
SAME = 2e-6  # of a probability: functions need not be right to the last bit


def fingerprint(agent: Any, but_incumbent: bool = False) -> str:
    """SHA-256 over the settings and what the task tells of an agent, as it was built; with its incumbent or without."""
    if agent._begun is not None:
        return agent._begun.fingerprint_but_incumbent if but_incumbent else agent._begun.fingerprint
    own, said = agent._own_policy(), agent._identity()
    policies = [] if own is None else [own]
    if but_incumbent:
        said = {name: one for name, one in said.items() if name != "safe_policy"}
    else:
        policies.insert(0, agent.task.safe_policy)
    return plan_arrays.digest([type(agent).__name__, said], agent.task.numbers(policies))


def stored(agent: Any) -> State:
    """All that decides later plans, as named arrays: plain numbers and text, copied.

    An agent that was built alike, for the same task, goes on from it bit for bit: see `restore`.
    """
    policies = PolicyArrays(agent.task, agent._own_policy(), agent.candidates)
    learned: State = agent._learned_state(policies)
    plans = plan_arrays.stored(agent.recent_plans(), policies)
    settings = plan_arrays.as_json(agent._identity())
    said = {"version": VERSION, "fingerprint": agent.fingerprint(), "settings": settings}
    then = {"information_then": agent.information_then, "learned": agent._learned, "round": agent.round}
    own = {"num_runs": agent.num_runs, "logs": np.array(agent.logs, dtype=np.str_), **_awaited(agent)}
    own |= _life(agent) | _tried(agent) | ({"outdated": True} if agent._outdated else {})
    return under("agent", {**said, **then, **own}) | learned | plans | policies.state()


def restore(agent: Any, state: Mapping[str, Any] | str | Path) -> None:
    """Go on, bit for bit, from what `state` gave or `save` wrote; the agent must be built alike, for the same task.

    What does not fit is a DamagedFile or, if it is of another agent, a ValueError; the agent is then unchanged.
    """
    saved = Saved(state if isinstance(state, Mapping) else read_arrays(Path(state))[0])
    _require_own(agent, saved.under("agent"), "the state" if isinstance(state, Mapping) else str(state))
    before = vars(agent).copy()
    try:
        _restore(agent, saved)
    except BaseException:
        vars(agent).clear()
        vars(agent).update(before)  # nothing was changed in place
        raise


def _restore(agent: Any, saved: Saved) -> None:
    own = saved.under("agent")
    promoted = _restore_life(agent, own)
    regression = agent._restore_learned(saved)
    policies = restored_policies(saved, agent.task, regression, agent._own_policy(), agent.candidates)
    agent._restore_plans(saved, policies, plan_arrays.restored(saved, policies, agent.task))
    shape = (0,) if agent._plan is None else agent._information().shape
    agent.information_then = own.numbers("information_then", shape)
    agent._learned, agent.round = bool(own.flags("learned", ())), own.whole("round")
    agent._outdated = own.has("outdated") and bool(own.flags("outdated", ()))
    agent.num_runs, agent.logs = own.whole("num_runs"), own.texts("logs", (None,)).tolist()
    _restore_awaited(agent, own)
    if promoted not in (INCUMBENT, *agent.bounds()):
        own.refuse("life", f"has {promoted!r} promoted, which is not on trial")
    agent._promote(promoted)
    _require_tried(agent, own)
    saved.end()


def _life(agent: Any) -> State:
    """What was promoted and changed; nothing where nothing was."""
    if agent.promoted == INCUMBENT and not agent.changes:
        return {}
    said = {"promoted": agent.promoted, "changes": [change.as_json() for change in agent.changes]}
    return {"life": np.array(json.dumps(said))}


def _restore_life(agent: Any, saved: Saved) -> str:
    """Begin anew as it was built, make the changes of a state, and return what is promoted in it."""
    promoted, changes = INCUMBENT, list[Change]()
    if saved.has("life"):
        try:
            said = json.loads(saved.text("life"))
            promoted, changes = str(said["promoted"]), [Change.read(one) for one in said["changes"]]
            agent._require_changeable(None)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            saved.refuse("life", f"cannot be read ({error})")
    if agent._begun is not None:
        agent.task = agent._begun.task
        agent._rebuild(agent.task, agent._begun.constants)
    agent.promoted, agent.changes = INCUMBENT, []
    agent._begin_trials()
    for change in changes:
        apply(agent, change)
    return promoted


def _tried(agent: Any) -> State:
    """The tables of the candidates on trial, where states are listed: another policy of one name is known by it."""
    names = sorted(agent.candidates.keys() & agent.bounds().keys()) if agent.candidates and agent.task.is_listed else []
    tables = [agent.candidates[name].table() for name in names]
    return {"tried": np.array(names, dtype=np.str_), "tables": np.array(tables)} if names else {}


def _require_tried(agent: Any, saved: Saved) -> None:
    """Refuse a candidate that acts otherwise than the one of its name did; states of before do not say how it did."""
    names = saved.texts("tried", (None,)).tolist() if saved.has("tried") else []
    tables = saved.numbers("tables", (len(names), *agent.task.safe_policy.table().shape)) if names else ()
    for name, table in zip(names, tables, strict=True):
        if name not in agent.candidates or not np.allclose(agent.candidates[name].table(), table, rtol=0.0, atol=SAME):
            saved.refuse("tables", f"are not what the candidate {name!r} does: one that changed is a new candidate")


def _awaited(agent: Any) -> State:
    """Numbers, plans and reports of the deployments that are awaited; "" where there is no report yet."""
    reports = agent._reports
    plans = [HELD if one is None or one[2] is None else one[2] for one in reports.waiting.values()]
    texts = ["" if one is None else as_text(agent.task.report_values(*one[1])) for one in reports.waiting.values()]
    return {
        "awaited": np.array(list(reports.waiting), dtype=np.int64),
        "awaited_plans": np.array(plans, dtype=np.int64),
        "awaited_reports": np.array(texts, dtype=np.str_),
        **({"awaited_ended": np.array(True)} if reports.ended else {}),
    }


def _restore_awaited(agent: Any, saved: Saved) -> None:
    numbers = saved.wholes("awaited", (None,), 0, 2**62).tolist()
    plans = saved.wholes("awaited_plans", (len(numbers),), HELD, 2**62).tolist()
    texts = saved.texts("awaited_reports", (len(numbers),)).tolist()
    agent._reports = OrderedReports()
    for number, plan, text in zip(numbers, plans, texts, strict=True):
        held = (number, agent.task.report_from(from_text(text)), None if plan == HELD else plan) if text else None
        agent._reports.waiting[number] = held
    agent._reports.ended = saved.has("awaited_ended") and bool(saved.flags("awaited_ended", ()))


def _require_own(agent: Any, saved: Saved, place: str) -> None:
    version = saved.whole("version", 1)
    if version != VERSION:
        remedy = "update it" if version > VERSION else "learn what it knew again"
        saved.refuse("version", f"is {version}, and this episafe knows {VERSION}: {remedy}")
    said, ours = saved.text("settings"), agent._identity()
    if saved.text("fingerprint") == agent.fingerprint():
        return
    names = ", ".join(plan_arrays.differing(said, ours)) or "what the task tells"
    raise ValueError(f"{place} is of another agent: {names} differ; build it as it was")
