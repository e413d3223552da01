"""Runs that survive: a simulation with a journal, and going on from it, bit for bit.

A simulation acts on nothing outside, so that its plans may be written with the batch of their episodes, after the
fact. A batch holds where the streams of luck are after it. The disk is waited for about once a second.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from episafe.deployment.agent_recipe import agent_of
from episafe.deployment.batch_frames import (
    batch_arrays,
    fill,
    is_batch,
    recorded_episodes,
    sampled_reports,
    trail_lines,
)
from episafe.deployment.episode_tapes import BATCH
from episafe.deployment.episode_tapes import num_episodes as length_of
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.incumbent_identity import IncumbentIdentity
from episafe.deployment.journal import Journal
from episafe.deployment.journal_folder import LOG, read_head, stored_problem
from episafe.deployment.session_book import log_dets, now
from episafe.deployment.session_start import begin_journal, catch_up, require_same_agent, require_unused
from episafe.errors import DamagedFile
from episafe.monitors import monitors_for
from episafe.runs.record import EPISODES, SETTINGS, Record, finished_length
from episafe.runs.run import Progress, Simulation, loop, one_run
from episafe.storage.frames import Frame, read

SYNC_EVERY, CHECKPOINT_EVERY = 1.0, 5.0  # seconds


def begin(
    simulation: Simulation, folder: str | Path, on_progress: Progress = None, **notes: str | int | float
) -> Record:
    """Play a simulation from its start with a journal in `folder`; `notes` are kept in the record's settings."""
    folder, world = Path(folder), simulation.world
    require_unused(simulation.agent)
    if simulation.session.stopped:
        raise ValueError("the monitors have raised an alarm in an earlier run: give new ones, es.Monitors(agent.task)")
    head: dict[str, str | int | float] = {
        "kind": "run",
        "num_episodes": simulation.columns.num_episodes,
        "seed": simulation.seed,
        "num_parallel": world.num_parallel,
        "first_round": getattr(world, "first_round", 0),
        **{f"note_{name}": value for name, value in notes.items()},
    }
    if simulation.session.monitors is not None:
        head["monitors_delta"] = simulation.session.monitors.delta
    begin_journal(folder, simulation.agent, head, world.problem)
    journal = Journal(folder, simulation.agent.settings(), simulation.agent.task.limits)
    return KeptRun(simulation, journal).play(on_progress)


def resume(
    folder: str | Path,
    num_episodes: int | None = None,
    *,
    cmdp: Any = None,
    agent: Any = None,
    on_progress: Progress = None,
) -> Record:
    """Go on with a run that was killed, or make a finished one longer. The record is that of a run never stopped.

    Args:
        folder: of `es.run(…, folder=…)` or `episafe run --out`.
        num_episodes: how many there shall be in all; None for as many as were asked for last.
        cmdp, agent: the problem, and a new agent built as the first one was. Only needed where the journal cannot
            build them: problems by functions, environments, bandits, agents of your own.
        on_progress: called with the number of episodes done, as by `es.run`.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming")
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> _ = es.run(cmdp, agent, 100, folder="mine")  # doctest: +SKIP
        >>> record = es.resume("mine", num_episodes=200)  # doctest: +SKIP
    """
    folder = Path(folder)
    head = read_head(folder)
    _require_run(folder, head)
    cmdp = stored_problem(folder, head) if cmdp is None else cmdp
    if cmdp is None:
        raise ValueError(f"{folder}: the journal does not hold the problem: hand it over as cmdp=")
    agent = agent_of(folder, head, cmdp.task) if agent is None else agent
    require_unused(agent)
    require_same_agent(folder, head, agent)
    with one_run(cmdp):
        journal = Journal(folder, agent.settings(), agent.task.limits)  # nobody else may write from here on
        try:
            batches, aim = batches_of(folder, head)
            done = batches[-1].notes["episode"] + length_of(batches[-1].arrays) if batches else 0
            wanted = num_episodes or aim
            if wanted < done:
                raise ValueError(f"{folder} has {done} episodes already: ask for at least as many, not {wanted}")
            if wanted < (length := finished_length(folder)):
                raise ValueError(
                    f"{folder} has the record of {length} episodes, which one of {wanted} would replace: ask for at "
                    f"least as many (--episodes {length}), or move {SETTINGS} and {EPISODES} elsewhere"
                )
            monitors = monitors_for(agent.task, head["monitors_delta"]) if "monitors_delta" in head else None
            simulation = Simulation(cmdp, agent, wanted, head["seed"], monitors, head["first_round"])
            _require_whole_plans(simulation, head, done)
        except BaseException:
            journal.release()
            raise
        return KeptRun(simulation, journal, batches).play(on_progress, aim)


def aim_of(folder: Path) -> int:
    """How many episodes were asked for last, of a simulated run."""
    head = read_head(folder)
    _require_run(folder, head)
    return batches_of(folder, head)[1]


def _require_run(folder: Path, head: Mapping[str, Any]) -> None:
    if head["kind"] != "run":
        raise ValueError(f"{folder} is a journal of kind {head['kind']!r}: only simulated runs are resumed here")


def batches_of(folder: Path, head: Mapping[str, Any]) -> tuple[list[Frame], int]:
    """The batches of a log, and how many episodes there shall be in all."""
    frames = list(read(folder / LOG, head["genesis"]))
    for frame in frames:
        if frame.kind == Kind.BATCH and not is_batch(frame.notes, frame.arrays):
            raise DamagedFile(f"{folder}: the batch at byte {frame.offset} lacks a part: restore it from a copy")
    aims = [frame.notes.get("num_episodes") for frame in frames if frame.kind == Kind.AIM]
    batches = [frame for frame in frames if frame.kind == Kind.BATCH]
    return batches, next((aim for aim in reversed(aims) if type(aim) is int), head["num_episodes"])


def _require_whole_plans(simulation: Simulation, head: Mapping[str, Any], done: int) -> None:
    """Episodes of a vector environment are played N at a time: only whole batches can be followed by others."""
    N = head["num_parallel"]
    if simulation.world.num_parallel != N:
        raise ValueError(f"the run was begun with {N} sub-environments: hand over an environment with as many")
    if done % N and done < simulation.columns.num_episodes:
        raise ValueError(f"the run ended with {done % N} of {N} sub-environments: it cannot be made longer")


class KeptRun:
    """A simulation and its journal. Episodes that the journal has already are learned again first.

    Args:
        simulation: new.
        journal: of it, open.
        batches: what the journal has.
    """

    def __init__(self, simulation: Simulation, journal: Journal, batches: list[Frame] | None = None) -> None:
        self._simulation, self._batches = simulation, batches or []
        agent = simulation.agent
        simulation.session.book.learned_hash = agent.fingerprint()
        simulation.session.incumbent = IncumbentIdentity(agent.task, journal.head)
        self._tape = simulation.world.tape(agent.task)
        self._written, self._begun = 0, time.perf_counter()
        self._journal, self._synced = journal, time.monotonic()

    def play(self, on_progress: Progress, aim: int | None = None) -> Record:
        """Play what is missing and save the record; `aim` is how many episodes were asked for last."""
        simulation, journal = self._simulation, self._journal
        wanted = simulation.columns.num_episodes
        try:
            self._catch_up()
        except BaseException:
            journal.release()
            raise
        try:
            if aim is not None and wanted != aim:
                journal.append(Kind.AIM, {"num_episodes": wanted})
            done = loop(simulation.world, simulation.session, simulation.columns, self._written, self._tape)
            record = simulation.play(on_progress, self._kept(done))
            journal.append(Kind.CLOSE, simulation.session.book.closing())
        finally:
            journal.close()
        notes = {n.removeprefix("note_"): v for n, v in journal.head.items() if n.startswith("note_")}
        record = record.noting(**notes)
        record.save(journal.folder)
        return record

    def _catch_up(self) -> None:
        """Bring columns, agent, monitors and world to where the journal ends."""
        simulation, world = self._simulation, self._simulation.world
        task = simulation.agent.task
        catch_up(simulation.session, self._journal)
        for frame in self._batches:
            start = frame.notes["episode"]
            fill(simulation.columns, frame.arrays, start, frame.notes["names"])
            self._written = start + length_of(frame.arrays)
            simulation.seconds = frame.notes["seconds"]
            simulation.columns.failed = tuple(frame.notes.get("failed", simulation.columns.failed))
        if self._batches:
            world.bring_back(
                report(None) for frame in self._batches for _, report in recorded_episodes(frame.arrays, task)
            )
            world.set_streams(self._batches[-1].notes["streams"])

    def _kept(self, loop: Iterator[int]) -> Iterator[int]:
        """The loop, with its episodes written in batches."""
        self._begun = time.perf_counter()
        for done in loop:
            moment = time.monotonic()
            late = moment - self._synced > SYNC_EVERY
            if done - self._written >= BATCH or done == self._simulation.columns.num_episodes or late:
                self._write(done)
                if late:
                    self._journal.sync()
                    self._synced = moment
                if self._journal.age > CHECKPOINT_EVERY:
                    self._journal.checkpoint(self._simulation.session.parts)
            yield done

    def _write(self, done: int) -> None:
        simulation, journal, start = self._simulation, self._journal, self._written
        columns, book, trail = simulation.columns, simulation.session.book, self._journal.trail
        arrays = batch_arrays(columns, self._tape, start, done, len(log_dets(simulation.agent)))
        halts = {k: reason for k, reason in columns.halts.items() if k >= start}
        lines = list(trail_lines(arrays, start, book, halts, trail))
        notes: dict[str, Any] = {
            "episode": start,
            "round": simulation.world.round(start),
            "streams": simulation.world.streams(),
            "seconds": simulation.seconds + time.perf_counter() - self._begun,
            "halts": list(halts.items()),
            "names": list(columns.names),
            "trail": [trail.count, trail.head],
        }
        if columns.failed[0]:
            notes["failed"] = columns.failed
        if sampled := sampled_reports(arrays, simulation.agent.task):
            notes["incumbent"] = [simulation.session.incumbent.sighted(report) for report in sampled]
        journal.append(Kind.BATCH, notes, arrays, lines)
        contradicted = simulation.contradicted()
        if contradicted and contradicted not in book.faults:
            journal.append(Kind.FAULT, {"reason": contradicted, "time": now()})
            book.faults.append(contradicted)
        self._written = done
        book.newest = int(columns.facts.plan_ids[done - 1])
