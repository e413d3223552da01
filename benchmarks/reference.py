"""Reference results: every agent on as many problems of every set as a budget allows; one small file in the package.

    python benchmarks/reference.py run FOLDER [MINUTES] [BUDGET]   # 1000 episodes a run; goes on where it was stopped
    python benchmarks/reference.py slow FOLDER             # what the quick benchmark leaves out, a few episodes of each
    python benchmarks/reference.py estimate                # what the full benchmark would take
    python benchmarks/reference.py write FOLDER QUICK      # the file, with the quick runs of `episafe benchmark`; rows
                                                           # of more problems at the same multiplier stay

`run` takes one problem of every pair of agent and set after the other, so that one that is stopped early has something
of everything. A pair has BUDGET seconds of one core (60: a hundred problems of OPSE and Observation), an agent without
a theorem of zero violation OTHERS; what needs more than SLOW seconds for its first run is run once.
"""

import sys
import time
from pathlib import Path

from episafe.benchmark.comparison import Comparison, agents_for, comparison, job
from episafe.benchmark.problem_sets import PROBLEM_SETS
from episafe.benchmark.results import REFERENCE, reference, reference_seconds, rows, to_csv
from episafe.experiments.executors import Here
from episafe.experiments.worker_pool import is_done, make_records
from episafe.registry import AGENTS

EPISODES, MOST, SHORT = 1000, 100, 20
BUDGET, OTHERS, SLOW = 6.0, 1.0, 3.0  # seconds of one core
PLACE = Path(__file__).parents[1] / "src" / "episafe" / "benchmark" / REFERENCE


def pairs():
    return [(agent, one) for one in PROBLEM_SETS.values() for agent in agents_for(one)]


def run(folder, minutes=30, budget=BUDGET):
    folder, end, spent, budget = Path(folder), time.monotonic() + 60 * float(minutes), {}, float(budget)
    skipped = {pair for pair, seconds in reference_seconds().items() if seconds * EPISODES / 1e4 > 10 * SLOW}
    for rank in range(MOST):
        for agent, one in pairs():
            each = job(agent, one.name, one.seeds[rank], EPISODES)
            most = budget if AGENTS[agent].proved == "zero" else OTHERS
            if is_done(each, folder) or (agent, one.name) in skipped or spent.get((agent, one.name), 0) > most:
                continue
            if time.monotonic() > end:
                return
            start = time.process_time()
            make_records([each], folder, executor=Here())
            took = time.process_time() - start
            spent[agent, one.name] = spent.get((agent, one.name), 0) + (took if took < SLOW else budget + 1)
        print(f"problem {rank + 1}: {sum(spent.values()):.0f} s so far", flush=True)


def slow(folder):
    """What the quick benchmark leaves out, for SHORT episodes of one problem: for its seconds, an upper bound."""
    left_out = comparison(True, reference_seconds()).left_out
    make_records(list(_slow_jobs(left_out)), Path(folder), executor=Here())


def _slow_jobs(left_out):
    return [job(agent, one, PROBLEM_SETS[one].seeds[0], SHORT) for agent, one in left_out]


def write(folder, quick):
    longer = Comparison(EPISODES, dict.fromkeys([(agent, one.name) for agent, one in pairs()], MOST), {})
    found = rows(longer.jobs(), Path(folder))
    compared = comparison(True, reference_seconds())
    found += rows(compared.jobs(), Path(quick) / "records") + rows(_slow_jobs(compared.left_out), Path(folder))
    kept = {row.place: row for row in reference()}
    for row in found:
        before = kept.get(row.place)
        if before is None or before.multiplier != row.multiplier or before.problems <= row.problems:
            kept[row.place] = row
    PLACE.write_text(to_csv(list(kept.values())))
    print(f"{len(found)} rows of {len(kept)} in {PLACE}")


def estimate():
    """Hours of two cores that the full comparison would take, by the seconds of the reference."""
    seconds = reference_seconds()
    full = comparison(False, seconds)
    total = sum(seconds.get(pair, 0.0) * count for pair, count in full.problems.items())
    unknown = sum(pair not in seconds for pair in full.problems)
    print(f"{full.size()}: {total / 7200:.1f} hours on two cores; {unknown} pairs without seconds")


if __name__ == "__main__":
    {"run": run, "slow": slow, "write": write, "estimate": estimate}[sys.argv[1]](*sys.argv[2:])
