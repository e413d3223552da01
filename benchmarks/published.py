"""Published figures beside ours, and the growth in 1/ξ that shipped constants hide; the tables of docs/benchmark.md.

python benchmarks/published.py ghosh [SEEDS]            # streaming, 10,000 episodes, by the text and as released
python benchmarks/published.py slack FOLDER [SEEDS]     # regret by 1/ξ, 10,000 episodes; records are kept in FOLDER
"""

import sys
from pathlib import Path

import numpy as np

import episafe as es
from episafe.benchmark import scaling
from episafe.experiments.agent_choice import build_agent
from episafe.experiments.executors import Here
from episafe.experiments.worker_pool import make_records
from episafe.stats import t_interval

EPISODES = 10_000


def ghosh(seeds=10):
    for agent in ("ghosh", "ghosh-released"):
        found = []
        for seed in range(int(seeds)):
            cmdp = es.make("streaming", seed)
            found.append(es.run(cmdp, build_agent(agent, cmdp), EPISODES, seed).violation()[-1])
        mean, half = t_interval(np.array(found))
        print(f"{agent}: violation {mean:.0f} ± {half:.0f} over {seeds} problems; published 2701")


def slack(folder, seeds=10):
    scaling.AXES = {"1/ξ": scaling.AXES["1/ξ"]}
    scaling.LINES = scaling.LINES[:3]
    for each in scaling.jobs(int(seeds), EPISODES):
        make_records([each], Path(folder), executor=Here())
    for line in scaling.LINES:
        records = scaling._records("1/ξ", line, range(4), int(seeds), EPISODES, Path(folder))
        at = [1 / options["share"] for options in scaling.AXES["1/ξ"][1]]
        regret = [[record.regret()[-1] for record in of] for of in records]
        one = scaling._fitted("1/ξ", line, at, regret, records)
        means = ", ".join(f"{value:.0f}" for value in one.regret)
        print(f"{one.label}: exponent {one.exponent:.2f} ± {one.half_width:.2f}; regret {means} at 1/ξ = {one.x}")


if __name__ == "__main__":
    {"ghosh": ghosh, "slack": slack}[sys.argv[1]](*sys.argv[2:])
