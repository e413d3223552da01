"""Kill a process under load again and again: nothing acknowledged is lost, nothing is applied twice.

    python benchmarks/kills.py --kills 200 --log file
    python benchmarks/kills.py --kills 200 --log postgres --server-kills 50

A child deploys and reports in four threads and writes what was acknowledged to a pipe. It is killed with SIGKILL at a
random time. Then the log is opened, and everything that was acknowledged must be in it, once.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import numpy as np

import episafe as es
from episafe.session.audit import read_lines
from episafe.session.events import Deploy, Report, decode_lines

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
PROBLEM = es.make("tabular", seed=0)


def work(location: str, name: str | None) -> None:
    """Deploy and report until killed; print a line for every acknowledgement."""
    session, mutex = es.open(location, es.SafeAgent(PROBLEM), name), threading.Lock()

    def say(what: str, deployment: int) -> None:
        with mutex:
            os.write(1, f"{what} {deployment}\n".encode())

    def loop(seed: int) -> None:
        rng = np.random.default_rng([seed, os.getpid()])
        while True:
            d = session.deploy()
            if session.is_outdated:
                os._exit(1)  # a supervisor would start it again
            if d.id is None:  # the server is away
                time.sleep(0.02)
                continue
            say("deploy", d.id)
            states = [0, *rng.integers(0, PROBLEM.task.num_states, PROBLEM.task.horizon).tolist()]
            actions = [d.policy.act(h, states[h], rng) for h in range(PROBLEM.task.horizon)]
            while True:
                try:
                    session.report(d.id, es.Episode(states, actions))
                    say("report", d.id)
                    break
                except OSError:
                    time.sleep(0.02)
                except es.InvalidEpisode:  # it was written, and only the acknowledgement was lost
                    break

    for seed in range(4):
        threading.Thread(target=loop, args=(seed,)).start()


def kill_once(
    location: str, name: str | None, rng: random.Random, during: float = 0.3, server=None
) -> list[tuple[str, int]]:
    """Start a child, kill it after a random time, and perhaps the server before; return what it acknowledged."""
    command = [sys.executable, __file__, "--child", location, "--name", name or ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            found: list[bytes] = [child.stdout.readline()]  # it works
            reader = threading.Thread(target=lambda: found.extend(child.stdout))
            reader.start()
            time.sleep(rng.random() * during)
            if server is not None:
                server.kill()
                server.start()
                time.sleep(rng.random() * during)
        finally:
            child.send_signal(signal.SIGKILL)
        reader.join()
    lines = b"".join(found).decode().splitlines()
    return [(what, int(number)) for what, number in (line.split() for line in lines if len(line.split()) == 2)]


def check(location: str, name: str | None, acknowledged: list[tuple[str, int]]) -> tuple[int, int, int]:
    """Return how many acknowledgements are lost, how many reports were applied twice, and how many events there are."""
    deployed, reported, number = [], [], 0
    for event in decode_lines(read_lines(location, name)):
        number += 1
        if isinstance(event.body, Deploy):
            deployed.append(event.body.id)
        elif isinstance(event.body, Report):
            reported.append(event.body.id)
    there = {("deploy", one) for one in deployed} | {("report", one) for one in reported}
    twice = len(reported) - len(set(reported)) + len(deployed) - len(set(deployed))
    return len(set(acknowledged) - there), twice, number


def run(location: str, name: str | None, kills: int, server=None, during: float = 0.3) -> str:
    """Kill and check; return a sentence. Raise if something acknowledged is lost, or applied twice."""
    rng, acknowledged = random.Random(0), []
    for _ in range(kills):
        acknowledged += kill_once(location, name, rng, during, server)
    lost, twice, events = check(location, name, acknowledged)
    repeated = len(acknowledged) - len(set(acknowledged))
    found = es.audit(location, agent=es.SafeAgent(PROBLEM), name=name)
    text = f"{kills} kills, {events} events, {len(acknowledged)} acknowledged: {lost} lost, {twice + repeated} twice"
    if lost or twice or repeated or not found.passed:
        raise AssertionError(f"{text}; {found}")
    return f"{text}; {found.summary}"


def main() -> None:
    """Kill as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--server-kills", type=int, default=0)
    parser.add_argument("--log", choices=["file", "postgres"], default="file")
    parser.add_argument("--child")
    parser.add_argument("--name")
    options = parser.parse_args()
    if options.child:
        return work(options.child, options.name or None)
    if options.log == "file":
        with tempfile.TemporaryDirectory() as folder:
            return print(run(folder, None, options.kills))
    from postgres_server import server

    with server() as found:
        if isinstance(found, str):
            raise SystemExit(found)
        print(run(found.address, str(uuid.uuid4()), options.kills))
        if options.server_kills:
            print("the server too:", run(found.address, str(uuid.uuid4()), options.server_kills, found))


if __name__ == "__main__":
    main()
