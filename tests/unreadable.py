"""What may stand where a file is expected: pipes, devices, folders, far too much. As a script: reads all of it.

python unreadable.py FOLDER    puts each thing in the place of each file, and reads it under limits on memory and time
"""

import json
import os
import resource
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import episafe as es
from episafe.deployment import session as session_module
from episafe.experiments.comparisons import claim
from episafe.logs.tables import read_log
from episafe.runs.record import load_settings

MARGIN, SECONDS = 400 << 20, 5
CHAIN = es.make("streaming", seed=3)


def tuned():
    return es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task))


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def a_socket(path):
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(path))  # such names must be short


def nothing(path):
    with path.open("wb") as file:
        file.truncate(1 << 30)


def lines(path):
    path.write_bytes(b"\n" * (16 << 20))


def grown(path):
    """As it was, and a gigabyte more."""
    with path.open("ab") as file:
        file.truncate(1 << 30)


THINGS = {"pipe": pipe, "folder": Path.mkdir, "device": device, "socket": a_socket, "gigabyte": nothing, "lines": lines}


def live(folder):
    """A live journal with a checkpoint of each generation."""
    session_module.CHECKPOINT_EVERY, kept = 0.0, session_module.CHECKPOINT_EVERY
    rng = np.random.default_rng(0)
    with es.open(folder, agent=tuned()) as session:
        for _ in range(5):
            made = session.deploy(rng)
            session.learn(es.Episode([0] * 5, [0] * 4), deployment=made.id)
    session_module.CHECKPOINT_EVERY = kept


def simulated(folder):
    es.run(CHAIN, tuned(), 30, folder=folder)


def with_log(folder):
    folder.mkdir()
    (folder / "log.csv").write_text("episode,step,state,action,next_state\n")
    shutil.copy(folder / "log.csv", folder / "log.parquet")


def saved(folder):
    CHAIN.save(folder / "problem.npz")
    tuned().save(folder / "agent.npz")
    claim(folder, {"a": 1})


def log_reader(name):
    return lambda folder: list(read_log(folder / name, CHAIN.task))


READERS = {
    live: {
        "open": (lambda folder: es.open(folder, agent=tuned()).close(), "journal.toml journal.log audit.jsonl"),
        "audit": (lambda folder: audited(folder), "journal.toml journal.log audit.jsonl told.npz"),
        "open without checkpoints": (lambda folder: es.open(folder, agent=tuned()).close(), "checkpoint-0.npz"),
    },
    simulated: {
        "resume": (lambda folder: es.resume(folder, 40), "journal.toml journal.log audit.jsonl problem.npz"),
        "audit a run": (lambda folder: audited(folder), "problem.npz journal.log"),
        "record": (es.Record.load, "episodes.npz run.toml"),
        "settings": (load_settings, "run.toml"),
    },
    saved: {
        "problem": (lambda folder: es.LinearCMDP.load(folder / "problem.npz"), "problem.npz"),
        "agent": (lambda folder: tuned().restore(folder / "agent.npz"), "agent.npz"),
        "experiment": (lambda folder: claim(folder, {"a": 1}), "experiment.toml"),
    },
    with_log: {"csv": (log_reader("log.csv"), "log.csv"), "parquet": (log_reader("log.parquet"), "log.parquet")},
}


def audited(folder):
    found = es.audit(folder)
    if found.damage:
        raise es.DamagedFile("; ".join(found.damage))


def small_tables():
    """Parquet files of a few kB that are far larger once they are read: name ↦ columns."""
    count = 1_000_000
    few = {"step": np.zeros(9_000, int), "action": np.zeros(9_000, int), "state": np.zeros(9_000, int)}
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(9_000, np.int32)), pa.array(["x" * 700_000]))
    yield "rows", {name: np.zeros(count, int) for name in ("episode", "step", "action", "state", "next_state")}
    yield (
        "columns",
        {name: np.zeros(90_000, int) for name in ("episode", "step", "action", *(f"state_{i}" for i in range(60)))},
    )
    yield "texts", {"episode": text, **few, "next_state": few["state"]}
    yield "lists", {"episode": pa.array([[0] * 100] * 9_000), **few, "next_state": few["state"]}
    yield "other columns", {"episode": few["step"], **few, "next_state": few["state"], "photo": text}


def put(thing, path):
    """Put a thing in the place of a file, which is kept beside it."""
    shutil.copy(path, f"{path}.kept")
    if thing != "grown":
        path.unlink()
    {**THINGS, "grown": grown}[thing](path)


def put_back(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.replace(f"{path}.kept", path)


def tried(read, *names):
    """One line about what came of reading."""
    start = time.process_time()
    signal.alarm(SECONDS)
    try:
        read()
        found = "loaded"
    except es.DamagedFile as error:
        found = f"refused: {error}"[:300]
    except BaseException as error:
        found = f"raised {type(error).__name__}: {error}"[:300]
    signal.alarm(0)
    print(json.dumps([*names, found, time.process_time() - start]), flush=True)


def ring(*_):
    raise TimeoutError(f"nothing within {SECONDS} s")


def main(folder):
    os.chdir(folder)
    for make in READERS:
        make(Path(make.__name__))
    for name, columns in small_tables():
        pq.write_table(pa.table(columns), f"{name}.parquet", compression="zstd")
        assert os.path.getsize(f"{name}.parquet") < 50_000
    signal.signal(signal.SIGALRM, ring)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + MARGIN, taken + MARGIN))
    for make, readers in READERS.items():
        for name, (reader, files) in readers.items():
            for file in files.split():
                for thing in (*THINGS, "grown"):
                    place = Path(make.__name__)
                    put(thing, place / file)
                    tried(lambda reader=reader, place=place: reader(place), thing, file, name)
                    put_back(place / file)
    for name, _ in small_tables():
        tried(lambda name=name: log_reader(f"{name}.parquet")(Path(".")), name, f"{name}.parquet", "parquet")


if __name__ == "__main__":
    main(sys.argv[1])
