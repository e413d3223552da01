"""Simulated runs that survive: a journal while they run, and going on from it, bit for bit.

A simulation acts on nothing outside, so that its plans may be written with the batch of their episodes, after the
fact. A batch holds the states of the random streams after it. The disk is waited for about once a second.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from episafe.agents.base import Agent, Episode
from episafe.deployment.agent_recipe import agent_of, recipe, write_recipe
from episafe.deployment.batches import batch_of, deployments, episodes_of, fill, generators, length, set_generators
from episafe.deployment.checkpoint import restore_newest, write_checkpoint
from episafe.deployment.folder import (
    HEAD,
    LOG,
    PROBLEM,
    TOLD,
    Journal,
    beginning,
    check_file,
    file_hash,
    holds_journal,
    read_head,
    refuse_used,
    write_head,
)
from episafe.deployment.replay import replay
from episafe.errors import DamagedFile
from episafe.gym.adapter import GymCMDP
from episafe.gym.vector import VectorGymCMDP
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.sampled import SampledCMDP, key
from episafe.runs.record import Record
from episafe.runs.run import Run
from episafe.runs.tape import BATCH, SampledTape, StateHash, Tape, log_dets
from episafe.storage import checkpoint
from episafe.storage.audit_trail import TRAIL
from episafe.storage.frames import Frame, Kind
from episafe.storage.toml_settings import versions

SYNC_EVERY, CHECKPOINT_EVERY = 1.0, 5.0  # seconds
KINDS = (Kind.BEGIN, Kind.BATCH, Kind.AIM, Kind.FAULT, Kind.CLOSE)
BATCH_NOTES = {"episode", "generators", "seconds", "trail"}
BATCH_ARRAYS = {"begins", "plans", "sources", "bounds", "values", "log_dets"}
Progress = Callable[[int], None] | None


def begin(run: Run, folder: str | Path, on_progress: Progress = None, **notes: str | int | float) -> Record:
    """Play a run from its start with a journal in `folder`; `notes` are kept in the record's settings."""
    folder, agent, cmdp = Path(folder), run.agent, run.cmdp
    refuse_used(agent)
    head: dict[str, str | int | float] = {
        "kind": "run",
        "fingerprint": agent.fingerprint(),
        "num_episodes": run.num_episodes,
        "seed": run.seed,
        **versions(),
        **{f"note_{name}": value for name, value in notes.items()},
    }
    if isinstance(cmdp, VectorGymCMDP):
        head["num_envs"] = cmdp.num_envs
    own = cmdp.task if isinstance(cmdp, LinearCMDP) else None
    with beginning(folder):
        if isinstance(cmdp, LinearCMDP):
            cmdp.save(folder / PROBLEM)
            head["problem_sha256"] = file_hash(folder / PROBLEM)
        write_head(folder, head | write_recipe(folder, recipe(agent, own)))
    return _Writer(run, Journal(folder, agent.settings(), agent.task.threshold)).play(on_progress)


def resume(
    folder: str | Path,
    num_episodes: int | None = None,
    *,
    cmdp: LinearCMDP | SampledCMDP | GymCMDP | VectorGymCMDP | None = None,
    agent: Agent | None = None,
    on_progress: Progress = None,
) -> Record:
    """Go on with a run that was killed, or make a finished one longer. The record is that of a run never stopped.

    Args:
        folder: of `es.run(…, folder=…)` or `episafe run --out`.
        num_episodes: how many there shall be in all; None for as many as were asked for last.
        cmdp, agent: the problem, and a new agent built as the first one was. Only needed where the journal cannot
            build them: problems by functions, environments, agents of your own.
        on_progress: called now and then with the number of episodes done.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming")
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> _ = es.run(cmdp, agent, 100, folder="mine")  # doctest: +SKIP
        >>> record = es.resume("mine", num_episodes=200)  # doctest: +SKIP
    """
    folder = Path(folder)
    head = read_head(folder)
    if head["kind"] != "run":
        raise ValueError(f"{folder} is a journal of kind {head['kind']!r}: only simulated runs are resumed here")
    cmdp = problem_of(folder, head) if cmdp is None else cmdp
    agent = agent_of(folder, head, cmdp.task) if agent is None else agent
    refuse_used(agent)
    if agent.fingerprint() != head["fingerprint"]:
        raise ValueError(f"{folder} was begun with another agent or problem: build both as they were")
    journal = Journal(folder, agent.settings(), agent.task.threshold)
    try:
        frames = batches(journal.log.frames, folder)
        asked = [frame.notes["num_episodes"] for frame in journal.log.frames if frame.kind == Kind.AIM]
        done = frames[-1].notes["episode"] + length(frames[-1]) if frames else 0
        aim = num_episodes or (asked[-1] if asked else head["num_episodes"])
        if aim < done:
            raise ValueError(f"{folder} has {done} episodes already: ask for at least as many, not {aim}")
        _refuse_parts(cmdp, head, aim, done)
        run = Run(cmdp, agent, aim, head["seed"])
        writer = _Writer(run, journal, frames)
        if aim != (asked[-1] if asked else head["num_episodes"]):
            journal.log.append(Kind.AIM, {"num_episodes": aim})
    except BaseException:
        journal.close()
        raise
    return writer.play(on_progress)


def _refuse_parts(cmdp: Any, head: Mapping[str, Any], aim: int, done: int) -> None:
    """Episodes of a vector environment are played N at a time: only whole batches can be followed by others."""
    N = head.get("num_envs", 1)
    if getattr(cmdp, "num_envs", 1) != N:
        raise ValueError(f"the run was begun with {N} sub-environments: hand over an environment with as many")
    if done % N and done < aim:
        raise ValueError(f"the run ended with {done % N} of {N} sub-environments: it cannot be made longer")


def run_or_resume(
    cmdp: LinearCMDP, agent: Agent, num_episodes: int, seed: int, folder: Path, **notes: str | int | float
) -> Record:
    """Go on with the run in `folder` if it is this one, told by its notes; else begin it anew."""
    if holds_journal(folder):
        head = read_head(folder)
        if all(head.get(f"note_{name}") == value for name, value in notes.items()):
            return resume(folder, num_episodes, cmdp=cmdp, agent=agent)
        remove_journal(folder)
    return begin(Run(cmdp, agent, num_episodes, seed), folder, None, **notes)


def remove_journal(folder: Path) -> None:
    """Delete a journal and what belongs to it, its head last; a record stays."""
    for name in (LOG, TRAIL, PROBLEM, TOLD, *checkpoint.NAMES, HEAD):
        (folder / name).unlink(missing_ok=True)


def batches(frames: list[Frame], folder: Path) -> list[Frame]:
    """The batches of a log, one after another without a gap."""
    for frame in frames:
        aims = type(frame.notes.get("num_episodes")) is int
        if frame.kind not in KINDS or (frame.kind == Kind.AIM and not aims):
            raise DamagedFile(f"{folder}: the frame at byte {frame.offset} belongs to no run: restore it from a copy")
    found, done = [frame for frame in frames if frame.kind == Kind.BATCH], 0
    for frame in found:
        if not (BATCH_NOTES <= frame.notes.keys() and BATCH_ARRAYS <= frame.arrays.keys()):
            raise DamagedFile(
                f"{folder}: the batch at byte {frame.offset} lacks a part: restore the folder from a copy"
            )
        if frame.notes["episode"] != done:
            raise DamagedFile(f"{folder}: a batch begins at episode {frame.notes['episode']} and not at {done}")
        done += length(frame)
    return found


def problem_of(folder: Path, head: Mapping[str, Any]) -> LinearCMDP:
    """The problem of a journal."""
    if "problem_sha256" not in head:
        raise ValueError(f"{folder}: the problem is given by functions: hand it over as cmdp=")
    return LinearCMDP.load(check_file(folder, PROBLEM, head))


class _Writer:
    """A run and its journal. Episodes that the journal has already are learned again first."""

    def __init__(self, run: Run, journal: Journal, frames: list[Frame] | None = None) -> None:
        self._run, self._journal, self._frames = run, journal, frames or []
        self._state = StateHash(run.agent.fingerprint())
        self._tape = Tape(run.agent) if isinstance(run.cmdp, LinearCMDP) else SampledTape(run.agent)
        self._written, self._synced = 0, time.monotonic()
        self._checkpointed = self._synced
        journal.continue_trail(self._lines_of_frames())
        self._started = time.perf_counter()

    def play(self, on_progress: Progress) -> Record:
        """Play what is missing and save the record."""
        run, notes = self._run, self._notes()
        try:
            self._take_up()
            record = run.play(self._kept(run.loop(self._written, self._tape)), on_progress).noting(**notes)
            self._journal.log.append(Kind.CLOSE, {})
        finally:
            self._journal.close()
        record.save(self._journal.folder)
        return record

    def _notes(self) -> dict[str, Any]:
        return {n.removeprefix("note_"): v for n, v in self._journal.head.items() if n.startswith("note_")}

    def _lines_of_frames(self) -> Iterator[str]:
        for frame in self._frames:
            for deployed in deployments(frame.arrays, frame.notes["episode"], self._state):
                yield self._journal.trail.line(deployed)
            if [self._journal.trail.count, self._journal.trail.head] != frame.notes["trail"]:
                raise DamagedFile(f"{self._journal.folder}: the batch at byte {frame.offset} does not match its trail")

    def _take_up(self) -> None:
        """Bring columns, agent and streams to where the journal ends."""
        run, frames = self._run, self._frames
        num_envs = getattr(run.cmdp, "num_envs", 1)
        if isinstance(run.cmdp, GymCMDP | VectorGymCMDP):
            played = [episode for frame in frames for episode in episodes_of(frame, run.cmdp.task)]
            for first in range(0, len(played), num_envs):
                play_again(run.cmdp, played[first : first + num_envs])
        known = restore_newest(self._journal, run.agent)
        replay(run.agent, [frame for frame in frames if frame.offset >= known], num_envs)
        for frame in frames:
            fill(run, frame)
            self._written = frame.notes["episode"] + length(frame)
            run.seconds = frame.notes["seconds"]
        if frames:
            set_generators(run, frames[-1].notes["generators"])

    def _kept(self, loop: Iterator[int]) -> Iterator[int]:
        """The loop, with its episodes written in batches."""
        self._started = time.perf_counter()
        for done in loop:
            now = time.monotonic()
            if done - self._written >= BATCH or done == self._run.num_episodes or now - self._synced > SYNC_EVERY:
                self._write(done)
                if now - self._synced > SYNC_EVERY:
                    self._journal.sync()
                    self._synced = now
                if now - self._checkpointed > CHECKPOINT_EVERY:
                    self._journal.sync()
                    write_checkpoint(self._journal, self._run.agent)
                    self._checkpointed = now
            yield done

    def _write(self, done: int) -> None:
        run, journal = self._run, self._journal
        arrays = batch_of(run, self._tape, self._written, done, len(log_dets(run.agent)))
        lines = [journal.trail.line(one) for one in deployments(arrays, self._written, self._state)]
        notes = {
            "episode": self._written,
            "generators": generators(run),
            "seconds": run.seconds + time.perf_counter() - self._started,
            "trail": [journal.trail.count, journal.trail.head],
        }
        journal.log.append(Kind.BATCH, notes, arrays)
        journal.add_lines(lines)
        self._written = done


def play_again(problem: GymCMDP | VectorGymCMDP, episodes: list[Episode]) -> None:
    """Bring an environment to where it was, by the actions that were taken; it must answer as it did."""
    steps = zip(*(episode.actions for episode in episodes), strict=True)
    if isinstance(problem, VectorGymCMDP):
        states = [problem.reset(len(episodes)), *(problem.step(list(actions))[0] for actions in steps)]
    else:
        states = [[problem.reset()], *([problem.step(action)[0]] for (action,) in steps)]
    answered = [[key(state) for state in one] for one in zip(*states, strict=True)]
    if answered != [[key(state) for state in episode.states] for episode in episodes]:
        raise ValueError(
            "the environment answers otherwise than it did: a run can be resumed only if its randomness comes from the "
            "seed of reset(seed=…)"
        )
