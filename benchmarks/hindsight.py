"""How far `Hindsight` has come on inventory, battery and cloud after so many episodes, on seeds not tuned on.

The share of the way from incumbent to optimum, (V^r of what is deployed − incumbent)/(optimum − incumbent), by exact
values: the mean of the last ten episodes before the column's, over the seeds. Without a log, and with one of 200
traces of the incumbent. One setting for all: `es.OPSE(task)`.

    python benchmarks/hindsight.py                # 20 seeds: ten minutes of one core
    python benchmarks/hindsight.py 5
    python benchmarks/hindsight.py coverage       # 1,000 runs a setting, and the controls that must fail
    python benchmarks/hindsight.py speed          # seconds for 10^5 episodes
"""

import sys
import time

import numpy as np

import episafe as es

AT = (30, 100, 300, 1000)
LOGGED = 200
REAL = ("inventory", "battery", "cloud")


def agent_of(task) -> es.Agent:
    """The agent that is measured."""
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Hindsight(0.05))


def learn_log(cmdp, agent, number: int, seed: int) -> None:
    """Let an agent learn so many episodes of the incumbent, with their traces."""
    rng, task = np.random.default_rng([seed, 77]), cmdp.task
    for _ in range(number):
        agent.learn(task.replay(task.safe_policy, cmdp.draw_trace(rng), rng))


def shares(name: str, seed: int, logged: int) -> tuple[list[float], bool, bool]:
    """The share of the way at each number of episodes; whether any deployed mixture was below b, or a bound wrong."""
    cmdp = es.make(name, seed=seed)
    agent = agent_of(cmdp.task)
    learn_log(cmdp, agent, logged, seed)
    record = es.run(cmdp, agent, AT[-1], seed=seed)
    incumbent = cmdp.evaluate(cmdp.task.safe_policy)[0]
    way = (record.reward_values - incumbent) / (cmdp.optimal_value() - incumbent)
    violates = bool((record.utility_values < cmdp.task.threshold - 1e-9).any())
    wrong = (record.sources != "safe") & (record.utility_bounds > record.utility_values + 1e-9)
    return [float(way[k - 10 : k].mean()) for k in AT], violates, bool(wrong.any())


def progress(num_seeds: int) -> None:
    """One row a problem, without and with a log."""
    print(f"{'':22s} " + " ".join(f"{k:>11d}" for k in AT) + "   violating, wrong bounds")
    for logged in (0, LOGGED):
        for name in REAL:
            found = [shares(name, seed, logged) for seed in range(num_seeds)]
            rows = np.array([way for way, *_ in found])
            middle, error = rows.mean(axis=0), 1.96 * rows.std(axis=0, ddof=1) / np.sqrt(num_seeds)
            cells = " ".join(f"{m:.3f} ± {e:.2f}" for m, e in zip(middle, error, strict=True))
            label = f"{name}, {logged} logged" if logged else name
            violating, wrong = (sum(one[i] for one in found) for i in (1, 2))
            print(f"{label:22s} {cells}   {violating}, {wrong} of {num_seeds}", flush=True)


def speed() -> None:
    """Seconds of the core for 10^5 episodes."""
    for name in REAL:
        cmdp = es.make(name, seed=0)
        es.run(cmdp, agent_of(cmdp.task), 20)  # compiled
        began = time.process_time()
        es.run(cmdp, agent_of(cmdp.task), 100_000)
        print(f"{name:10s} {time.process_time() - began:.1f} s", flush=True)


def main() -> None:
    """What is asked for."""
    asked = sys.argv[1] if len(sys.argv) > 1 else "20"
    if asked == "speed":
        speed()
    else:
        progress(int(asked))


if __name__ == "__main__":
    main()
