"""Build problems and agents from names and options. An option that is not used is an error."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from episafe import envs
from episafe.algorithms import registered_agents
from episafe.core.agent import Agent, AgentFacts, Doubling, Every, Replanning
from episafe.linear.constants import PUBLISHED, Constants

CONSTANTS = {one.name for one in fields(Constants) if one.init}
TUNED = "-tuned"  # NAME-tuned is the agent NAME with constants that were chosen on other problems, and Doubling(0.3)
CERTIFIERS = {"observation": "Observation", "hindsight": "Hindsight", "box": "Box", "fresh-data": "FreshData"}


def named_object(name: str) -> Any:
    """Return the object `module:name`; modules in the current folder are found too."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module, _, rest = name.partition(":")
    if not module or not rest:
        raise ValueError(f"{name!r} names no object: give module:name")
    try:
        return resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {name!r}: {error}. Give module:name of an importable object") from error


def make_problem(name: str, seed: int, options: Mapping[str, Any]) -> Any:
    """Return a problem by name (`es.make`), or by `module:name`: a problem, or a function that makes one.

    A function gets the seed if it has a parameter `seed`, and the options by name.
    """
    if ":" not in name:
        return envs.make(name, seed, **options)
    found = named_object(name)
    if not callable(found):
        check_options(name, options, ())
        return found
    taken = inspect.signature(found).parameters
    check_options(name, options, [one for one in taken if one != "seed"])
    return found(seed=seed, **options) if "seed" in taken else found(**options)


def make_agent(name: str, problem: Any, num_episodes: int, options: Mapping[str, Any]) -> Agent:
    """Return an agent by its registered name, or by `module:Class`, with options of its constructor.

    `replan` is "every" or "doubling:GROWTH"; `certifier` is the name of one. Agents that read constants run those of
    the paper, on its three environments as it ran them. Elsewhere take `NAME-tuned`, or the option `constants`:
    "tuned", "theory", or the environment of the paper whose constants are meant. Single constants are changed by name,
    such as C_u. Raise ValueError for an option that the agent does not have.
    """
    facts, factory = known_agent(name)
    if facts is not None and (reason := facts.needs(problem)):
        raise ValueError(f"{name} cannot play {problem.origin.get('env', 'this problem')}: {reason}")
    given, taken = dict(options), inspect.signature(factory).parameters
    if name.endswith(TUNED):
        given = {"constants": "tuned", "replan": "doubling:0.3"} | given
    if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        check_options(name, given, [*taken, *(CONSTANTS if "constants" in taken else ())])
    arguments = facts.arguments(problem, num_episodes) if facts is not None else {}
    if isinstance(given.get("replan"), str):
        given["replan"] = parse_replan(given["replan"])
    if isinstance(given.get("certifier"), str):
        given["certifier"] = make_certifier(given["certifier"], given.pop("delta", 0.05))
    if "constants" in taken:
        changes = {one: given.pop(one) for one in sorted(CONSTANTS & given.keys() - taken.keys())}
        which = given.pop("constants", None)
        required = taken["constants"].default is inspect.Parameter.empty and "constants" not in arguments
        if changes or which is not None or required:
            chosen = choose_constants(which, problem, name if facts is None else facts.name, num_episodes)
            arguments["constants"] = chosen.replace(**changes) if changes else chosen
    return factory(problem.task, **{**arguments, **given})


def check_options(name: str, given: Mapping[str, Any], taken: Any) -> None:
    """Raise ValueError for an option that a constructor does not have."""
    known = [one for one in taken if one not in ("self", "problem", "task", "bandit")]
    for option in given:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}; its options are {', '.join(known) or 'none'}")


def known_agent(name: str) -> tuple[AgentFacts | None, Callable[..., Agent]]:
    """Return the facts (None for an agent that is not registered) and the class of an agent."""
    if ":" in name:
        found = named_object(name)
        facts = found.facts if isinstance(found, type) and issubclass(found, Agent) else None
        return facts if facts is not None and facts.name else None, found
    agents = registered_agents()
    if name not in agents and name.endswith(TUNED) and name.removesuffix(TUNED) in agents:
        facts, factory = agents[name.removesuffix(TUNED)]
        if "constants" in inspect.signature(factory).parameters:
            return facts, factory
    if name not in agents:
        raise ValueError(f"no agent {name!r}; there are {', '.join(sorted(agents))}; or give module:Class")
    return agents[name]


def make_certifier(name: str, delta: float) -> Any:
    """Return a certifier by name."""
    if name not in CERTIFIERS:
        raise ValueError(f"no certifier {name!r}; there are {', '.join(CERTIFIERS)}")
    return resolve_name(f"episafe.certify:{CERTIFIERS[name]}")(delta=delta)


def choose_constants(which: str | None, problem: Any, agent: str, num_episodes: int) -> Constants:
    """Return constants by name; None: those of the paper, if the problem is of one of its environments, unchanged."""
    if which == "tuned":
        return Constants.tuned(problem.task, agent)
    if which == "theory":
        return Constants.theory(problem.task, num_episodes=num_episodes, delta=0.05)
    if which is not None and which not in PUBLISHED:
        raise ValueError(f"constants must be 'tuned', 'theory' or one of {', '.join(PUBLISHED)}, got {which!r}")
    if which is None:
        env, changed = problem.origin.get("env", "this problem"), problem.origin.get("options")
        if env not in PUBLISHED or changed:
            where = f"{env} with {changed}" if changed else env
            remedy = f"use the agent {agent}{TUNED}, or the option constants with 'tuned', 'theory' or one of"
            raise ValueError(f"{agent} has no published constants for {where}: {remedy} {', '.join(PUBLISHED)}")
        which = str(env)
    return Constants.paper(which, agent if agent in ("ghosh", "dope") else "opse")


def parse_replan(text: str) -> Replanning:
    """Return the replanning rule of "every" or "doubling:GROWTH"."""
    rule, _, growth = text.partition(":")
    try:
        if rule == "every" and not growth:
            return Every()
        if rule == "doubling":
            return Doubling(float(growth))
    except ValueError:
        pass
    raise ValueError(f"replan must be 'every' or 'doubling:GROWTH', e.g. doubling:0.3, got {text!r}")
