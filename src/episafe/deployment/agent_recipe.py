"""How an agent was built, as plain values, so that it can be built again for the same problem. Nothing is executed.

Agents that the registry does not know, policies by functions and tasks by functions have no recipe: hand them over once
more where one is needed.
"""

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from episafe.agents.base import Agent
from episafe.deployment.journal_folder import TOLD, agent_settings, check_file, file_hash
from episafe.errors import DamagedFile
from episafe.learning.constants import DERIVED, Constants
from episafe.problems.bandit_task import BanditTask
from episafe.problems.policy import TablePolicy
from episafe.problems.task import Task
from episafe.registry import known_class, labelled_class
from episafe.storage.atomic_files import read_arrays, write_arrays
from episafe.storage.frames import UNREADABLE

Arrays = dict[str, NDArray[Any]]


def recipe(agent: Agent, own: Any = None) -> tuple[str, Arrays] | None:
    """The agent as JSON and arrays; None if it cannot be built again from these and the task `own`, if there is one."""
    told = {} if agent.task is own else agent.task.as_arrays()
    if told is None or agent.candidates or known_class(type(agent).__name__) is not type(agent):
        return None
    given = agent.arguments()
    policies = {name: value.table() for name, value in given.items() if hasattr(value, "table")}
    try:
        said = {name: _said(value) for name, value in given.items() if name not in policies}
    except TypeError:
        return None
    return json.dumps({"agent": type(agent).__name__, **said}), told | policies


def write_recipe(folder: Path, made: tuple[str, Arrays] | None) -> dict[str, str | int | float]:
    """Write the arrays of a recipe, and return what the head of the journal says of it."""
    if made is None:
        return {}
    text, arrays = made
    if not arrays:
        return {"recipe": text}
    write_arrays(folder / TOLD, arrays, {})
    return {"recipe": text, "told_sha256": file_hash(folder / TOLD)}


def agent_of(folder: Path, head: Mapping[str, Any], own: Any = None) -> Agent:
    """The agent of a journal, new, for the task `own` or the one that the journal holds."""
    if "recipe" not in head:
        raise ValueError(f"{folder}: this agent cannot be built from its journal: hand a new one over as agent=")
    arrays = read_arrays(check_file(folder, TOLD, head))[0] if "told_sha256" in head else {}
    return rebuilt(head["recipe"], arrays, own)


def is_certified(head: Mapping[str, Any]) -> bool | None:
    """Whether the agent of a journal deploys only what passed the check; None where nobody here knows it."""
    try:
        kind = known_class(json.loads(head["recipe"])["agent"]) if "recipe" in head else None
        label = agent_settings(head)["agent"]
    except UNREADABLE:
        return None
    kind = kind or labelled_class(label)
    return None if kind is None else bool(kind.certified)


def rebuilt(text: str, arrays: Mapping[str, NDArray[Any]], own: Any) -> Agent:
    """The agent of a recipe, new."""
    try:
        said = json.loads(text)
        kind = known_class(said.pop("agent"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who built it was warned
            task = _task(arrays, own)
            told = {} if task is own else task.as_arrays()
            policies = {name: TablePolicy(table) for name, table in arrays.items() if name not in told}
            return kind(task, **policies, **{name: _read(value) for name, value in said.items()})
    except UNREADABLE as error:
        raise DamagedFile(f"the journal does not say how to build its agent ({error}): hand it over") from error


def _task(arrays: Mapping[str, NDArray[Any]], own: Any) -> Any:
    if "noise" in arrays:
        return BanditTask.from_arrays(arrays)
    return Task.from_arrays(arrays) if "reward" in arrays else own


def _said(value: Any) -> Any:
    """A setting as JSON: plain values as they are, settings by their name and fields."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    if known_class(name) is type(value):
        return {"is": name} | {f.name: _said(getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"{value!r} cannot be written down")


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = {name: _read(field) for name, field in value.items() if name != "is"}
    if value["is"] != "Constants":
        return known_class(value["is"])(**fields)
    derived = [fields.pop(name, None) for name in DERIVED]
    return Constants(**fields)._stamped(*derived)
