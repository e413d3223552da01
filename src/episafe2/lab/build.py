"""Build problems and agents from names and options. An option that is not used is an error."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from episafe2 import envs
from episafe2.core.agent import AGENTS, Agent, Doubling, Every, Replanning
from episafe2.linear.constants import Constants

CONSTANTS = {one.name for one in fields(Constants) if one.init}
PUBLISHED = ("tabular", "streaming", "linear")  # environments that have published constants


def named_object(name: str) -> Any:
    """Return the object `module:name`; modules in the current folder are found too."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot import {name!r}: {error}. Give module:name of an importable object") from error


def make_problem(name: str, seed: int, options: Mapping[str, Any]) -> Any:
    """Return a problem by name (`es.make`), or by `module:name` of a function (seed, **options)."""
    if ":" not in name:
        return envs.make(name, seed, **options)
    found = named_object(name)
    return found(seed, **options) if callable(found) else found


def make_agent(name: str, problem: Any, num_episodes: int, options: Mapping[str, Any]) -> Agent:
    """Return an agent by its registered name, or by `module:Class`, with options of its constructor.

    `replan` is "every" or "doubling:GROWTH". Agents that read constants take `constants` ("published", "tuned" or
    "theory") and single constants by name, such as C_u. Raise ValueError for an option that the agent does not have.
    """
    facts, factory = known_agent(name)
    given = dict(options)
    taken = inspect.signature(factory).parameters
    arguments = facts.arguments(problem, num_episodes) if facts is not None else {}
    if isinstance(given.get("replan"), str):
        given["replan"] = parse_replan(given["replan"])
    if "constants" in taken:
        changes = {one: given.pop(one) for one in sorted(CONSTANTS & given.keys())}
        which = given.pop("constants", None)
        if changes or which is not None or "constants" not in arguments:
            published = "opse" if facts is None else facts.name
            chosen = choose_constants(which, problem, published, num_episodes)
            arguments["constants"] = chosen.replace(**changes) if changes else chosen
    for option in given:
        if option not in taken:
            known = ", ".join(one for one in taken if one not in ("problem", "task"))
            raise ValueError(f"{name} has no option {option!r}; its options are {known}")
    return factory(problem.task, **{**arguments, **given})


def known_agent(name: str) -> tuple[Any, Callable[..., Agent]]:
    """Return the facts (None for an agent from outside) and the class of an agent."""
    load_agents()
    if name in AGENTS:
        return AGENTS[name]
    if ":" not in name:
        raise ValueError(f"no agent {name!r}; there are {', '.join(sorted(AGENTS))}; or give module:Class")
    return None, named_object(name)


def load_agents() -> None:
    """Import every agent of the package, so that it is registered."""
    resolve_name("episafe2.algorithms")
    resolve_name("episafe2.certify")
    resolve_name("episafe2.bandits")


def choose_constants(which: str | None, problem: Any, agent: str, num_episodes: int) -> Constants:
    """Return constants by name; the published ones by default where there are any, else the tuned ones."""
    env = str(problem.origin.get("env", ""))
    has_published = env in PUBLISHED
    which = which or ("published" if has_published else "tuned")
    if which == "published":
        if not has_published:
            raise ValueError(f"there are no published constants for {env or 'this problem'}: use constants = 'tuned'")
        return Constants.paper(env, agent if agent in ("ghosh", "dope") else "opse")
    if which == "tuned":
        return Constants.tuned(problem.task)
    if which == "theory":
        return Constants.theory(problem.task, num_episodes=num_episodes, delta=0.05)
    raise ValueError(f"constants must be 'published', 'tuned' or 'theory', got {which!r}")


def parse_replan(text: str) -> Replanning:
    """Return the replanning rule of "every" or "doubling:GROWTH"."""
    rule, _, growth = text.partition(":")
    if rule == "every" and not growth:
        return Every()
    if rule == "doubling":
        return Doubling(float(growth))
    raise ValueError(f"replan must be 'every' or 'doubling:GROWTH', e.g. doubling:0.3, got {text!r}")
