"""Agents by name, with the constants that go with a problem, and changes of them by name."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from episafe.agents.base import Agent
from episafe.agents.dope import DOPE
from episafe.certify import strongest
from episafe.envs import ENVIRONMENTS, PAPER, options_of
from episafe.learning.constants import Constants
from episafe.learning.planner import Every, Replanning
from episafe.learning.transition_counts import Radius
from episafe.problems.bandit import LinearBandit
from episafe.problems.cmdp import LinearCMDP
from episafe.registry import AGENTS, BANDIT_BUILDS, BUILDS, CERTIFIERS, NO_OPTIONS
from episafe.tools.calibration import scaled

SHOWN = 40  # letters of a value that an error repeats


def build_agent(
    name: str,
    cmdp: LinearCMDP,
    constants: Constants | None = None,
    replan: Replanning | None = None,
    *,
    num_episodes: int = 10_000,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Agent:
    """The agent `name` for `cmdp`.

    Args:
        name: as in the registry.
        cmdp: the problem.
        constants: where it reads any; by default `default_constants`.
        replan: when to plan again; by default as the constants say, or before every episode.
        num_episodes: K, for agents whose log terms have it.
        options: of the agent, by name, e.g. the multiplier `bonus`.
    """
    if name not in AGENTS:
        raise ValueError(f"no agent {name!r}; there are {', '.join(AGENTS)}")
    if constants is None and AGENTS[name].reads_constants:
        constants = default_constants(cmdp, name)
    replan = replan or (Every() if constants is None else constants.replan)
    return BUILDS[name].make(cmdp, options, constants=constants, replan=replan, num_episodes=num_episodes)


def chosen_agent(
    name: str,
    cmdp: Any,
    num_episodes: int,
    which: str = "published",
    changes: Mapping[str, Any] = NO_OPTIONS,
    replan: Replanning | None = None,
    multiplier: float = 1.0,
) -> Agent:
    """The agent `name` with the constants of that kind, some changed or options of its own given.

    All its bonuses are multiplied: for DOPE its box, on scales that are as they were; `bonus` where that is an option.
    """
    build, (changed, options, _) = BUILDS[name], split_changes("", name, dict(changes))
    constants = None
    if AGENTS[name].reads_constants:
        constants = choose(which, cmdp, name, num_episodes, **changed)
    if multiplier != 1 and name == "dope" and constants is not None:
        return DOPE(cmdp.task, constants, replan or constants.replan, radius=Radius(multiplier, multiplier))
    if multiplier != 1 and constants is not None:
        constants = scaled(constants, multiplier)
    elif multiplier != 1 and "bonus" in build.options:
        options = {**options, "bonus": multiplier * {**build.arguments(cmdp), **options}.get("bonus", 1.0)}
    elif multiplier != 1:
        raise ValueError(f"{name} has no bonus: leave out the multiplier")
    return build_agent(name, cmdp, constants, replan, num_episodes=num_episodes, options=options)


def build_bandit_agent(name: str, bandit: LinearBandit, num_rounds: int, delta: float, replan: Replanning) -> Agent:
    """The agent `name` for a bandit."""
    if name not in BANDIT_BUILDS:
        raise ValueError(f"no agent of bandits {name!r}; there are {', '.join(BANDIT_BUILDS)}")
    return BANDIT_BUILDS[name].make(bandit, num_rounds=num_rounds, delta=delta, replan=replan)


def certified(agent: str, certifier: str) -> str:
    """The name of `agent` under `certifier`."""
    for kind, name, known in (("agent", agent, AGENTS), ("certifier", certifier, CERTIFIERS)):
        if name not in known:
            raise ValueError(f"no {kind} {name!r}; there are {', '.join(known)}")
    if certifier != "model" and agent != "opse":
        raise ValueError(f"--certifier {certifier} is for --agent opse, not {agent}: leave out one of them")
    return agent if certifier == "model" else f"{agent}-{certifier}"


def asked_for(agent: str | None, certifier: str | None, *papers: str | None) -> str | None:
    """The name of the agent that a command line asks for; None for the recommended one.

    `papers` are options of the paper's agent: who gives one of these, or a certifier, and no agent means that one.
    """
    if agent is None and not certifier and not any(papers):
        return None
    return certified(agent or "opse", certifier or "model")


def recommended(task: Any) -> str:
    """The name of `es.OPSE(task)`."""
    return f"opse-{strongest(task).name}"


def choose(which: str, cmdp: LinearCMDP, agent: str, num_episodes: int, **changes: Any) -> Constants:
    """The published, the tuned or the theorem's constants for a problem, with some changed."""
    if which == "published":
        return default_constants(cmdp, agent, **changes)
    if which not in ("tuned", "theory"):
        raise ValueError(f'constants must be "published", "tuned" or "theory", got {which!r}')
    if agent != "opse":
        raise ValueError(f"{which} constants are for opse, not for {agent}: use published ones")
    task = cmdp.task
    made = Constants.tuned(task) if which == "tuned" else Constants.theory(task, num_episodes)
    return made.replace(**changes) if changes else made


def default_constants(cmdp: LinearCMDP, agent: str, **changes: Any) -> Constants:
    """The published constants of the problem's environment, tuned ones where none are, or those that only propose."""
    if AGENTS[agent].only_proposes:
        return Constants.proposing().replace(**changes)
    if cmdp.origin.get("env") not in PAPER:
        return Constants.tuned(cmdp.task).replace(**changes)
    return Constants.paper(str(cmdp.origin["env"]), AGENTS[agent].published_as).replace(**changes)


def parse_changes(changes: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE pairs, each value as JSON has it: a number, a truth value, null, or a list of these."""
    found: dict[str, Any] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not (name and equals and value):
            raise ValueError(f"--set takes NAME=VALUE, e.g. C_u=2, got {change!r}")
        try:
            read = json.loads(value)
            plain = not any(isinstance(one, list | dict) for one in (read if isinstance(read, list) else [read]))
        except (ValueError, RecursionError):
            plain = False
        if not plain:
            short = value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
            raise ValueError(f"--set {name}: {short!r} is not a number, nor a list of numbers: give one, e.g. {name}=2")
        found[name] = read
    return found


def split_changes(
    env: str, agent: str, changes: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Changes by whose they are: of the constants, of options of the agent, and of options of the environment."""
    ours, constants = set(BUILDS[agent].options), {each.name for each in fields(Constants) if each.init}
    if env in ENVIRONMENTS:
        for name in changes.keys() - constants - ours - options_of(env).keys():
            names = f"constants {', '.join(sorted(constants))}; options of {env} {', '.join(options_of(env))}"
            names += f"; of {agent} {', '.join(BUILDS[agent].options)}" if ours else ""
            raise ValueError(f"--set: no {name!r}; there are {names}")
    rest = changes.keys() - constants - ours
    of_constants, of_agent, of_env = (
        {k: v for k, v in changes.items() if k in names} for names in (constants, ours, rest)
    )
    return of_constants, of_agent, of_env
