"""Compare forecasts from 200 episodes of the incumbent with runs, on problems that no setting was chosen on.

    python benchmarks/strangers.py forecast

Half of the gain: the middle of the first 20 deployed policies that have on average half of what the optimum gains.
Target: the median of the runs within a factor of 2 of the forecast on 6 of 8 problems and never beyond 4, or the
forecast says that it cannot tell.
"""

import math
import time

import numpy as np
from hindsight_plan import CallCentre

import episafe as es
from episafe.lab.forecast import episodes_of, forecast, half_way
from episafe.problems.rules import listed

SMALL = {"num_states": 6, "num_actions": 3, "horizon": 5}
PROBLEMS = {  # seeds from 700 on: the forecast was written on sets of the benchmark, whose seeds are others
    "inventory": lambda: es.make("inventory", 700),
    "battery": lambda: es.make("battery", 700),
    "cloud": lambda: es.make("cloud", 700),
    "call centre": lambda: listed(CallCentre(), 10.8),
    "random 6 x 3": lambda: es.make("tabular", 701, **SMALL),
    "random 6 x 3, tight": lambda: es.make("tabular", 702, threshold_scale=0.8, **SMALL),
    "ring": lambda: es.make("ring", 703),
    "streaming": lambda: es.make("streaming", 704),
}
EPISODES = 10_000, 2_000  # of a run; of one with replays


def compare(name: str, num_runs: int) -> tuple[str, float]:
    """Return a line on one problem, and by which factor the forecast is off; NaN if it says that it cannot tell."""
    began, problem = time.process_time(), PROBLEMS[name]()
    found = forecast(problem.task, episodes_of(problem, 200, 1))
    took = time.process_time() - began
    start, optimum = problem.evaluate(problem.task.incumbent)[0], problem.optimal_value()
    length, measured = EPISODES[problem.task.move is not None], list[float]()
    for seed in range(num_runs):
        record = es.run(problem, es.SafeAgent(problem), length, seed=900 + seed)
        measured.append(half_way((record.reward_values - start) / (optimum - start)))
    median = float(np.median(measured))
    line = f"measured {median:,.0f} ({min(measured):,.0f} to {max(measured):,.0f}); {found}; {took:.1f} s"
    if math.isnan(found.half) or found.half == median:
        return line, math.nan if math.isnan(found.half) else 1.0
    return line, max(found.half / median, median / found.half)
