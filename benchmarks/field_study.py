"""A field study on days that nobody here made: a house with sun and a battery, one year in its true order.

Load and sun are quarter-hourly profiles of 2016 in the PyPI package simbench, whose files are read and not copied:

    pip install --no-deps simbench
    python benchmarks/field_study.py             # the figures and the picture of docs/field-study.md

Every day is an episode of 24 hours. Chance is what the house takes and the sun gives, and both are seen afterwards, so
that `Hindsight` judges every policy by every day. What was deployed is judged by the day itself, coin integrated.
"""

import math
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import episafe as es
from episafe.learning.hindsight_planner import propose
from episafe.learning.listed_traces import ListedTraces
from episafe.learning.planner import Aim
from episafe.reports.pictures import BLUE, GREY, RED

HOURS, UNIT, UNITS, START, POWER = 24, 0.5, 12, 6, 1.5  # kWh of a unit, units in the battery, and at midnight; kW
LIMIT = 1.2  # kW that the grid should give at most
KWH_A_YEAR, PEAK_SUN = 4500.0, 6.0
PRICE = np.array([0.20] * 6 + [0.30] * 11 + [0.42] * 4 + [0.30] + [0.20] * 2)
FEED_IN, WORST, SPAN = 0.08, 4.0, 5.5  # a kWh; the dearest hour, and the range of an hour's cost
HOLD, OWN_USE, SELL, REST = range(4)
MONTHS = np.repeat(np.arange(12), [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
SKY = "#56B4E9"
HEATING = (0, 1, 10, 11)  # months that have a session of their own
B, SLACK = 21.5, 0.5  # hours a day within the limit; what the incumbent has to spare in every month


def days():
    """Load and sun of every hour of 366 days, kWh, (366, 24, 2)."""
    found = find_spec("simbench")
    if found is None or found.origin is None:
        sys.exit("this study reads the data of the package simbench: pip install --no-deps simbench")
    folder = Path(found.origin).parent / "networks" / "1-complete_data-mixed-all-0-sw"
    columns = [_column(folder / "LoadProfile.csv", "H0-A_pload"), _column(folder / "RESProfile.csv", "PV1")]
    hourly = [column[: 366 * 96].reshape(-1, 4).mean(axis=1) for column in columns]
    load, sun = hourly[0] * KWH_A_YEAR / hourly[0].sum(), hourly[1] * PEAK_SUN
    return np.stack([load, sun], axis=1).reshape(366, HOURS, 2).round(3)


def _column(path, name):
    with path.open() as lines:
        place = next(lines).strip().split(";").index(name)
        return np.array([float(line.split(";")[place]) for line in lines])


def move(h, state, action, w):
    """One hour: what the battery does is said by the action, and follows load and sun within the hour."""
    net = w[0] - w[1]
    wanted = (POWER, min(max(-net, -POWER), POWER), -POWER, 0.0)[action]
    if action in (HOLD, REST) and net + wanted > LIMIT:
        wanted = max(LIMIT - net, -POWER)  # it gives what is above the limit
    units = math.floor(wanted / UNIT + 1e-9)  # towards giving: what is above the limit is covered
    units = min(max(units, -state), UNITS - state)
    grid = net + UNIT * units
    cost = PRICE[h] * max(grid, 0.0) - FEED_IN * max(-grid, 0.0)
    if h == HOURS - 1:
        cost += PRICE[0] * UNIT * (START - state - units)  # it begins every day as full as the last
    return state + units, min(max((WORST - cost) / SPAN, 0.0), 1.0), float(grid <= LIMIT + 1e-9)


def task(threshold, slack):
    """The learner is told `move` and nothing of the law; means of reward and utility are not read."""
    nothing, safe = np.zeros((HOURS, UNITS + 1, 4)), np.zeros((HOURS, UNITS + 1, 4))
    safe[..., HOLD] = 1.0
    limit = es.Constraint(nothing, threshold, slack)
    return es.Task(HOURS, UNITS + 1, 4, nothing, None, START, limit, es.TablePolicy(safe), move=move)


def euros(rewards):
    """What days cost, of their total rewards."""
    return HOURS * WORST - SPAN * rewards


def live(order, told, delta=0.05, seed=0):
    """Days in this order: of each, expected reward and utility of what was deployed, (n, 2); and the session."""
    agent = es.OPSE(told, es.Constants.proposing(), certifier=es.certify.Hindsight(delta))
    session, rng, found = es.open(None, agent=agent), np.random.default_rng(seed), []
    judge = ListedTraces(told)
    for k, day in enumerate(order):
        deployed, trace = session.deploy(rng), (START, tuple(map(tuple, day.tolist())))
        judge.take_in(trace)
        parts = np.array([judge.totals(one, k)[0] for one in deployed.plan.policy.components])
        found.append(deployed.plan.policy.weights @ parts)
        session.learn(told.replay(deployed.policy, trace, rng), deployment=deployed.id)
    return np.array(found), session


def replayed(told, order, policy):
    """Total reward and utility of a policy on each day."""
    traces = ListedTraces(told)
    for day in order:
        traces.take_in((START, tuple(map(tuple, day.tolist()))))
    return traces.totals(policy), traces


def rotated(first):
    """Days of the year in their order, beginning with this month."""
    start = int(np.flatnonzero(first == MONTHS)[0])
    return np.roll(np.arange(len(MONTHS)), -start)


def studied(year, told):
    """Of each way to use it: expected reward and utility of every day of the year, (366, 2), and what monitors said."""
    winter, shuffled = np.isin(MONTHS, HEATING), np.random.default_rng(0).permutation(len(MONTHS))
    sessions = {
        "from January": [rotated(0)],
        "from April": [rotated(3)],
        "shuffled": [shuffled],
        "by season": [np.flatnonzero(winter), np.flatnonzero(~winter)],
    }
    for name, orders in sessions.items():
        found, said = np.zeros((len(MONTHS), 2)), []
        for order in orders:
            found[order], session = live(year[order], told, delta=0.05 / len(orders))
            said.append(session.status().stopped or "no alarm")
        yield name, orders, found, said


def by_month(values):
    """Means of each month, (12,)."""
    return np.array([values[month == MONTHS].mean() for month in range(12)])


def draw(rows, safe, path):
    """What is saved a day and how many hours are kept, month by month; colours as in all pictures of the docs."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11.5, 4.6), layout="constrained")
    left, right = drawn.subplots(1, 2)
    for name, found in rows.items():
        saved = by_month(euros(safe[:, 0]) - euros(found[:, 0]))
        for axes, values in ((left, saved), (right, by_month(found[:, 1]))):
            axes.plot(NAMES, values, LOOKS[name][1], color=LOOKS[name][0], linewidth=LOOKS[name][2], markersize=5)
    left.axhline(0.0, color=GREY, linestyle="--", linewidth=1.5, zorder=1)
    right.plot(NAMES, by_month(safe[:, 1]), "--", color=GREY, linewidth=1.5, zorder=1)
    right.axhline(B, color=RED, linestyle="--", linewidth=1.5, zorder=1)
    low, high = right.get_ylim()
    right.axhspan(low, B, color=RED, alpha=0.12, linewidth=0)
    right.set_ylim(low, high)
    right.text(5.5, B - 0.1, "below the threshold of 21.5 hours", color=RED, ha="center", va="top", fontsize=10)
    left.set_title("Saved a day, against the incumbent", fontsize=10.5)
    right.set_title("Hours a day within the limit of the grid, mean of the month", fontsize=10.5)
    left.set_ylabel("euros")
    right.set_ylabel("hours of 24")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    lines = [*left.get_lines()[: len(rows)], right.get_lines()[len(rows)]]
    names = [LOOKS[name][3] for name in rows]
    drawn.legend(lines, [*names, "incumbent"], loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
    drawn.savefig(path, dpi=130)


# colour, marker and dash, width, and the name: blue is what is recommended, light blue the other ways to learn
LOOKS = {
    "from January": (SKY, "o-", 1.3, "one session, from January"),
    "from April": (SKY, "s--", 1.3, "one session, from April"),
    "shuffled": (SKY, "^:", 1.3, "one session, days shuffled"),
    "by season": (BLUE, "D-", 2.4, "a session a season"),
}


def main():
    """One table, and the picture."""
    year, told, rows = days(), task(B, SLACK), {}
    safe, traces = replayed(told, year, told.safe_policy)
    best = traces.totals(propose(traces, Aim(B)).policy)
    print(f"incumbent: {euros(safe[:, 0]).mean():.2f} euros a day, {safe[:, 1].mean():.2f} hours; ", end="")
    print(f"best of the year at b = {B}: {euros(best[:, 0]).mean():.2f} euros")
    print("incumbent's hours by month:", by_month(safe[:, 1]).round(2), flush=True)
    for name, orders, found, said in studied(year, told):
        rows[name] = found
        saved = euros(safe[:, 0]) - euros(found[:, 0])
        first = saved[orders[0][:30]].mean()
        months = by_month(found[:, 1])
        print(f"{name}: saved a day {saved.mean():.3f}, in the first 30 days {first:.3f}; ", end="")
        print(f"{found[:, 1].mean():.2f} hours; ", end="")
        print(f"months below b: {[NAMES[m] for m in np.flatnonzero(months < B)]}, least {months.min():.2f}; {said}")
        print("   hours by month", months.round(2), "saved by month", by_month(saved).round(2), flush=True)
    draw(rows, safe, sys.argv[1] if len(sys.argv) > 1 else "field-study.png")


if __name__ == "__main__":
    main()
