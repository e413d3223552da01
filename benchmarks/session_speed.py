"""Measure a session: CPU per deploy and report without fsync, and opening a long log.

    python benchmarks/session_speed.py --episodes 100000

Targets: at most 300 µs of CPU per pair, and 5 s to open 10⁵ episodes.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import episafe as es
from episafe.session.file_log import FileLog
from episafe.session.session import Session

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_session import serial_bounds


def problem() -> es.LinearCMDP:
    """Return the listed problem of all measurements."""
    return es.make("tabular", seed=0)


def play(cmdp: es.LinearCMDP, policy: es.Policy, rng: np.random.Generator) -> es.Episode:
    """Play one episode."""
    states, actions = [cmdp.task.initial_state], []
    for h in range(cmdp.task.horizon):
        actions.append(policy.act(h, states[-1], rng))
        sums = np.cumsum(cmdp.P[h, states[-1], actions[-1]])
        states.append(int(np.searchsorted(sums / sums[-1], rng.random(), side="right")))
    return es.Episode(states, actions)


def measure_pairs(folder: Path, number: int) -> list[float]:
    """Return µs of CPU per deploy and report, by blocks of 1,000."""
    cmdp, rng, blocks = problem(), np.random.default_rng(0), []
    session = Session(FileLog(folder, fsync=lambda file: None), es.SafeAgent(cmdp))
    for begin in range(0, number, 1000):
        spent = 0.0
        for _ in range(min(1000, number - begin)):
            start = time.process_time()
            deployment = session.deploy()
            spent += time.process_time() - start
            episode = play(cmdp, deployment.policy, rng)
            start = time.process_time()
            session.report(deployment.id, episode)
            spent += time.process_time() - start
        blocks.append(1e6 * spent / min(1000, number - begin))
    session.close()
    return blocks


def deploy_and_report(folder: Path, number: int, seed: int) -> None:
    """Be one of several processes on one session: up to five deployments under way at once."""
    cmdp, rng, under_way = problem(), np.random.default_rng(seed), []
    with Session(FileLog(folder, fsync=lambda file: None), es.SafeAgent(cmdp)) as session:
        for _ in range(number):
            under_way.append(session.deploy())
            while len(under_way) > rng.integers(1, 6):
                done = under_way.pop(rng.integers(len(under_way)))
                session.report(done.id, play(cmdp, done.policy, rng))
        for done in under_way:
            session.report(done.id, play(cmdp, done.policy, rng))


def interleave(folder: Path, number: int) -> bool:
    """Let two processes deploy on one session; compare two replicas with each other and with a serial replay."""
    workers = [multiprocessing.Process(target=deploy_and_report, args=(folder, number // 2, seed)) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    first, second = (es.open(folder, es.SafeAgent(problem())) for _ in range(2))
    bounds, serial = first.bounds(), serial_bounds(FileLog(folder), es.SafeAgent(problem()))
    equal = first.head == second.head and all(np.array_equal(L, second.bounds()[name]) for name, L in bounds.items())
    larger = sum(bool((bounds[name] > L).any()) for name, L in serial.items() if name in bounds)
    audit = es.audit(folder, agent=es.SafeAgent(problem()))
    print(f"two processes: states equal: {equal}; {larger} bounds of {len(serial)} above a serial replay; {audit}")
    return [worker.exitcode for worker in workers] == [0, 0] and equal and not larger and audit.passed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "one"
        blocks = measure_pairs(folder, options.episodes)
        print(f"deploy + report, no fsync: best {min(blocks):.0f}, median {np.median(blocks):.0f} µs of CPU")
        size = (folder / "log.jsonl").stat().st_size
        spent = []
        for _ in range(3):
            start = time.process_time()
            es.open(folder, es.SafeAgent(problem())).close()
            spent.append(time.process_time() - start)
        print(f"open {options.episodes} episodes ({size / 1e6:.1f} MB): {min(spent):.2f} s of CPU")
        start = time.process_time()
        found = es.audit(folder, agent=es.SafeAgent(problem()))
        print(f"audit: {time.process_time() - start:.2f} s of CPU. {found}")


if __name__ == "__main__":
    main()
