"""How an agent was built, as plain values, so that it can be built again for the same problem. Nothing is executed.

Agents of your own, and policies by functions, have no recipe: hand them over once more where one is needed.
"""

import dataclasses
import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.agents.base import Agent
from episafe.agents.dope import DOPE, Radius
from episafe.agents.fixed import Fixed
from episafe.agents.ghosh2024 import Ghosh2024
from episafe.agents.opse import OPSE
from episafe.certify import FreshData, Model, Observation
from episafe.errors import DamagedFile
from episafe.learning.constants import DERIVED, Constants
from episafe.learning.replanning import Doubling, Every
from episafe.learning.search import Bisection, Sections, WarmStart
from episafe.learning.theory import Sizes
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.policy import TablePolicy
from episafe.problems.task import Constraint, Task

AGENTS = {kind.__name__: kind for kind in (OPSE, Ghosh2024, DOPE, Fixed)}
SETTINGS = {
    kind.__name__: kind
    for kind in (Every, Doubling, Bisection, WarmStart, Sections, Model, Observation, FreshData, Radius, Sizes)
}
Arrays = dict[str, NDArray[Any]]


def recipe(agent: Agent, cmdp: Any) -> tuple[str, Arrays] | None:
    """The agent as JSON and arrays; None if it cannot be built again from these."""
    if not isinstance(cmdp, LinearCMDP) or AGENTS.get(type(agent).__name__) is not type(agent):
        return None
    arguments, arrays = _arguments(agent), _told(agent, cmdp)
    if isinstance(agent, Fixed):
        arrays["policy"] = agent.policy.table()
    try:
        said = {name: _said(value) for name, value in arguments.items()}
    except TypeError:
        return None
    return json.dumps({"agent": type(agent).__name__, **said}), arrays


def rebuilt(text: str, arrays: Mapping[str, NDArray[Any]], cmdp: LinearCMDP) -> Agent:
    """The agent of a recipe, new, for this problem."""
    try:
        said = json.loads(text)
        kind = AGENTS[said.pop("agent")]
        task = _task(arrays, cmdp)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who built it was warned
            arguments = {name: _read(value) for name, value in said.items()}
            if kind is Fixed:
                return Fixed(task, TablePolicy(arrays["policy"]), **arguments)
            return kind(task, **arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"journal.toml does not say how to build the agent ({error}): hand it over as agent=") from error


def _arguments(agent: Agent) -> dict[str, Any]:
    """What the agent's constructor was given, beyond the task."""
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


def _told(agent: Agent, cmdp: LinearCMDP) -> Arrays:
    """What the agent was told otherwise than the problem's own task says."""
    task = agent.task
    if task is cmdp.task:
        return {}
    assert isinstance(task, Task)
    told = {"safe_policy": task.safe_policy.table(), "slack": np.array(task.slack)}
    return told if task.phi is None else {**told, "phi": task.phi}


def _task(arrays: Mapping[str, NDArray[Any]], cmdp: LinearCMDP) -> Task:
    if "slack" not in arrays:
        return cmdp.task
    return dataclasses.replace(
        cmdp.task,
        phi=arrays.get("phi"),
        constraint=Constraint(cmdp.task.utility, cmdp.task.threshold, float(arrays["slack"])),
        safe_policy=TablePolicy(arrays["safe_policy"]),
    )


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
