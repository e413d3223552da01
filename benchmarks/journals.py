"""What a live journal costs: pairs of plan and report a second by threads, and opening a folder again.

    python benchmarks/journals.py [--episodes 100000] [--folder .]    # on the disk of that folder

The pairs wait for the disk; the episodes before reopening do not, so that they take a minute and not an hour.
"""

import argparse
import os
import tempfile
import threading
import time

import numpy as np

import episafe as es

CMDP = es.make("streaming", seed=0)


def agent():
    return es.OPSE(CMDP.task, es.Constants.tuned(CMDP.task))


def report(session, rng, name=None):
    """One deployment, played and reported."""
    made = session.deploy(rng)
    states, actions = [CMDP.task.initial_state], []
    for h in range(CMDP.task.horizon):
        actions.append(made.policy.act(h, states[-1], rng))
        states.append(int(np.searchsorted(np.cumsum(CMDP.P[h, states[-1], actions[-1]]), rng.random())))
    session.learn(es.Episode(states, actions), deployment=made.id, episode_id=name)


def pairs(num_threads, folder, total=400):
    """Pairs of plan and report a second."""

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(total // num_threads):
            report(session, rng)

    with tempfile.TemporaryDirectory(dir=folder) as place, es.open(place, agent=agent()) as session:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(num_threads)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return total / (time.perf_counter() - begun)


def reopening(num_episodes, folder):
    """Seconds to open a folder with so many episodes again."""
    rng, fsync = np.random.default_rng(0), os.fsync
    with tempfile.TemporaryDirectory(dir=folder) as place:
        os.fsync = lambda file: None
        try:
            with es.open(place, agent=agent(), sync="plans") as session:
                for k in range(num_episodes):
                    report(session, rng, k)
        finally:
            os.fsync = fsync
        begun = time.perf_counter()
        with es.open(place, agent=agent()) as session:
            took = time.perf_counter() - begun
            assert session.status().reported == num_episodes
    return took


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--folder", default=".")
    asked = parser.parse_args()
    for threads in (1, 4, 16):
        print(f"{threads} threads: {pairs(threads, asked.folder):.0f} pairs a second")
    print(f"opening {asked.episodes} episodes again: {reopening(asked.episodes, asked.folder):.2f} s")
