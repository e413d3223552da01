"""How an agent was built, as plain values, so that it can be built again for the same problem. Nothing is executed.

Agents of your own, and policies by functions, have no recipe: hand them over once more where one is needed.
"""

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.agents.base import Agent
from episafe.agents.dope import DOPE, Radius
from episafe.agents.fixed import Fixed
from episafe.agents.ghosh2024 import Ghosh2024
from episafe.agents.opse import OPSE
from episafe.certify import FreshData, Model, Observation
from episafe.deployment.folder import TOLD, check_file, file_hash
from episafe.errors import DamagedFile
from episafe.learning.constants import DERIVED, Constants
from episafe.learning.multiplier_search import Bisection, Sections, WarmStart
from episafe.learning.replanning import Doubling, Every
from episafe.learning.theory import Sizes
from episafe.problems.policy import TablePolicy
from episafe.problems.task import Constraint, Task
from episafe.storage.atomic_files import read_arrays, write_arrays

AGENTS = {kind.__name__: kind for kind in (OPSE, Ghosh2024, DOPE, Fixed)}
SETTINGS = {
    kind.__name__: kind
    for kind in (Every, Doubling, Bisection, WarmStart, Sections, Model, Observation, FreshData, Radius, Sizes)
}
Arrays = dict[str, NDArray[Any]]


def recipe(agent: Agent, own: Task | None) -> tuple[str, Arrays] | None:
    """The agent as JSON and arrays; None if it cannot be built again from these and the task `own`, if there is one."""
    if AGENTS.get(type(agent).__name__) is not type(agent) or not isinstance(agent.task, Task):
        return None
    arrays = {} if agent.task is own else _told(agent.task)
    if isinstance(agent, Fixed):
        arrays["policy"] = agent.policy.table()
    try:
        said = {name: _said(value) for name, value in _arguments(agent).items()}
    except TypeError:
        return None
    return json.dumps({"agent": type(agent).__name__, **said}), arrays


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


def rebuilt(text: str, arrays: Mapping[str, NDArray[Any]], own: Any) -> Agent:
    """The agent of a recipe, new."""
    try:
        said = json.loads(text)
        kind = AGENTS[said.pop("agent")]
        task = _task(arrays) if "reward" in arrays else own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who built it was warned
            arguments = {name: _read(value) for name, value in said.items()}
            if kind is Fixed:
                return Fixed(task, TablePolicy(arrays["policy"]), **arguments)
            return kind(task, **arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"the journal does not say how to build its agent ({error}): hand it over") from error


def _arguments(agent: Agent) -> dict[str, Any]:
    """What the agent's constructor was given, beyond the task."""
    names: tuple[str, ...]
    if isinstance(agent, Fixed):
        return {"label": agent.label}
    if isinstance(agent, DOPE):
        names = ("constants", "replan", "radius", "num_safe_episodes")
    elif isinstance(agent, OPSE):
        own = ("certifier",) if agent.certificate is not None else ("replan", "num_safe_episodes")
        names = ("constants", "search", *own)
    else:
        names = ("constants", "replan", "search")
    return {name: getattr(agent, name) for name in names}


def _told(task: Task) -> Arrays:
    names = ("reward", "utility", "initial_state", "threshold", "slack", "phi", "time_homogeneous")
    told = {name: np.asarray(getattr(task, name)) for name in names if getattr(task, name) is not None}
    return {**told, "safe_policy": task.safe_policy.table()}


def _task(arrays: Mapping[str, NDArray[Any]]) -> Task:
    H, S, A = arrays["reward"].shape
    slack = float(arrays["slack"]) if "slack" in arrays else None
    constraint = Constraint(arrays["utility"], float(arrays["threshold"]), slack)
    policy = TablePolicy(arrays["safe_policy"])
    start = int(arrays["initial_state"])
    homogeneous = bool(arrays["time_homogeneous"])
    return Task(H, S, A, arrays["reward"], arrays.get("phi"), start, constraint, policy, homogeneous)


def _said(value: Any) -> Any:
    """A setting as JSON: plain values as they are, settings by their name and fields."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    if isinstance(value, Constants) or SETTINGS.get(name) is type(value):
        return {"is": name} | {f.name: _said(getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"{value!r} cannot be written down")


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = {name: _read(field) for name, field in value.items() if name != "is"}
    if value["is"] != "Constants":
        return SETTINGS[value["is"]](**fields)
    derived = [fields.pop(name) for name in DERIVED]
    return Constants(**fields)._stamped(*derived)
