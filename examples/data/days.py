"""What the examples on real days share: a loader, a loop over days in their order, and a picture."""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import episafe as es
from episafe.certify.replays import replays_of
from episafe.problems.rules import listed_task


def load(name):
    """Return the dates and the hourly values (days, 24) of a series in this folder."""
    with (Path(__file__).parent / f"{name}.csv").open() as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))[1:]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=float)


def traces_of(rules, dates, values):
    """Return one trace per day: the weekday, then what each hour brings, in units."""
    weekdays = [int(np.datetime64(date, "D").astype(int) + 3) % 7 for date in dates]
    hours = np.minimum(np.round(values / rules.unit).astype(int), rules.most - 1)
    return [(0, ((day,), *((int(w),) for w in row))) for day, row in zip(weekdays, hours, strict=True)]


def play(agent, traces):
    """Let an agent act on days in order; return reward and utility by replay, and weight, of each day, (days, 3)."""
    task, found, rng = agent.task, [], np.random.default_rng(0)
    replays = replays_of(task, "examples")
    for trace in traces:
        plan = agent.plan()
        mixture = isinstance(plan.policy, es.Mixture)
        policies = plan.policy.components if mixture else (plan.policy,)
        weights = plan.policy.weights if mixture else np.ones(1)
        names = plan.policy.names if mixture else ("incumbent" if plan.source == "safe" else "",)
        totals = weights @ replays.totals(policies, [replays.read(trace)], [0])[:, 0]
        weight = sum(w for w, name in zip(weights, names, strict=True) if name != "incumbent")
        found.append((totals[0], totals[1], weight))
        component = int(rng.choice(len(policies), p=weights))
        states, rows = [task.initial_state], []
        for h, w in enumerate(trace[1]):
            action = policies[component].act(h, states[-1], rng)
            following, reward, utilities = task.move(h, states[-1], action, w)
            states.append(following)
            rows.append((action, reward, utilities))
        actions, rewards, utilities = zip(*rows, strict=True)
        agent.learn(es.Episode(states, actions, rewards, utilities, component if mixture else None, trace), plan.id)
    return np.array(found)


def picture(path, title, dates, found, limit, unit, window=28):
    """Draw the weight, the window mean and the limit."""
    days = np.array(dates[: len(found)], dtype="datetime64[D]")
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
    above.plot(days, found[:, 2], color="#0072B2", linewidth=1)
    above.set(ylabel="weight", ylim=(0, 1.05), title=title)
    means = np.convolve(found[:, 1], np.ones(window) / window, "valid")
    below.plot(days, found[:, 1], ".", color="#999999", markersize=2, label="a day")
    below.plot(days[window - 1 :], means, color="#009E73", label=f"mean of the last {window} days")
    below.axhline(limit, color="#D55E00", label=f"limit {limit:g}")
    below.set(ylabel=unit, ylim=(limit - 0.25 * abs(limit), None))
    below.legend(loc="lower right", ncols=3, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def run(name, rules, share, num_days, path=None):
    """Play a series with a window budget; print what came of it."""
    dates, values = load(name)
    hours, traces = rules.horizon - 1, traces_of(rules, dates, values)[:num_days]
    task = listed_task(rules, share * hours, slack=(1 - share) * hours)
    agent = es.SafeAgent(task, es.certify.Budget(window=28, incumbent_least=hours))
    found = play(agent, traces)
    worst = np.convolve(found[:, 1], np.ones(28) / 28, "valid").min()
    print(f"{name}: reward {found[:, 0].mean():.2f} a day, worst 28 days {worst:.2f}, limit {share * hours:g}")
    if path is not None:
        title = f"{name}, {dates[0]} to {dates[len(found) - 1]}"
        picture(path, title, dates, found, share * hours, rules.units["utility"])
    return found
