"""Forecasts and what then happened: episodes until a tenth and half of the way from incumbent to optimum are gone.

For each problem: the forecast of `es.forecast` from 200 episodes of the incumbent, and runs of `Observation` with
exact values; of the three that are exogenous also runs of `Hindsight`. Measured is the median over seeds of the first
episode of which the ten before it have gone so far.

    python benchmarks/forecasts.py           # ten problems, 9 seeds each: some minutes
    python benchmarks/forecasts.py 3
"""

import sys

import numpy as np

import episafe as es

PROBLEMS = {
    "inventory": 3000, "battery": 3000, "cloud": 3000, "streaming": 3000, "tabular": 10_000, "linear": 3000,
    "media": 3000, "ring": 10_000, "stepmix": 10_000, "riverswim": 10_000,
}  # fmt: skip
WINDOW = 10
SHARES = (0.1, 0.5)


HINDSIGHT = {"inventory": 300, "battery": 300, "cloud": 300}


def measured(name: str, seed: int, num_episodes: int, certifier: object) -> list[float]:
    """Episodes until each share of the way is gone; infinite for not in this run."""
    cmdp = es.make(name, seed)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier)
    record = es.run(cmdp, agent, num_episodes, seed)
    assert not record.violation()[-1] > 1e-9, (name, seed)
    incumbent = cmdp.evaluate(cmdp.task.safe_policy)[0]
    way = (record.reward_values - incumbent) / (cmdp.optimal_value() - incumbent)
    smooth = np.convolve(way, np.ones(WINDOW) / WINDOW, mode="valid")
    there = [np.flatnonzero(smooth >= share) for share in SHARES]
    return [float(found[0] + WINDOW) if len(found) else np.inf for found in there]


def main() -> None:
    """One row a problem."""
    num_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    print("| problem | forecast: a tenth, half | measured: a tenth, half (least, most) | half, measured / forecast |")
    print("|---|---|---|---|")
    rows = [(*row, es.certify.Observation(), "coin") for row in PROBLEMS.items()]
    rows += [(*row, es.certify.Hindsight(), "hindsight") for row in HINDSIGHT.items()]
    for name, longest, certifier, evidence in rows:
        said = es.forecast(es.make(name, 0), evidence=evidence)
        found = np.array([measured(name, seed, longest, certifier) for seed in range(num_seeds)])
        tenth, half = np.median(found, axis=0)
        shown = f"{tenth:,.0f}, {half:,.0f} ({found[:, 1].min():,.0f}, {found[:, 1].max():,.0f})"
        print(
            f"| {name}, {certifier.name} | {said.first:,.0f}, {said.half:,.0f} | {shown} | {half / said.half:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
