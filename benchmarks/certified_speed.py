"""Episodes per second of SafeAgent with `Observation`, and what a second limit costs.

    python benchmarks/certified_speed.py [NUM_EPISODES]

The script also runs with the first edition, whose agent of the same name was OPSE, for numbers from one machine. All
times are CPU times of the best of three runs in one process, without compilation.
"""

import os
import sys
import time

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np

import episafe as es

CASES = {
    "tabular": {}, "streaming": {}, "linear": {},
    "queue": {}, "tabular, two limits": {"num_constraints": 2}, "queue, two limits": {"num_constraints": 2},
}  # fmt: skip


def make_agent(cmdp):
    """Return a new agent with the default certifier of one δ."""
    certifier = es.certify.Observation(delta=0.05)
    return es.SafeAgent(cmdp, certifier) if hasattr(es, "SafeAgent") else es.OPSE(cmdp.task, certifier=certifier)


def run_seconds(name, options, num_episodes):
    """Return the CPU seconds of a run: the best of three."""
    found = []
    for _ in range(3):
        cmdp = es.make(name, seed=0, **options)
        cmdp.optimal_value()
        agent, began = make_agent(cmdp), time.process_time()
        es.run(cmdp, agent, num_episodes, seed=0)
        found.append(time.process_time() - began)
    return min(found)


def decision_seconds(name, options, num_decisions=300):
    """Return the median CPU seconds of one decision between proposals, after 500 episodes."""
    cmdp = es.make(name, seed=0, **options)
    agent = make_agent(cmdp)
    es.run(cmdp, agent, 500, seed=0)
    took = []
    for _ in range(num_decisions):
        began = time.process_time_ns()
        agent.plan() if hasattr(es, "SafeAgent") else agent.certificate.deployment()
        took.append((time.process_time_ns() - began) / 1e9)
    return float(np.median(took))


def main():
    """Print one line per case, and the ratios of two limits to one."""
    num_episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seconds, decisions = {}, {}
    for label, options in CASES.items():
        name = label.partition(",")[0]
        run_seconds(name, options, 200)
        seconds[label], decisions[label] = run_seconds(name, options, num_episodes), decision_seconds(name, options)
        rate = num_episodes / seconds[label]
        print(
            f"{label:24} {rate:10.0f} episodes per second   {1e6 * decisions[label]:8.1f} µs per decision", flush=True
        )
    for name in ("tabular", "queue"):
        label = f"{name}, two limits"
        ratios = seconds[label] / seconds[name], decisions[label] / decisions[name]
        print(f"{name}: two limits cost {ratios[0]:.2f} times a run and {ratios[1]:.2f} times a decision")


if __name__ == "__main__":
    main()
