"""Compiled loops, found by exact type: a subclass that overrides anything runs in the plain loop."""

from typing import Any, Protocol

from episafe.agents.bandits.oplb import OPLB
from episafe.agents.bandits.oplbsp import OPLBSP
from episafe.agents.bandits.rule_agents import OFUL, ROFUL, Incumbent, SafeLUCB
from episafe.agents.fixed import Fixed
from episafe.agents.ghosh2024 import Ghosh2024
from episafe.agents.opse import OPSE
from episafe.deployment.episode_tapes import Tape
from episafe.runs.columns import Columns
from episafe.runs.fast import bandit_loop, fixed_loop, hindsight_loop, mixture_loop, softmax_loop
from episafe.runs.worlds import BanditWorld, ListedWorld, TracedWorld, World


class Advancing(Protocol):
    """A compiled loop under way."""

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Play episodes `start` to `stop`, filling their rows."""
        ...

    def finish(self) -> None:
        """Hand the plan in force, and all that was learned, back to the agent."""
        ...


LOOPS: dict[tuple[type, type], tuple[Any, ...]] = {
    (ListedWorld, OPSE): (softmax_loop.begin, mixture_loop.begin),
    (ListedWorld, Ghosh2024): (softmax_loop.begin,),
    (ListedWorld, Fixed): (fixed_loop.begin,),
    (TracedWorld, OPSE): (hindsight_loop.begin,),
    **{(BanditWorld, agent): (bandit_loop.begin,) for agent in (OPLBSP, OPLB, SafeLUCB, ROFUL, OFUL, Incumbent)},
}


def accelerated(world: World, agent: Any, columns: Columns, first: int, tape: Tape | None) -> Advancing | None:
    """The compiled loop for exactly this world and this agent as it is set up; None if there is none."""
    trace = None if tape is None else tape.trace
    if tape is not None and trace is None:  # one that loops cannot write to
        return None
    for begin in LOOPS.get((type(world), type(agent)), ()):
        made: Advancing | None = begin(world, agent, columns, first, trace)
        if made is not None:
            return made
    return None
