"""Episodes per second of SafeAgent with `Observation`, and what a second limit costs it and OPSE.

    python benchmarks/certified_speed.py [NUM_EPISODES]

All times are CPU times of the best of three runs in one process, without compilation.
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
    return es.SafeAgent(cmdp, es.certify.Observation(delta=0.05))


OPSE = {  # Algorithm 2 with constants of the paper before every episode, and with tuned ones by `Doubling`
    "paper": (lambda cmdp: es.OPSE(cmdp, es.Constants.paper("tabular"), es.Every()), 2_000),
    "tuned": (lambda cmdp: es.OPSE(cmdp, es.Constants.tuned(cmdp), es.Doubling(0.3)), 20_000),
}


def run_seconds(name, options, num_episodes, make=make_agent, seed=0):
    """Return the CPU seconds of a run: the best of three."""
    found = []
    for _ in range(3):
        cmdp = es.make(name, seed=seed, **options)
        cmdp.optimal_value()
        agent, began = make(cmdp), time.process_time()
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
        agent.plan()
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
    for label, (make, length) in OPSE.items():
        for name in ("tabular", "queue"):
            costs = []
            for seed in range(5):
                run_seconds(name, {"num_constraints": 2}, 50, make, seed)
                one, two = (run_seconds(name, {"num_constraints": m}, length, make, seed) for m in (1, 2))
                costs.append(two / one)
            ratios = " ".join(f"{ratio:.2f}" for ratio in sorted(costs))
            print(f"OPSE, {label} constants, {name}: two limits cost {ratios} times one, five problems", flush=True)


if __name__ == "__main__":
    main()
