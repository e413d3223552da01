"""The agents by name, as experiments and the command line build them. To add one, name its builder here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from episafe.agents.base import Agent
from episafe.agents.dope import DOPE
from episafe.agents.fixed import Fixed
from episafe.agents.ghosh2024 import Ghosh2024
from episafe.agents.opse import OPSE
from episafe.certify import Certifier, FreshData, Model, Observation
from episafe.envs import ENVIRONMENTS, PAPER
from episafe.learning.constants import Constants
from episafe.learning.replanning import Doubling, Every, Replanning
from episafe.problems.cmdp import LinearCMDP


@dataclass(frozen=True)
class Entry:
    """An agent's builder, one line about it, whether it reads constants, and whether they only serve to propose."""

    build: Callable[[LinearCMDP, Constants, Replanning], Agent]
    summary: str
    learns: bool = True
    only_proposes: bool = False


CERTIFIERS: dict[str, tuple[Callable[[], Certifier], str]] = {
    "model": (
        Model,
        "the paper's: the model's pessimistic value; assumes linear features and a large enough C_u",
    ),
    "observation": (
        Observation,
        "observed utilities of mixtures; assumes episodes without drift and the slack of the incumbent, no model",
    ),
    "fresh-data": (
        FreshData,
        "regression on data that a policy was fixed before; assumes linear features, listed states; no mixtures",
    ),
}


def _certified_opse(certifier: str) -> Callable[[LinearCMDP, Constants, Replanning], Agent]:
    make, _ = CERTIFIERS[certifier]
    return lambda cmdp, constants, replan: OPSE(cmdp.task, constants, replan, certifier=make())


AGENTS: dict[str, Entry] = {
    "opse": Entry(
        lambda cmdp, constants, replan: OPSE(cmdp.task, constants, replan),
        "OPSE-LCMDP (Alg. 2 of the paper): every policy is the incumbent or passed the pessimistic check",
    ),
    "opse-observation": Entry(
        _certified_opse("observation"),
        "OPSE as a proposer; every deployed mixture is certified by observed utilities, proved at 95 %",
        only_proposes=True,
    ),
    "opse-fresh-data": Entry(
        _certified_opse("fresh-data"),
        "OPSE as a proposer; every deployed Markov policy is certified by data fresh to it, proved at 95 %",
        only_proposes=True,
    ),
    "ghosh": Entry(
        lambda cmdp, constants, replan: Ghosh2024(cmdp.task, constants, replan),
        "Ghosh et al. 2024: optimistic in the utility too, violates while it learns",
    ),
    "dope": Entry(
        lambda cmdp, constants, replan: DOPE(cmdp.task, constants, replan),
        "DOPE (Bura et al. 2022): tabular, optimistic kernel and reward, pessimistic utility",
    ),
    "uniform": Entry(lambda cmdp, *_: Fixed(cmdp.task, "uniform"), "every action alike", learns=False),
    "incumbent": Entry(lambda cmdp, *_: Fixed(cmdp.task, "incumbent"), "the safe policy for ever", learns=False),
    "optimum": Entry(
        lambda cmdp, *_: Fixed(cmdp.task, cmdp.optimal_policy(), "optimum"), "the exact optimum", learns=False
    ),
}


def build_agent(
    name: str, cmdp: LinearCMDP, constants: Constants | None = None, replan: Replanning | None = None
) -> Agent:
    """The agent `name` for `cmdp`; constants default to `default_constants`."""
    if name not in AGENTS:
        raise ValueError(f"no agent {name!r}; there are {', '.join(AGENTS)}")
    entry = AGENTS[name]
    if constants is None:
        constants = default_constants(cmdp, name)
    return entry.build(cmdp, constants, replan or constants.replan)


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
    if cmdp.origin.get("env") in ENVIRONMENTS.keys() - PAPER.keys():
        return Constants.tuned(cmdp.task).replace(**changes)
    return published(cmdp, agent if AGENTS[agent].learns else "opse", **changes)


def published(cmdp: LinearCMDP, agent: str, **changes: Any) -> Constants:
    """The published constants for the environment that `cmdp` came from, with some changed."""
    constants = Constants.paper(str(cmdp.origin.get("env", "")), agent)
    return constants.replace(**changes)


def parse_replan(text: str) -> Replanning:
    """ "every" or "doubling:GROWTH" as a replanning rule."""
    kind, _, growth = text.partition(":")
    if kind == "every" and not growth:
        return Every()
    if kind == "doubling":
        try:
            return Doubling(float(growth)) if growth else Doubling()
        except ValueError as error:
            raise ValueError(f"replan {text!r}: {error}") from error
    raise ValueError(f'replan must be "every" or "doubling:GROWTH", e.g. "doubling:0.3", got {text!r}')
