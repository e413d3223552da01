"""The one loop: plan, deploy, observe, learn. A compiled loop may stand in for it, with the same bits."""

import time
from collections.abc import Iterator
from typing import Any, Protocol

from episafe.agents.bandits.oplb import OPLB
from episafe.agents.bandits.oplbsp import OPLBSP
from episafe.agents.bandits.rule_agents import OFUL, ROFUL, Incumbent, SafeLUCB
from episafe.agents.fixed import Fixed
from episafe.agents.ghosh2024 import Ghosh2024
from episafe.agents.opse import OPSE
from episafe.deployment.episode_tapes import BATCH, Tape
from episafe.deployment.session import Session
from episafe.deployment.session_book import log_dets
from episafe.monitors import halt_reason
from episafe.runs.columns import Columns
from episafe.runs.fast import bandit_loop, fixed_loop, hindsight_loop, mixture_loop, softmax_loop
from episafe.runs.worlds import BanditWorld, ListedWorld, TracedWorld, World

FIRST_AHEAD, LONG = 500, 1.0  # episodes that a compiled loop begins with, and seconds that it shall not be away


class Advancing(Protocol):
    """A compiled loop under way."""

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Play episodes `start` to `stop`, filling their rows."""
        ...

    def finish(self) -> None:
        """Hand the plan in force, and all that was learned, back to the agent."""
        ...


# found by exact type: a subclass that overrides anything runs in the plain loop
LOOPS: dict[tuple[type, type], tuple[Any, ...]] = {
    (ListedWorld, OPSE): (softmax_loop.begin, mixture_loop.begin),
    (ListedWorld, Ghosh2024): (softmax_loop.begin,),
    (ListedWorld, Fixed): (fixed_loop.begin,),
    (TracedWorld, OPSE): (hindsight_loop.begin,),
    **{(BanditWorld, agent): (bandit_loop.begin,) for agent in (OPLBSP, OPLB, SafeLUCB, ROFUL, OFUL, Incumbent)},
}


def loop(world: World, session: Session, columns: Columns, first: int = 0, tape: Tape | None = None) -> Iterator[int]:
    """Play episodes `first` and on; yields the number done, now and then.

    Args:
        world: what plays.
        session: what decides and learns.
        columns: what is filled.
        first: the first episode that is not there yet.
        tape: what the episodes are kept on, if they are.
    """
    made = None
    if session.monitors is None and not session.stopped and first < columns.num_episodes:
        made = accelerated(world, session.agent, columns, first, tape)
    if made is None:
        return plain_loop(world, session, columns, first, tape)
    return fast_loop(made, columns, first, tape is not None)


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


def plain_loop(
    world: World, session: Session, columns: Columns, first: int = 0, tape: Tape | None = None
) -> Iterator[int]:
    """The loop for any world and any agent; yields after every plan."""
    K, n, current = columns.num_episodes, world.num_parallel, None
    values: tuple[float, Any] = (0.0, 0.0)
    for start in range(first, K, n):
        batch = range(start, min(start + n, K))
        if columns.optima is not None:
            columns.optima[start] = world.optimum(start)
        plan = session.decide(world.round(start) if world.changes else None)
        if plan is not current:
            current, values = plan, world.values(plan)
        drawn = [world.draw(plan) for _ in batch]
        for k, one in zip(batch, drawn, strict=True):
            columns.note(k, plan, values, one)
        for k, played in zip(batch, world.play(start, drawn), strict=True):
            if columns.totals is not None and played.total is not None:
                columns.totals[k, 0], columns.totals[k, 1:] = played.total
            alarms = session.observe(plan, played.report, plan.id)
            if tape is not None:
                tape.note(k, played.report, log_dets(session.agent), played.atom)
            if alarms and (asked := halt_reason(alarms)) and not session.stopped:
                session.halt(asked)
                columns.halts[k] = asked
        yield batch[-1] + 1


def fast_loop(made: Advancing, columns: Columns, first: int, settled: bool) -> Iterator[int]:
    """A compiled loop, which is away for about a second at most.

    Args:
        made: the compiled loop.
        columns: what is filled.
        first: the first episode that is not there yet.
        settled: whether the agent must have all that was learned, and the plan in force, whenever this yields.
    """
    done, ahead = first, FIRST_AHEAD
    try:
        while done < columns.num_episodes:
            begun, stop = time.perf_counter(), min(done + ahead, columns.num_episodes)
            made.advance(columns, done, stop)
            done = stop
            if settled:
                made.finish()
            yield done
            took = time.perf_counter() - begun
            ahead = min(2 * ahead, BATCH) if took < LONG / 4 else max(ahead // 2, 1) if took > LONG else ahead
    finally:
        made.finish()  # also when the run is interrupted: what was learned stays learned
