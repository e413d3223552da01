"""`es.run`: the loop over a world and a session, and the record of it."""

import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from episafe.checks import as_whole
from episafe.deployment.episode_tapes import BATCH
from episafe.deployment.session import Session
from episafe.runs.columns import Columns
from episafe.runs.loop import loop
from episafe.runs.record import Record
from episafe.runs.worlds import world_of
from episafe.storage.toml_settings import versions
from episafe.types import SOURCES

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
        cmdp: the world, known to this loop and not to the agent.
        agent: plans before each episode and learns after it.
        num_episodes: K. A vector environment plays N at a time; the last batch is smaller where N does not divide K.
        seed: of the run; actions, transitions and the coins of mixtures are drawn from separate streams.
        monitors: `es.Monitors(agent.task)` to watch the run, and to halt it where an alarm asks for it. The record is
            the same, bit for bit, up to an alarm; the loop is not compiled then.
        folder: where to keep a journal, an audit trail and, at the end, the record: a run that is killed is taken up
            by `es.resume(folder)`, and ends with the same record.
        on_progress: called now and then with the number of episodes done.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming", seed=3)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> record = es.run(cmdp, agent, num_episodes=100)
        >>> float(record.violation()[-1])
        0.0
    """
    simulation = Simulation(cmdp, agent, num_episodes, seed, monitors)
    if folder is None:
        return simulation.play(on_progress)
    from episafe.runs.kept_run import begin  # it plays simulations

    return begin(simulation, folder, on_progress)


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
        self.world.begin(self.seed, num_runs)
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
        start, shown, K = time.perf_counter(), 0, self.columns.num_episodes
        for number in loop(self.world, self.session, self.columns) if done is None else done:
            if on_progress is not None and (number // BATCH > shown or number == K):
                shown = number // BATCH
                on_progress(number)
        self.seconds += time.perf_counter() - start
        if self.columns.failed[0]:
            warnings.warn(f"the incumbent acted in {self._failed()}", RuntimeWarning, stacklevel=3)
        return self.record()

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
        world, columns, facts = self.world, self.columns, self.columns.facts
        watching = {} if self.session.monitors is None else self.session.monitors.settings()
        length: dict[str, Any] = {f"num_{world.unit}": columns.num_episodes, "run_seed": self.seed}
        if columns.failed[0]:
            length["planning_failed"] = self._failed()
        settings = {**world.problem.origin, **self._claims(), **length, **watching, **world.settings()}
        optima, task = columns.optima, world.problem.task
        return Record(
            **{name: None if column is None else column.copy() for name, column in columns.figures.items()},  # type: ignore[arg-type]
            sources=np.array(SOURCES)[facts.sources],
            plan_ids=facts.plan_ids,
            optimum=world.optimum(0) if optima is None else float(optima.mean()),
            threshold=task.limits,
            settings={**settings, **versions(), "seconds": self.seconds},
            optima=optima,
            **columns.coin_figures,
            acting_names=tuple(columns.names),
            constraint_names=task.constraint_names if task.num_constraints > 1 else (),
        )
