"""Faults, made on purpose, and what came of them: `make faults` prints the table of docs/reliability.md.

One function a row: it returns how often the fault was made and how often it was survived, and a note. To add a row,
write a function and name it in ROWS. `--quick` makes a twentieth of them.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

import late_reports
import monitors
import rollouts

import episafe as es
import frame_faults
import hostile
import killed_lives
import lives
import session_faults
import tampering
import threaded_lives
import unreadable
from episafe.deployment import batch_frames, session, session_book, session_start
from episafe.deployment.journal_folder import read_head
from episafe.experiments.agent_choice import build_agent, build_bandit_agent
from episafe.learning.planner import SoftmaxPlanner
from episafe.registry import AGENTS, BANDIT_AGENTS
from episafe.runs import kept_run
from episafe.storage import checkpoint
from episafe.storage.frames import read
from episafe.storage.journal_files import HEAD
from stored import by_tuples

ALL_FRAMES = 2_000  # more than there are changes of one journal
FORK = multiprocessing.get_context("fork")  # a new interpreter would take longer than the runs
CHAIN = es.make("streaming", seed=3)


@dataclass
class Outcome:
    made: int
    survived: int
    note: str


def tuned() -> es.OPSE:
    return es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task))


def same(one: es.Record, other: es.Record) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in other.columns()]
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def episode(plan: es.Plan, rng: np.random.Generator) -> es.Episode:
    states, actions = [CHAIN.task.initial_state], []
    for h in range(CHAIN.task.horizon):
        actions.append(plan.policy.act(h, states[-1], rng))
        states.append(int(rng.choice(CHAIN.P.shape[-1], p=CHAIN.P[h, states[-1], actions[-1]])))
    return es.Episode(states, actions)


# ---- a run in a process of its own, which is killed -------------------------------------------------------------

QUICK = ("opse-observation", "uniform", "incumbent", "optimum")  # agents that play 20,000 episodes in a second
EPISODES = {"opse": 8_000, "ghosh": 8_000, **dict.fromkeys(QUICK, 20_000)}  # the others: 1,000


def child(kind: str, name: str, folder: str) -> None:
    """What the killed process does: begin or go on."""
    if kind == "bandit":
        bandit, agent, rounds = _bandit(name)
        es.bandits.run(bandit, agent, rounds, 1, folder=folder)
    elif (Path(folder) / "journal.toml").exists():
        es.resume(folder)
    else:
        cmdp = _problem(name)
        es.run(cmdp, build_agent(name, cmdp, replan=None), EPISODES.get(name, 1_000), 1, folder=folder)


def _problem(name: str) -> es.LinearCMDP:
    """One that the agent can be given: hindsight replays what chance brought."""
    return es.make("inventory" if name == "opse-hindsight" else "tabular", seed=1)


def _bandit(name: str):
    from episafe.learning.planner import Every

    bandit, rounds = es.bandits.make("finite", seed=0), 20_000
    return bandit, build_bandit_agent(name, bandit, rounds, 0.05, Every()), rounds


def kills(count: int) -> Outcome:
    """SIGKILL at random moments, several times a run, of every agent in turn; the record must be the same."""
    rng = np.random.default_rng(0)
    jobs = [("run", name) for name in AGENTS] + [("bandit", name) for name in BANDIT_AGENTS]
    made = wrong = runs = 0
    with _often():
        while made < count:
            kind, name = jobs[runs % len(jobs)]
            expected = _expected(kind, name)  # also compiles what the children run
            runs, left = runs + 1, -(-count // len(jobs))
            with tempfile.TemporaryDirectory() as folder:
                while True:
                    process = FORK.Process(target=child, args=(kind, name, folder))
                    process.start()
                    process.join(
                        float(rng.exponential(float(expected.settings["seconds"]) / 4 + 0.1)) if left else None
                    )
                    if process.is_alive():
                        process.kill()
                        process.join()
                        made, left = made + 1, left - 1
                    if process.exitcode != -signal.SIGKILL:
                        break
                whole = process.exitcode == 0 and same(es.Record.load(folder), expected)
                wrong += not (whole and es.audit(folder, None if kind == "run" else _bandit(name)[1]).is_whole)
    return Outcome(made, made - wrong, f"{runs} runs of {len(jobs)} agents; {wrong} records or audits differ")


@contextmanager
def _often() -> Iterator[None]:
    """Batches, syncs and checkpoints much more often than usual: more kinds of moments to be killed at."""
    usual = kept_run.SYNC_EVERY, kept_run.CHECKPOINT_EVERY
    kept_run.SYNC_EVERY, kept_run.CHECKPOINT_EVERY = 0.02, 0.1
    yield
    kept_run.SYNC_EVERY, kept_run.CHECKPOINT_EVERY = usual


_KNOWN: dict[tuple[str, str], es.Record] = {}


def _expected(kind: str, name: str) -> es.Record:
    if (kind, name) not in _KNOWN:
        if kind == "bandit":
            bandit, agent, rounds = _bandit(name)
            _KNOWN[kind, name] = es.bandits.run(bandit, agent, rounds, 1)
        else:
            cmdp = _problem(name)
            _KNOWN[kind, name] = es.run(cmdp, build_agent(name, cmdp), EPISODES.get(name, 1_000), 1)
    return _KNOWN[kind, name]


def live_kills(count: int) -> Outcome:
    """SIGKILL of a live process; every report that it had acknowledged, through a pipe, is in the journal."""
    rng, lost, acknowledged = np.random.default_rng(1), 0, set()
    with tempfile.TemporaryDirectory() as folder:
        for lap in range(count):
            reading, writing = os.pipe()
            process = FORK.Process(target=live_child, args=(folder, lap, writing))
            process.start()
            os.close(writing)
            with os.fdopen(reading) as told:
                first = told.readline()  # on a busy machine it takes a while to begin
                process.join(float(rng.exponential(0.3)))
                process.kill()
                acknowledged |= set((first + told.read()).split("\n")[:-1])
            process.join()
            with es.open(folder, agent=tuned()) as live:
                lost += len(acknowledged - live.reported_ids)
        whole = es.audit(folder).is_whole
    return Outcome(count, count if whole and not lost else 0, f"{len(acknowledged)} reports acknowledged, {lost} lost")


def live_child(folder: str, lap: int, told: int) -> None:
    rng, live = np.random.default_rng(lap), es.open(folder, agent=tuned())
    for i in range(10**6):
        plan = live.plan()
        live.learn(episode(plan, rng), plan_id=plan.id, episode_id=f"{lap}-{i}")
        os.write(told, f"{lap}-{i}\n".encode())


# ---- disks ------------------------------------------------------------------------------------------------------


def full_disk(count: int) -> Outcome:
    """The file may not grow beyond a random size (RLIMIT_FSIZE): the incumbent acts, and reopening loses nothing."""
    rng, survived = np.random.default_rng(2), 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            live, acknowledged = es.open(folder, agent=tuned()), []
            size = (Path(folder) / "journal.log").stat().st_size + int(rng.integers(0, 6_000))
            ended = _until_refused(live, rng, size, acknowledged)
            with es.open(folder, agent=tuned()) as again:
                kept = set(acknowledged) <= again.reported_ids
                went_on = again.plan().id >= 0
            survived += ended and kept and went_on and es.audit(folder).is_whole
    return Outcome(count, survived, "by RLIMIT_FSIZE; incumbent with the reason, nothing acknowledged lost")


def _until_refused(live, rng, size: int, acknowledged: list[str]) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        for i in range(10_000):
            plan = live.plan()
            if plan.id < 0:
                return plan.source == "safe" and "cannot be written" in plan.reason
            try:
                live.learn(episode(plan, rng), plan_id=plan.id, episode_id=str(i))
            except es.NotKept:
                refused = live.plan()
                return refused.source == "safe" and "cannot be written" in refused.reason
            acknowledged.append(str(i))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return False


def read_only(count: int) -> Outcome:
    """A folder that cannot be written: an error that names it, before anything is deployed."""
    survived, root = 0, os.geteuid() == 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            place = Path("/proc/episafe") if root else Path(folder) / "locked"
            if not root:
                place.mkdir()
                place.chmod(0o500)
            try:
                es.open(place / "journal", agent=tuned())
            except OSError as error:
                survived += str(place) in str(error)
    return Outcome(count, survived, "as root by a file system that takes no files" if root else "mode 0500")


def two_processes(count: int) -> Outcome:
    survived = 0
    with tempfile.TemporaryDirectory() as folder, es.open(folder, agent=tuned()) as live:
        live.plan()
        for _ in range(count):
            process = FORK.Process(target=second, args=(folder,))
            process.start()
            process.join()
            survived += process.exitcode == 0
        survived *= live.plan().id >= 0
    return Outcome(count, survived, "the second one is refused, the first goes on")


def second(folder: str) -> None:
    try:
        es.open(folder, agent=tuned())
    except es.InUse:
        return
    sys.exit(1)


# ---- damaged files ----------------------------------------------------------------------------------------------


def _journal(folder: Path, killed: Path | None = None) -> bytes:
    """The log of a folder with 12 reports; in `killed`, the folder as a killed process would have left it."""
    rng = np.random.default_rng(3)
    with es.open(folder, agent=tuned()) as live:
        for i in range(12):
            plan = live.plan()
            live.learn(episode(plan, rng), plan_id=plan.id, episode_id=str(i))
        if killed is not None:
            shutil.copytree(folder, killed)
    return (folder / "journal.log").read_bytes()


def torn_tails(count: int) -> Outcome:
    """The log of a killed process, cut in its last report or with one bit of what that holds flipped: cut off, told."""
    rng, survived = np.random.default_rng(4), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "killed"
        _journal(Path(name) / "closed", folder)
        data, trail = ((folder / file).read_bytes() for file in ("journal.log", "audit.jsonl"))
        last = es_frames(folder)[-1].offset
        for n in range(count):
            place = int(rng.integers(last + (HEAD if n % 2 else 1), len(data)))
            flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            (folder / "journal.log").write_bytes(flipped if n % 2 else data[:place])
            (folder / "audit.jsonl").write_bytes(trail)
            for seen in folder.glob("checkpoint*"):
                seen.unlink()
            with es.open(folder, agent=tuned()) as live:
                told = any("cut off" in fault for fault in live.status().faults)
                survived += live.status().reported == 11 and told
            survived -= not any("cut off" in fault for fault in es.audit(folder).faults)
    return Outcome(
        count, survived, "cut, or of full length and wrong: cut off and told; the 11 reports before it are kept"
    )


def bit_flips(count: int) -> Outcome:
    """One bit of the log of a closed folder flipped: refused, and nothing changed."""
    rng, survived = np.random.default_rng(5), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _journal(folder)
        for bit in rng.integers(8 * len(data), size=count).tolist():
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            (folder / "journal.log").write_bytes(bytes(flipped))
            try:
                es.open(folder, agent=tuned()).close()
            except es.DamagedFile:
                survived += (folder / "journal.log").read_bytes() == bytes(flipped)
    return Outcome(count, survived, "refused with the place, file untouched")


def single_frames(count: int) -> Outcome:
    """Each frame of a journal of all kinds removed or repeated, each two swapped; as they are, and with new hashes."""
    made, wrong, found = 0, [], Counter()
    with _quick_disk():
        for journal, write in product(
            frame_faults.JOURNALS.values(), (frame_faults.as_they_are, frame_faults.chained_anew)
        ):
            with tempfile.TemporaryDirectory() as work:
                one, bad = frame_faults.tried(*journal, write, Path(work), max(1, ALL_FRAMES // count))
            made, wrong, found = made + sum(one.values()), wrong + bad, found + one
    note = ", ".join(f"{name} {number}" for name, number in found.most_common())
    return Outcome(made, made - len(wrong), f"{note}; none resumes exploration")


def repairs(count: int) -> Outcome:
    """Each frame of a live journal spoilt: repaired, halted, no number given twice, all bytes still there."""
    made = survived = 0
    with _quick_disk(), tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "whole"
        frame_faults.live_journal(whole)
        frames, data = es_frames(whole), (whole / "journal.log").read_bytes()
        ends = [*(frame.offset for frame in frames[1:]), len(data)]
        places = [(frame, way) for frame in zip(frames[1:], ends[1:], strict=True) for way in ("flip", "zero", "cut")]
        for (frame, end), way in places[:: max(1, len(places) // count)]:
            shutil.copytree(whole, folder := Path(name) / "one")
            spoilt = bytearray(data)
            if way == "flip":
                spoilt[frame.offset + 70] ^= 1
            elif way == "zero":
                spoilt[frame.offset : end] = bytes(end - frame.offset)
            else:
                del spoilt[frame.offset : end]
            (folder / "journal.log").write_bytes(bytes(spoilt))
            made, survived = made + 1, survived + _is_repaired(folder, frame, bytes(spoilt), frames)
            shutil.rmtree(folder)
    return Outcome(
        made, survived, "kept up to the damage, the rest beside it; halted; no number of a plan or deployment recurs"
    )


def _is_repaired(folder: Path, frame, spoilt: bytes, frames) -> bool:
    found = es.repair(folder)
    kept = (folder / "journal.log").read_bytes()[: frame.offset]
    same = kept + (folder / found.dropped / "journal.log").read_bytes() == spoilt
    given = [max(one.notes[name] for one in frames if one.kind == kind) for name, kind in (("plan", 2), ("id", 3))]
    with es.open(folder, agent=tuned()) as live:
        halted = live.status().stopped.startswith("halted: repaired")
        live.resume_exploring("looked at")
        deployed = live.deploy(np.random.default_rng(0))
    new = deployed.plan.id > given[0] and deployed.id > given[1] and deployed.plan.source == "safe"
    return same and halted and new and es.audit(folder).is_whole


def cut_while_open(count: int) -> Outcome:
    """The log cut at a random byte under a running process: the incumbent acts, the folder is refused afterwards."""
    rng, survived = np.random.default_rng(7), 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            live = es.open(folder, agent=tuned(), sync="plans")
            for i in range(5):
                plan = live.plan()
                live.learn(episode(plan, rng), plan_id=plan.id, episode_id=str(i))
            log = Path(folder) / "journal.log"
            os.truncate(log, int(rng.integers(log.stat().st_size)))
            seen = live.plan()
            acts = seen.source == "safe" and "instead of" in seen.reason
            try:
                live.learn(episode(seen, rng), episode_id="late")
            except es.NotKept:
                acts = acts and live.status().stopped != ""
            live.close()
            try:
                es.open(folder, agent=tuned()).close()
            except es.DamagedFile:
                survived += acts
    return Outcome(count, survived, "seen at the next write: the incumbent with the reason; refused when opened again")


def changed_while_open(count: int) -> Outcome:
    """Log, trail and head cut, emptied, replaced, grown or deleted under a running process, before each kind of act."""
    survived, cases = 0, list(product(session_faults.CHANGES, ("deploy", "learn", "abandon", "halt")))
    cases = cases[:: max(1, len(cases) // count)]
    with _quick_disk():
        for (name, change), act in cases:
            with tempfile.TemporaryDirectory() as folder:
                survived += session_faults.is_seen(Path(folder) / "shop", name, change, act)
    return Outcome(len(cases), survived, "seen at the next write: the incumbent with the reason, nothing acknowledged")


def interruptions(count: int) -> Outcome:
    return _places(count, [session_faults.interrupted], "KeyboardInterrupt before each line of three short sessions")


def failing_calls(count: int) -> Outcome:
    faults = [partial(session_faults.failing, once=once) for once in (True, False)]
    return _places(count, faults, "open, write, fsync, truncate, rename, stat, close …: one, or all from there on")


def _places(count: int, faults: list[Callable], note: str) -> Outcome:
    """Each short session with each fault at each place, or at about `count` of all places."""
    made, wrong = 0, []
    with _quick_disk():
        for fault, session in product(faults, session_faults.SESSIONS):
            with tempfile.TemporaryDirectory() as folder:
                _, places = session_faults.tried(fault, 0, Path(folder) / "shop", session)
            share = max(count // (len(faults) * len(session_faults.SESSIONS)), 1)
            for at in range(1, places + 1, max(1, places // share)):
                with tempfile.TemporaryDirectory() as folder:
                    found, made = session_faults.tried(fault, at, Path(folder) / "shop", session)[0], made + 1
                if found:
                    wrong.append(f"{session}, {at}: {found}")
    note = f"{note}: nothing acknowledged lost, nothing counted twice"
    return Outcome(made, made - len(wrong), "; ".join([note, *wrong[:3]]))


@contextmanager
def _quick_disk() -> Iterator[None]:
    """Nobody waits for the disk: what is tried here does not depend on it."""
    usual, os.fsync = os.fsync, lambda file: None
    try:
        yield
    finally:
        os.fsync = usual


def tampered_trails(count: int) -> Outcome:
    def make(folder: Path, seed: int) -> None:
        es.run(CHAIN, tuned(), 40, seed=seed, folder=folder)

    with tempfile.TemporaryDirectory() as folder:
        found, missed = tampering.detected(count, make, Path(folder), es.audit)
    return Outcome(count, found, f"{', '.join(tampering.WAYS)}; missed: {sorted(set(missed)) or 'none'}")


def lives_with_kills(count: int) -> Outcome:
    """Promoted, changed, withdrawn, halted, resumed and rolled back, with kills in the middle of writes."""
    wrong, kills, acts, refused = [], 0, 0, 0
    for seed in range(count):
        with tempfile.TemporaryDirectory() as parent:
            killed, done = killed_lives.lived(Path(parent) / "life", seed)
            kills, acts, refused = (
                kills + killed,
                acts + len(done),
                refused + len(killed_lives.acts_of(seed)) - len(done),
            )
            wrong += [
                f"life {seed}: {fault}" for fault in killed_lives.faults_of(Path(parent) / "life", seed, done)[:1]
            ]
    note = (
        f"{kills} SIGKILLs in the middle of writes, {acts} acts acknowledged, {refused} refused or made before a kill"
    )
    return Outcome(count, count - len(wrong), "; ".join([note, *wrong[:3]]))


def tampered_lives(count: int) -> Outcome:
    """Trails tampered with, and log and trail forged alike with all hashes made anew."""
    rng, found = np.random.default_rng(0), Counter()
    with tempfile.TemporaryDirectory() as parent, _quick_disk():
        folders = [Path(parent) / str(seed) for seed in range(4)]
        for seed, folder in enumerate(folders):
            killed_lives.lived(folder, seed)
        for n in range(count):
            way, (one, other) = killed_lives.WAYS[n % len(killed_lives.WAYS)], (folders[n % 4], folders[(n + 1) % 4])
            found[killed_lives.found_by(way, one, other, rng, Path(parent)), way] += 1
    by_head = {way: number for (how, way), number in found.items() if how == "head"}
    missed = {way: number for (how, way), number in found.items() if not how}
    note = f"{', '.join(killed_lives.WAYS)}; found only by a head that was kept elsewhere: {by_head or 'none'}; "
    note += f"missed: {missed or 'none'}"
    return Outcome(count, count - sum(missed.values()), note)


def damaged_checkpoints(count: int) -> Outcome:
    """Cut, flipped, holed: never loaded, and the generation before it is taken."""
    agent, survived, tried = tuned(), 0, 0
    es.run(CHAIN, agent, 200, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(Path(folder), agent.state(), {"generation": 0})
        newest = checkpoint.write(Path(folder), agent.state(), {"generation": 1})
        made = list(hostile.damages(newest.read_bytes(), np.random.default_rng(6)))
        for damaged in made[:: max(1, len(made) // count)]:
            newest.write_bytes(damaged)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                survived += checkpoint.read(Path(folder))[1] == {"generation": 0} and len(said) == 1
            tried += 1
    return Outcome(tried, survived, "cut, flipped, holed or blanked: none loads, the generation before takes over")


def hostile_files(count: int) -> Outcome:
    """Each by each reader, in a process with 400 MiB to spare."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, hostile.__file__, folder], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    refused = [found.startswith("refused") and seconds < 1 and not ran for _, _, found, seconds, ran in rows]
    return Outcome(len(rows), sum(refused), f"refused, nothing run, slowest {max(row[3] for row in rows):.2f} s")


def unreadable_files(count: int) -> Outcome:
    """Pipes, devices, folders, sockets, gigabytes in the place of each file, and small tables that are large."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, unreadable.__file__, folder], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    well = [row[3].startswith("refused") or row[1].startswith("checkpoint") for row in rows]
    note = f"refused by name in 400 MiB, checkpoints done without; slowest {max(row[4] for row in rows):.1f} s"
    return Outcome(len(rows), sum(well), note)


# ---- other versions, other incumbents ---------------------------------------------------------------------------

OTHERS = {"episafe_version": "0.0.9", "numpy_version": "1.0", "numba_version": "0.1", "python_version": "3.2"}


def _eager() -> es.OPSE:
    return es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task).replace(C_r=0.1, C_u=0.02))


def _observing() -> es.OPSE:
    return es.OPSE(CHAIN.task, es.Constants.proposing(), certifier=es.certify.Observation(delta=0.1))


def _older_live(folder: str, build: Callable[[], es.OPSE], seed: int) -> None:
    rng = np.random.default_rng(seed)
    with es.open(folder, agent=build(), sync="plans") as live:
        for _ in range(12):
            made = live.deploy(rng)
            live.learn(episode(made, rng), deployment=made.id)


def _older_run(folder: str, build: Callable[[], es.OPSE], seed: int) -> None:
    es.run(CHAIN, build(), 12, seed=seed, folder=folder)


def _changed(way: str):
    """This version, with something of it changed."""
    decide, propose, settings = SoftmaxPlanner.decide, SoftmaxPlanner.propose, es.OPSE.settings

    def bolder(planner):
        found = decide(planner)
        return found if found.source == 0 else found._replace(lam=2 * found.lam + 1)

    def rounding(planner):
        found = decide(planner)
        return found._replace(utility_bound=float(np.nextafter(found.utility_bound, np.inf)))

    return {
        "search": mock.patch.object(SoftmaxPlanner, "decide", bolder),
        "rounding": mock.patch.object(SoftmaxPlanner, "decide", rounding),
        "proposals": mock.patch.object(SoftmaxPlanner, "propose", lambda *given: propose(*given)._replace(lam=7.0)),
        "settings": mock.patch.object(es.OPSE, "settings", lambda agent: settings(agent) | {"more": 1.0}),
    }[way]


def upgrades(count: int) -> Outcome:
    """Folders of another version, audited by one that plans otherwise: no damage, and a forged bound is still found."""
    ways, survived, forged = ("search", "rounding", "proposals", "settings"), 0, 0
    for i in range(count):
        way = ways[i % len(ways)]
        build, make = _observing if way == "proposals" else _eager, (_older_live, _older_run)[i // len(ways) % 2]
        with tempfile.TemporaryDirectory() as good, tempfile.TemporaryDirectory() as bad:
            with mock.patch.object(session_start, "versions", lambda: OTHERS):
                make(good, build, i)
                with (
                    mock.patch.object(session, "figures", _forging),
                    mock.patch.object(kept_run, "batch_arrays", _forged),
                ):
                    make(bad, build, i)
            with _changed(way):
                found, false = es.audit(good), es.audit(bad)
        kept = not found.damage and not found.doubts and found.checked == found.num_plans > 0
        survived += kept and bool(found.otherwise)
        forged += any("did not pass the check" in damage for damage in false.damage)
    released = [
        es.audit(path.parent) for path in sorted(Path(hostile.__file__).parent.glob("formats/*/*/journal.toml"))
    ]
    whole = sum(not found.damage and found.checked == found.num_plans for found in released)
    note = f"search, rounding, proposals or settings changed: no damage; {forged} of {count} forged bounds found; "
    made = 2 * count + len(released)
    return Outcome(made, survived + forged + whole, f"{note}{whole} of {len(released)} folders of releases")


def _forging(agent, plan):
    said = session_book.figures(agent, plan)
    return said | {"bounds": [0.0]} if plan.source in ("zero", "search") else said


def _forged(*given):
    made = batch_frames.batch_arrays(*given)
    bounds = made["bounds"].copy()
    bounds[made["sources"] != 0, 1] = 0.0
    return made | {"bounds": bounds}


def swapped_incumbents(count: int) -> Outcome:
    """Another function, which differs from the incumbent at one state that was visited: refused, seen by an audit."""
    rng, survived = np.random.default_rng(8), 0

    def agent(task) -> es.OPSE:
        return es.OPSE(task, es.Constants.tuned(task))

    for _ in range(count):
        cmdp, seen = by_tuples(), []
        with tempfile.TemporaryDirectory() as folder:
            with es.open(folder, agent=agent(cmdp.task), sync="plans") as live:
                for _ in range(30):
                    made, states, actions = live.deploy(rng), [cmdp.task.initial_state], []
                    for h in range(3):
                        actions.append(int(made.policy.act(h, states[-1], rng)))
                        states.append(cmdp.sample(h, states[-1], actions[-1], rng))
                        seen.append((h, states[h]))
                    live.learn(es.Episode(states, actions), deployment=made.id)
            place = seen[rng.integers(len(seen))]
            policy = cmdp.task.as_policy(lambda h, s, at=place: np.array([0.9, 0.1] if (h, s) == at else [1.0, 0.0]))
            other = replace(cmdp.task, safe_policy=policy)
            try:
                es.open(folder, agent=agent(other)).close()
            except ValueError as error:
                survived += "another incumbent" in str(error) and bool(es.audit(folder, agent=agent(other)).damage)
    return Outcome(count, survived, "by 0.1 at one visited (step, state): refused, and seen by the audit")


# ---- what is assumed and false ----------------------------------------------------------------------------------


def lying_incumbents(count: int) -> Outcome:
    """Incumbents 0.1·H below what is stated: the alarm must come."""
    found = [after for name in monitors.ENVS for after in monitors.lying(name, 0.1, max(1, count // 3))]
    return Outcome(len(found), int(np.isfinite(found).sum()), f"alarm after {np.median(found):.0f} episodes (median)")


def honest_incumbents(count: int) -> Outcome:
    """The control: no alarm."""
    alarms, each = 0, max(2, count // 3)
    for name in monitors.ENVS:
        alarms += sum(int(said.split(" of ")[0]) for said in monitors.honest(name, each, 2_000))
    made = len(monitors.ENVS) * (each + each // 2)
    return Outcome(made, made - alarms, "no alarm: the incumbent alone, and exploring")


def selected_reports(count: int) -> Outcome:
    """Reports late, lost or repeated because of what they say, every claim just true: no alarm of the monitors."""
    ways = list(monitors.ARRIVALS)
    quiet = sum(monitors.false_alarm(ways[seed % len(ways)], seed) == math.inf for seed in range(count))
    return Outcome(count, quiet, f"no alarm of the monitors, {len(ways)} ways to lose, delay and repeat")


def selected_evidence(count: int) -> Outcome:
    """The same under `Observation` and in rollouts, candidates below b: no deployed mixture may be below b.

    δ = 0.05 allows one run in twenty.
    """
    cmdp, ways, violating = late_reports.problem(), [way for way in late_reports.FAULTS if way != "at once"], 0
    for seed in range(-(-count // 2)):
        violating += late_reports.play(cmdp, late_reports.FAULTS[ways[seed % len(ways)]], 200, 40_000 + seed)[0]
    faults = [fault for fault in rollouts.FAULTS if fault != "at once"]
    for seed in range(count // 2):
        violating += rollouts.violates(faults[seed % len(faults)], 40_000 + seed, 400)
    allowed = math.floor(0.05 * count)
    note = f"{violating} of {count} runs violate, where δ allows {allowed}: failures late or lost, all late, repeated"
    return Outcome(count, count - max(violating - allowed, 0), note)


def random_lives(count: int) -> Outcome:
    """Lives of sessions with all that people and disks do: nothing is proved that true outcomes do not prove."""
    worlds, wrong, made = (lives.Release, lives.Observed, lives.Stock), [], 0
    with _quick_disk(), tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            life = lives.Life(worlds[seed % len(worlds)], Path(folder) / str(seed), 50_000 + seed)
            life.go_on(250)
            wrong, made = wrong + life.wrong[:1], made + len(life.issued)
    note = f"{made} deployments, reported by number or plan, late or never, promoted, changed, killed, spoilt, repaired"
    return Outcome(count, count - len(wrong), "; ".join([note, *wrong[:2]]))


def threads(count: int) -> Outcome:
    """One session that several threads use, killed in between: nothing acknowledged is lost, nothing false proved."""
    wrong, made = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            found, deployments = threaded_lives.lived(Path(folder) / str(seed), 70_000 + seed)
            wrong, made = wrong + found[:1], made + deployments
    note = f"{made} deployments by three threads, while a fourth halts, resumes, promotes, changes, withdraws and adds"
    return Outcome(count, count - len(wrong), "; ".join([note, *wrong[:2]]))


def untossed_coins(count: int) -> Outcome:
    """Components that are not drawn by the weights: the alarm must come."""
    ways = [toss for toss in monitors.COINS if toss != "true"]
    found = [after for toss in ways for after in monitors.coin(toss, 0.3, max(1, count // len(ways)))]
    return Outcome(len(found), int(np.isfinite(found).sum()), f"alarm after {np.median(found):.0f} coins (median)")


def misspecified_features(count: int) -> Outcome:
    """Half of the kernel not linear, made to hurt: `Observation` must not violate, the model's certificate does."""
    safe, model = (monitors.misspecified(agent, 0.5, "twins", count) for agent in ("observation", "tuned"))
    violating = sum(bool(record.violating().any()) for record in model)
    survived = sum(not record.violating().any() for record in safe)
    return Outcome(count, survived, f"by Observation; by the model {violating} of {count} violate, as docs say")


def es_frames(folder: Path):
    return list(read(folder / "journal.log", read_head(folder)["genesis"]))


ROWS: list[tuple[str, Callable[[int], Outcome], int]] = [
    ("SIGKILL of simulated runs, all agents", kills, 200),
    ("SIGKILL of a live process", live_kills, 40),
    ("full disk", full_disk, 40),
    ("folder that cannot be written", read_only, 10),
    ("two processes", two_processes, 10),
    ("torn tail of the journal", torn_tails, 100),
    ("bit flip in the journal", bit_flips, 200),
    ("one frame removed, repeated or swapped", single_frames, ALL_FRAMES),
    ("one frame spoilt, then repaired", repairs, 100),
    ("log cut while it is open", cut_while_open, 100),
    ("file changed while it is open", changed_while_open, 100),
    ("interruption at every line", interruptions, 40_000),
    ("every call of the system fails", failing_calls, 4_000),
    ("tampered audit trail", tampered_trails, 1000),
    ("a life with kills in between", lives_with_kills, 50),
    ("tampered life", tampered_lives, 200),
    ("damaged checkpoint", damaged_checkpoints, 700),
    ("hostile file", hostile_files, 200),
    ("something else in the place of a file", unreadable_files, 150),
    ("another version", upgrades, 40),
    ("swapped incumbent", swapped_incumbents, 40),
    ("lying incumbent", lying_incumbents, 60),
    ("honest incumbent", honest_incumbents, 60),
    ("reports selected by what they say: monitors", selected_reports, 200),
    ("reports selected by what they say: certificates", selected_evidence, 200),
    ("random lives of sessions", random_lives, 90),
    ("threads on one session, killed", threads, 60),
    ("coin that is not tossed", untossed_coins, 60),
    ("misspecified features", misspecified_features, 20),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the faults")
    parser.add_argument("--count", type=int, default=0, help="so many of each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    given = parser.parse_args()
    found = {}
    print("| fault | made | survived | |\n|---|---|---|---|", flush=True)
    for name, row, count in ROWS:
        if given.only in name:
            outcome = found[name] = row(given.count or (max(2, count // 20) if given.quick else count))
            print(f"| {name} | {outcome.made} | {outcome.survived} | {outcome.note} |", flush=True)
    if given.json:
        print(json.dumps({name: vars(outcome) for name, outcome in found.items()}, indent=2))
    return int(any(outcome.survived < outcome.made for outcome in found.values()))


if __name__ == "__main__":
    sys.exit(main())
