"""What `es.certify.Box` costs, and how often it is wrong: the tables of docs/theory-certificates.md.

    python benchmarks/box.py regret               # 100 problems each of 10,000 episodes, from seed 200 on
    python benchmarks/box.py regret 0 3           # from this seed on, so many
    python benchmarks/box.py coverage             # 1000 runs of 200 episodes: wrong boxes, and a third of the radius
    python benchmarks/box.py coverage 100

Each prints a Markdown table. Nothing was tuned on these seeds.
"""

import sys
import time

import numpy as np

import episafe as es

ENVS = ("streaming", "tabular")
EPISODES, SHORT, DELTA = 10_000, 200, 0.05


def agent_for(task):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Box(DELTA))


def regret(first=200, count=100):
    """Regret, violating episodes and wrong bounds; by comparison the incumbent's regret."""
    print("| problem | regret | worst | incumbent's | violating episodes | wrong bounds | episodes with a coin | s |")
    print("|---|---|---|---|---|---|---|---|")
    for env in ENVS:
        rows = np.array([_long_run(env, seed) for seed in range(first, first + count)])
        half = 1.96 * rows[:, 0].std(ddof=1) / np.sqrt(count)
        mean, total = rows.mean(axis=0), rows.sum(axis=0)
        print(f"| {env} | {mean[0]:.0f} ± {half:.0f} | {rows[:, 0].max():.0f} | {mean[1]:.0f} | {total[2]:.0f} | "
              f"{total[3]:.0f} | {mean[4]:.0f} | {mean[5]:.2f} |", flush=True)  # fmt: skip


def _long_run(env, seed):
    cmdp = es.make(env, seed)
    began = time.process_time()
    record = es.run(cmdp, agent_for(cmdp.task), EPISODES, seed)
    seconds = time.process_time() - began
    incumbent = EPISODES * (cmdp.optimal_value() - cmdp.evaluate(cmdp.task.safe_policy)[0])
    wrong = (record.utility_bounds > record.utility_values + 1e-9).any()
    coins = (record.weights.max(axis=1) < 1).sum()
    return record.regret()[-1], incumbent, record.violating().sum(), wrong, coins, seconds


def coverage(num_runs=1000):
    """In how many runs the true kernel is ever outside of the box; and of one a third as wide."""
    print("| problem | runs | wrong boxes | a third of the radius | runs with a violating episode |")
    print("|---|---|---|---|---|")
    for env in (*ENVS, "alike"):
        rows = np.array([_short_run(env, seed) for seed in range(num_runs)])
        wrong, third, violating = rows.sum(axis=0)
        print(f"| {env} | {num_runs} | {wrong} | {third} | {violating} |", flush=True)


def _short_run(env, seed):
    cmdp = _alike(seed) if env == "alike" else es.make(env, 10_000 + seed)
    agent = agent_for(cmdp.task)
    record = es.run(cmdp, agent, SHORT, seed)
    certificate = agent.certificate
    certificate.deployment()  # the box of all that was seen: it lies in all boxes before it
    steps, visits = len(certificate.counts), certificate.counts.sum(axis=-1)
    P, centre = cmdp.P[:steps], certificate.counts / np.maximum(visits, 1)[..., None]
    wrong = [
        ((P < centre - share * (centre - certificate.lower)) | (P > centre + share * (certificate.upper - centre)))
        for share in (1 + 1e-12, 1 / 3)
    ]
    return [int(outside[visits > 0].any()) for outside in wrong] + [int(record.violating().any())]


def _alike(seed):
    """A random problem whose steps are alike, and say so."""
    rng, (H, S, A) = np.random.default_rng(seed), (6, 4, 2)
    P = np.repeat(rng.dirichlet(np.full(S, 0.3), (1, S, A)), H, axis=0)
    reward, utility = rng.random((2, H, S, A))
    largest = es.LinearCMDP(P, reward, utility, threshold=-1)
    most = largest.evaluate(largest.task.safe_policy)[1]
    return es.LinearCMDP(P, reward, utility, threshold=0.8 * most, time_homogeneous=True)


if __name__ == "__main__":
    {"regret": regret, "coverage": coverage}[sys.argv[1]](*map(int, sys.argv[2:]))
