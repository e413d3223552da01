"""`es.run`: the one loop over a world and a session, plan, deploy, observe, learn; and the record of it.

A compiled loop may stand in for it, with the same bits.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from episafe.agents.bandits.oplb import OPLB
from episafe.agents.bandits.oplbsp import OPLBSP
from episafe.agents.bandits.rule_agents import OFUL, ROFUL, Incumbent, SafeLUCB
from episafe.agents.fixed import Fixed
from episafe.agents.ghosh2024 import Ghosh2024
from episafe.agents.opse import OPSE
from episafe.checks import as_whole
from episafe.deployment.episode_tapes import BATCH, Tape
from episafe.deployment.session import Session
from episafe.deployment.session_book import log_dets
from episafe.monitors import halt_reason
from episafe.runs.fast import bandit_loop, fixed_loop, hindsight_loop, mixture_loop, softmax_loop
from episafe.runs.record import Columns, Record
from episafe.runs.worlds import BanditWorld, ListedWorld, TracedWorld, World, world_of
from episafe.storage.toml_settings import versions

FIRST_AHEAD, LONG = 500, 1.0  # episodes that a compiled loop begins with, and seconds that it shall not be away
TELL_EVERY = 0.5  # seconds after which progress is told, as soon as the loop is back
Progress = Callable[[int], None] | None


def run(
    cmdp: Any,
    agent: Any,
    num_episodes: int = 10_000,
    seed: int = 0,
    *,
    monitors: Any = None,
    folder: str | Path | None = None,
    on_progress: Progress = None,
) -> Record:
    """Run `agent` on `cmdp`; the same seed gives the same record of a new agent, bit for bit.

    Args:
        cmdp: the world, known to this loop and not to the agent. A live environment has one run at a time: another
            thread's is waited for.
        agent: plans before each episode and learns after it.
        num_episodes: K. A vector environment plays N at a time; the last batch is smaller where N does not divide K.
        seed: of the run; actions, transitions and the coins of mixtures are drawn from separate streams. Take another
            one than that of an earlier run in which something that the agent is given, as a candidate, was learned.
        monitors: `es.Monitors(agent.task)` to watch the run, and to halt it where an alarm asks for it. The record is
            the same, bit for bit, up to an alarm; the loop is not compiled then.
        folder: where to keep a journal, an audit trail and, at the end, the record: a run that is killed is taken up
            by `es.resume(folder)`, and ends with the same record.
        on_progress: called with the number of episodes done: after the first plan, and about twice a second.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming", seed=3)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> record = es.run(cmdp, agent, num_episodes=100)
        >>> float(record.violation()[-1])
        0.0
    """
    with one_run(cmdp):
        simulation = Simulation(cmdp, agent, num_episodes, seed, monitors)
        if folder is None:
            return simulation.play(on_progress)
        from episafe.runs.kept_run import begin  # it plays simulations

        return begin(simulation, folder, on_progress)


def one_run(problem: Any) -> AbstractContextManager[None]:
    """Where a run plays a problem; only an environment is changed by that, and has one at a time."""
    return problem.one_run() if hasattr(problem, "one_run") else nullcontext()


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


def accelerated(world: World, agent: Any, columns: Columns, first: int, tape: Tape | None) -> Any:
    """The compiled loop for exactly this world and this agent as it is set up; None if there is none."""
    trace = None if tape is None else tape.trace
    if tape is not None and trace is None:  # one that loops cannot write to
        return None
    for begin in LOOPS.get((type(world), type(agent)), ()):
        made = begin(world, agent, columns, first, trace)
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
                session.distrust(asked)
                columns.halts[k] = asked
        yield batch[-1] + 1


def fast_loop(made: Any, columns: Columns, first: int, settled: bool) -> Iterator[int]:
    """A compiled loop, which is away for about a second at most.

    Args:
        made: the compiled loop: `advance(columns, start, stop)` plays these episodes and fills their rows; `finish()`
            hands the plan in force, and all that was learned, back to the agent.
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


def _number_of(logs: list[str]) -> int:
    """A number of the logs that an agent has learned, 0 for none: a run that was exported has the luck of its seed, and
    its traces again would be no new evidence."""
    return sum(int(name[:12], 16) for name in logs)


class Simulation:
    """A run under way: the world, the session, and the columns that the loop fills.

    Args:
        problem: what the world is.
        agent: what plans and learns.
        num_episodes: K.
        seed: of the world's luck.
        monitors: what watches; None for nothing.
        first_round: of a bandit whose agent has played rounds before.
    """

    def __init__(
        self, problem: Any, agent: Any, num_episodes: int, seed: int, monitors: Any = None, first_round: int = 0
    ) -> None:
        K, self.seed = as_whole("num_episodes", num_episodes, 1), as_whole("seed", seed, 0)
        traced = getattr(agent, "uses_traces", False)
        self.world = world_of(problem, first_round, traced)
        self.world.check(agent, K)
        if hasattr(agent, "check_length"):  # whoever plans and learns, and has a task and settings, may run
            agent.check_length(K)
        if monitors is not None and monitors.task is not agent.task:
            raise ValueError("the monitors were built for another task: build them from agent.task")
        self.session = Session(agent, monitors)
        num_runs = getattr(agent, "num_runs", 0)
        self.world.begin(self.seed, num_runs + (_number_of(getattr(agent, "logs", [])) if traced else 0))
        agent.num_runs = num_runs + 1
        mixes = getattr(getattr(agent, "certifier", None), "mixes", False)
        m = problem.task.num_constraints
        self.columns = Columns(
            K, totals=self.world.unknown, changing=self.world.changes, mixes=mixes, num_constraints=m
        )
        self.seconds = 0.0

    @property
    def agent(self) -> Any:
        """What plans and learns."""
        return self.session.agent

    def play(self, on_progress: Progress = None, done: Iterable[int] | None = None) -> Record:
        """Exhaust the loop, or one that wraps it."""
        start, told, shown, K = time.perf_counter(), -math.inf, 0, self.columns.num_episodes
        try:
            for number in loop(self.world, self.session, self.columns) if done is None else done:
                if on_progress is None:
                    continue
                moment = time.perf_counter()
                if moment - told >= TELL_EVERY or number // BATCH > shown or number == K:
                    told, shown = moment, number // BATCH
                    on_progress(number)
        finally:
            self.world.end()
        self.seconds += time.perf_counter() - start
        if self.columns.failed[0]:
            warnings.warn(f"the incumbent acted in {self._failed()}", RuntimeWarning, stacklevel=3)
        if contradicted := self.contradicted():
            warnings.warn(contradicted, RuntimeWarning, stacklevel=3)
        return self.record()

    def contradicted(self) -> str:
        """What episodes have shown to be false that a certificate rests on, where no monitor says it; "" if nothing."""
        alarms = [] if self.session.monitors is None else self.session.monitors.alarms
        known, found = {alarm.what for alarm in alarms}, self.session.contradicted
        return "; ".join(f"{what}: {says}" for what, says in found.items() if says and what not in known)

    def _failed(self) -> str:
        """How often and why the incumbent acted because planning had failed."""
        count, reason = self.columns.failed
        return f"{count} of {self.columns.num_episodes} {self.world.unit}, because {reason}"

    def _claims(self) -> dict[str, str | int | float]:
        """What the agent says of itself; the level is that of all its plans."""
        said: dict[str, str | int | float] = self.agent.settings()
        level = getattr(self.agent, "level_so_far", None)
        return said if level in (None, said.get("level")) else {**said, "level": level, "statement": ""}

    def record(self) -> Record:
        """The columns as a record."""
        world, columns, task = self.world, self.columns, self.world.problem.task
        watching = {} if self.session.monitors is None else self.session.monitors.settings()
        if contradicted := self.contradicted():
            raised = watching.get("alarms", "none")
            watching["alarms"] = contradicted if raised == "none" else f"{raised}; {contradicted}"
        length: dict[str, Any] = {f"num_{world.unit}": columns.num_episodes, "run_seed": self.seed}
        if columns.failed[0]:
            length["planning_failed"] = self._failed()
        settings = {**world.problem.origin, **self._claims(), **length, **watching, **world.settings()}
        optimum = world.optimum(0) if columns.optima is None else math.nan
        names = task.constraint_names if task.num_constraints > 1 else ()
        return columns.record(optimum, task.limits, {**settings, **versions(), "seconds": self.seconds}, names)
