"""What `es.certify.Roomier` gains where ξ/(b + ξ) < 5 %: the table of docs/choosing.md.

    python benchmarks/small_slack.py          # 30 problems each, 10,000 episodes, seeds from 6000 on
    python benchmarks/small_slack.py 1000 8   # from this seed on, so many

"Half-hearted": the released problem, and an incumbent that takes the action of largest utility or, with a probability
that leaves it 4 % of its utility as slack, any action. "tight": the problem sets of episafe-bench-1, last seeds to
report on; in tabular-tight and streaming-tight no policy has more utility than the incumbent. Settings were chosen on
half-hearted problems and media-tight of seeds 1000 and on.
"""

import sys
from itertools import count as numbers
from itertools import islice

import numpy as np

import episafe as es
from episafe.benchmark.problem_sets import problem_set

EPISODES, DELTA, SHARE, LEAST_GAIN, WINDOW = 10_000, 0.05, 0.04, 0.03, 100
CERTIFIERS = {"Observation": es.certify.Observation, "Roomier": es.certify.Roomier}


def half_hearted(seed, env, **options):
    """The problem of a seed, or None where it has nothing to gain, or random actions are safe."""
    cmdp = es.make(env, seed, **options)
    task, greedy = cmdp.task, cmdp.task.safe_policy.table()
    uniform, limits = np.full_like(greedy, 1 / greedy.shape[2]), np.atleast_1d(task.limits)

    def slacks(share):
        return np.atleast_1d(cmdp.evaluate((1 - share) * greedy + share * uniform)[1]) - limits

    low, high = 0.0, 1.0
    if (slacks(1.0) / (limits + slacks(1.0))).min() >= SHARE:
        return None
    while high - low > 1e-12:
        middle = (low + high) / 2
        keeps = (slacks(middle) / (limits + slacks(middle))).min() >= SHARE
        low, high = (middle, high) if keeps else (low, middle)
    told = {"slack": (slacks(low) - 1e-9).tolist(), "threshold": limits.tolist()}
    made = es.LinearCMDP(
        cmdp.P, task.reward, [one.utility for one in task.constraints], phi=task.phi, initial_state=task.initial_state,
        safe_policy=(1 - low) * greedy + low * uniform, **told,
    )  # fmt: skip
    return made if made.optimal_value() - made.evaluate(made.task.safe_policy)[0] >= LEAST_GAIN else None


def problems(first, count):
    """By name, so many of each."""
    for name, env, options in (
        ("half-hearted tabular", "tabular", {}),
        ("half-hearted streaming", "streaming", {}),
        ("half-hearted tabular, two constraints", "tabular", {"num_constraints": 2}),
    ):
        drawn = ((seed, half_hearted(seed, env, **options)) for seed in numbers(first))
        yield name, list(islice(((seed, cmdp) for seed, cmdp in drawn if cmdp is not None), count))
    for name in ("media-tight", "tabular-tight", "streaming-tight"):
        known = problem_set(name)
        seeds = known.tuning_seeds[:count] if first < 5000 else known.seeds[-count:]
        yield name, [(seed, known.problem(seed)) for seed in seeds]


def _run(cmdp, certifier, seed):
    record = es.run(cmdp, es.OPSE(cmdp.task, certifier=certifier(DELTA)), EPISODES, seed)
    gain = cmdp.optimal_value() - cmdp.evaluate(cmdp.task.safe_policy)[0]
    way = 1 - (cmdp.optimal_value() - record.reward_values) / gain
    reached = np.flatnonzero(np.convolve(way, np.full(WINDOW, 1 / WINDOW), "valid") >= 0.5)
    half = reached[0] + WINDOW if len(reached) else EPISODES
    return record.regret()[-1], EPISODES * gain, half, record.violating().sum()


def main(first=6000, count=30):
    """A row a kind of problem and certifier, and the difference of the two, problem by problem."""
    print("| problems | certifier | regret | of the incumbent's, mean | half of the way, median | violating episodes |")
    print("|---|---|---|---|---|---|")
    for name, drawn in problems(first, count):
        found = {
            label: np.array([_run(cmdp, certifier, seed) for seed, cmdp in drawn])
            for label, certifier in CERTIFIERS.items()
        }
        for label, rows in found.items():
            share = (rows[:, 0] / rows[:, 1]).mean()
            print(f"| {name} | {label} | {rows[:, 0].mean():.0f} | {share:.2f} | {np.median(rows[:, 2]):.0f} | "
                  f"{rows[:, 3].sum():.0f} of {len(rows) * EPISODES:.0e} |", flush=True)  # fmt: skip
        ours, theirs = (found[label][:, 0] / found[label][:, 1] for label in ("Roomier", "Observation"))
        gap = ours - theirs
        half = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap))
        print(f"|   | difference of shares | {gap.mean():.2f} ± {half:.2f} | less in {(gap < 0).sum()}, more in "
              f"{(gap > 0).sum()} of {len(gap)} | | |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
