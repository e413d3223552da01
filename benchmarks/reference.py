"""Reference results: every agent on as many problems of every set as a budget allows; one small file in the package.

    python benchmarks/reference.py run FOLDER [MINUTES] [BUDGET]   # 1000 episodes a run; goes on where it was stopped
    python benchmarks/reference.py slow FOLDER             # what the quick benchmark leaves out, a few episodes of each
    python benchmarks/reference.py estimate                # what the full benchmark would take
    python benchmarks/reference.py full FOLDER [MINUTES]   # runs of the full benchmark that are not in full_runs.csv.gz
    python benchmarks/reference.py gather FOLDER           # add those of a folder of records to it
    python benchmarks/reference.py table                   # who wins where, as docs/benchmark.md has it
    python benchmarks/reference.py write FOLDER QUICK      # the file, with the quick runs of `episafe benchmark`; rows
                                                           # of more problems at the same multiplier stay

`run` takes one problem of every pair of agent and set after the other, so that one that is stopped early has something
of everything. A pair has BUDGET seconds of one core (60: a hundred problems of OPSE and Observation), an agent without
a theorem of zero violation OTHERS; what needs more than SLOW seconds for its first run is run once.

The full benchmark takes hours. `benchmarks/full_runs.csv.gz` has one line for each of its runs that was made, so that
`full` goes on where somebody else has stopped, problem by problem; `write` makes its rows of them.
"""

import csv
import gzip
import io
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path

from episafe.benchmark.comparison import REFERENCE_EPISODES, Comparison, agents_for, job
from episafe.benchmark.problem_sets import PROBLEM_SETS
from episafe.benchmark.results import (
    REFERENCE,
    Run,
    planned,
    read_run,
    reference,
    reference_seconds,
    rows,
    rows_of,
    to_csv,
)
from episafe.experiments.executors import Here
from episafe.experiments.worker_pool import is_done, make_records
from episafe.registry import AGENTS
from episafe.runs.record import Record, is_complete

EPISODES, MOST, SHORT = 1000, 100, 20
BUDGET, OTHERS, SLOW = 6.0, 1.0, 3.0  # seconds of one core
PLACE = Path(__file__).parents[1] / "src" / "episafe" / "benchmark" / REFERENCE
FULL_RUNS = Path(__file__).parent / "full_runs.csv.gz"
NAMES = [each.name for each in fields(Run)]
AT_ONCE = 500  # runs of the full benchmark between two looks at the clock


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
    left_out = planned(True).left_out
    make_records(list(_slow_jobs(left_out)), Path(folder), executor=Here())


def _slow_jobs(left_out):
    return [job(agent, one, PROBLEM_SETS[one].seeds[0], SHORT) for agent, one in left_out]


def full_runs():
    """The runs of the full benchmark that were made, by agent, set, multiplier and seed."""
    if not FULL_RUNS.is_file():
        return {}
    lines = csv.DictReader(gzip.decompress(FULL_RUNS.read_bytes()).decode().splitlines())
    return {
        (line["agent"], line["set"], float(line["multiplier"]), int(line["seed"])): Run(
            *(float(line[name]) for name in NAMES[:-1]), int(line[NAMES[-1]])
        )
        for line in lines
    }


def full_job(agent, one, seed):
    return job(agent, one, seed, REFERENCE_EPISODES)


def full_jobs():
    """All jobs of the full comparison, problem by problem."""
    return planned(False).jobs()


def place_of(each):
    return each.agent, each.env, each.multiplier, each.seed


def full(folder, minutes=120):
    """Make what is missing, in this order, until the minutes are over, and write it down."""
    end, known = time.monotonic() + 60 * float(minutes), full_runs()
    missing = [each for each in full_jobs() if place_of(each) not in known]
    for first in range(0, len(missing), AT_ONCE):
        if time.monotonic() > end:
            break
        make_records(missing[first : first + AT_ONCE], Path(folder))
        gather(folder)
    print(f"{len(full_runs())} of {len(full_jobs())} runs of the full benchmark are made")


def gather(folder):
    """Write down the runs of a folder that are not written down yet; a line a run, sorted."""
    known, folder = full_runs(), Path(folder)
    every = [full_job(agent, one.name, seed) for agent, one in pairs() for seed in one.seeds]
    for each in every:
        if place_of(each) not in known and is_complete(folder / each.name):
            known[place_of(each)] = read_run(Record.load(folder / each.name))
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["agent", "set", "multiplier", "seed", *NAMES])
    for (agent, one, factor, seed), run in sorted(known.items()):
        values = [f"{value:.9g}" for value in asdict(run).values()]
        lines.writerow([agent, one, f"{factor:g}", seed, *values])
    FULL_RUNS.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    print(f"{len(known)} runs in {FULL_RUNS.name}")


def full_rows():
    """Rows of the full benchmark, of the runs at the multipliers that are chosen now."""
    made = [(full_job(agent, one, seed), factor, run) for (agent, one, factor, seed), run in full_runs().items()]
    return rows_of((each, run) for each, factor, run in made if each.multiplier == factor)


def table():
    """Who wins where by the rows of 10,000 episodes: of agents with a theorem of zero violation, and of the others."""
    found = [row for row in reference() if row.episodes == REFERENCE_EPISODES]
    print("| set | best with a theorem of zero violation | next | without one: violate / all | best of them |")
    print("|---|---|---|---|---|")
    for one in PROBLEM_SETS:
        of = sorted((row for row in found if row.set == one), key=lambda row: row.regret)
        promised = [row for row in of if AGENTS[row.agent].proved == "zero" and not row.violating]
        others = [row for row in of if AGENTS[row.agent].proved != "zero"]
        unsafe, kept = [row for row in others if row.violating], [row for row in others if not row.violating]
        cells = [
            f"`{one}`",
            *(map(said, promised[:2])),
            f"{len(unsafe)} / {len(others)}",
            said(kept[0]) if kept else "–",
        ]
        print(f"| {' | '.join(cells)} |")
    for row in found:
        if AGENTS[row.agent].proved == "zero" and row.violating:
            print(f"{row.agent} violates on {row.violating} of {row.problems} problems of {row.set}")
    runs = [row.problems for row in found if AGENTS[row.agent].proved == "zero"]
    print(f"{sum(row.problems for row in found)} runs of {len(found)} pairs; {sum(runs)} by agents with a theorem")


def said(row):
    return f"`{row.agent}` {row.regret:.2f} ± {row.regret_half_width:.2f} ({row.problems})"


def write(folder, quick):
    longer = Comparison(EPISODES, dict.fromkeys([(agent, one.name) for agent, one in pairs()], MOST), {})
    found = rows(longer.jobs(), Path(folder))
    compared = planned(True)
    found += rows(compared.jobs(), Path(quick) / "records") + rows(_slow_jobs(compared.left_out), Path(folder))
    kept = {row.place: row for row in reference()} | {row.place: row for row in full_rows()}
    for row in found:
        before = kept.get(row.place)
        if before is None or before.multiplier != row.multiplier or before.problems <= row.problems:
            kept[row.place] = row
    PLACE.write_text(to_csv(list(kept.values())))
    print(f"{len(found)} rows of {len(kept)} in {PLACE}")


def estimate():
    """Hours of two cores that the full comparison would take, by the seconds of the reference."""
    seconds, full = reference_seconds(), planned(False)
    total = sum(seconds.get(pair, 0.0) * count for pair, count in full.problems.items())
    unknown = sum(pair not in seconds for pair in full.problems)
    print(f"{full.size()}: {total / 7200:.1f} hours on two cores; {unknown} pairs without seconds")


if __name__ == "__main__":
    {"run": run, "slow": slow, "write": write, "estimate": estimate, "full": full, "gather": gather, "table": table}[
        sys.argv[1]
    ](*sys.argv[2:])
