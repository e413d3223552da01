"""Faults, made on purpose, and what came of them: `make faults` prints the table of docs/reliability.md.

One function a row: it returns how often the fault was made and how often it was survived, and a note. To add a row,
write a function and name it in ROWS. `--quick` makes a twentieth of them.
"""

import argparse
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

import monitors

import episafe as es
import hostile
import tampering
from episafe.deployment.folder import read_head
from episafe.experiments.agent_choice import build_agent, build_bandit_agent
from episafe.registry import AGENTS, BANDIT_AGENTS
from episafe.runs import kept_run
from episafe.storage import checkpoint
from episafe.storage.frames import read

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

EPISODES = {"dope": 1_000, "opse": 8_000, "ghosh": 8_000}  # the others: 20,000


def child(kind: str, name: str, folder: str) -> None:
    """What the killed process does: begin or go on."""
    if kind == "bandit":
        bandit, agent, rounds = _bandit(name)
        es.bandits.run(bandit, agent, rounds, 1, folder=folder)
    elif (Path(folder) / "journal.toml").exists():
        es.resume(folder)
    else:
        cmdp = es.make("tabular", seed=1)
        es.run(cmdp, build_agent(name, cmdp, replan=None), EPISODES.get(name, 20_000), 1, folder=folder)


def _bandit(name: str):
    from episafe.learning.replanning import Every

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
            cmdp = es.make("tabular", seed=1)
            _KNOWN[kind, name] = es.run(cmdp, build_agent(name, cmdp), EPISODES.get(name, 20_000), 1)
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
            process.join(float(rng.exponential(0.3)))
            process.kill()
            with os.fdopen(reading) as told:
                acknowledged |= set(told.read().split("\n")[:-1])
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


def _journal(folder: Path) -> bytes:
    rng = np.random.default_rng(3)
    with es.open(folder, agent=tuned()) as live:
        for i in range(12):
            plan = live.plan()
            live.learn(episode(plan, rng), plan_id=plan.id, episode_id=str(i))
    return (folder / "journal.log").read_bytes()


def torn_tails(count: int) -> Outcome:
    """The log cut at a random byte of its last report: cut off, recorded, and all before it kept."""
    rng, survived = np.random.default_rng(4), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _journal(folder)
        ends = [frame.offset for frame in es_frames(folder)] + [len(data)]
        last = max(i for i, frame in enumerate(es_frames(folder)) if frame.notes.get("id") == "11")
        trail = (folder / "audit.jsonl").read_bytes()
        for _ in range(count):
            (folder / "journal.log").write_bytes(data[: int(rng.integers(ends[last] + 1, ends[last + 1]))])
            (folder / "audit.jsonl").write_bytes(trail)
            for seen in folder.glob("checkpoint*"):
                seen.unlink()
            with es.open(folder, agent=tuned()) as live:
                survived += live.status().reported == 11
            survived -= not any("cut off" in fault for fault in es.audit(folder).faults)
    return Outcome(count, survived, "cut off and recorded; the 11 reports before it are kept")


def bit_flips(count: int) -> Outcome:
    """One bit of the log flipped: refused, with the place, and nothing changed; the last frame only says "closed"."""
    rng, survived = np.random.default_rng(5), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _journal(folder)
        last = es_frames(folder)[-1].offset
        for bit in rng.integers(8 * len(data), size=count).tolist():
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            (folder / "journal.log").write_bytes(bytes(flipped))
            try:
                with es.open(folder, agent=tuned()) as live:
                    told = any("cut off" in fault for fault in live.status().faults)
                    survived += bit // 8 >= last and told and live.status().reported == 12
            except es.DamagedFile:
                survived += (folder / "journal.log").read_bytes() == bytes(flipped)
    return Outcome(count, survived, "refused with the place, file untouched; in the last frame cut off and told")


def tampered_trails(count: int) -> Outcome:
    def make(folder: Path, seed: int) -> None:
        es.run(CHAIN, tuned(), 40, seed=seed, folder=folder)

    with tempfile.TemporaryDirectory() as folder:
        found, missed = tampering.detected(count, make, Path(folder), es.audit)
    return Outcome(count, found, f"{', '.join(tampering.WAYS)}; missed: {sorted(set(missed)) or 'none'}")


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
    ("tampered audit trail", tampered_trails, 1000),
    ("damaged checkpoint", damaged_checkpoints, 700),
    ("hostile file", hostile_files, 200),
    ("lying incumbent", lying_incumbents, 60),
    ("honest incumbent", honest_incumbents, 60),
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
