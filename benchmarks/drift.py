"""Window budgets on real days: true order, shuffled, a sudden change; an adversary; seconds per day.

    python benchmarks/drift.py [days]

Shares are of the best fixed policy in hindsight, a mixture over (weekday, hour, queue or battery level). All totals are
replays, averaged over the draw of the component.
"""

import sys
import time
from datetime import date
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples/data"))

from days import load, play, traces_of
from power import Generators
from road import Booths

import episafe as es
from episafe.certify.budget import Windows
from episafe.certify.ladder import Ladder
from episafe.core.agent import Agent
from episafe.core.types import Plan
from episafe.problems.rules import listed_task

SERIES = {"road": (Booths, 0.9), "power": (Generators, 0.95)}
WINDOW, REFIT = 28, 30


class Rule(Agent):
    """The 95th percentile of what each weekday and hour brought so far, refitted every 30 days: a spreadsheet."""

    def __init__(self, task, rules):
        super().__init__(task)
        self.rules, self.days = rules, []

    def observe(self, episode):
        self.days.append([w[0] for w in episode.trace[1]])

    def decide(self):
        n = len(self.days)
        if n < 14:
            return self.incumbent_plan()
        if n % REFIT == 0 or self._num_plans == 14:
            days, rules = np.array(self.days), self.rules
            capacity = np.array([rules.capacity(a) for a in range(rules.num_actions)])
            needed = np.array([np.quantile(days[days[:, 0] == d, 1:], 0.95, axis=0) for d in range(7)])
            actions = np.minimum((capacity < needed[..., None]).sum(axis=2), rules.num_actions - 1)
            table = self.task.incumbent.table().copy()
            for s, (weekday, _) in enumerate(self.task.state_names):
                if weekday < 7:
                    table[1:, s] = np.eye(rules.num_actions)[actions[weekday]]
            self.policy = es.TablePolicy(table, "rule")
        return Plan(self.policy, "search")


class Unguarded(es.certify.Budget):
    """The ladder's proposals with their full weight."""

    def share(self, plan):
        return 1.0


def best_fixed(task, traces):
    """Return the largest mean reward of a fixed mixture whose mean utility over all days reaches the limit."""
    ladder, b = Ladder(recent=len(traces)), float(task.thresholds[0])
    ladder.start(task)
    for trace in traces:
        ladder.observe(es.Episode(trace=trace))
    means = ladder.traces.totals(ladder.fitted()).mean(axis=1)
    best = 0.0
    for r, u in means:
        for other_r, other_u in means:
            if u >= b:
                p = 1.0 if other_u >= b else (u - b) / (u - other_u)
                best = max(best, p * other_r + (1 - p) * r)
    return best


def agents(task, rules, dates):
    """Return a new agent of each kind, by name."""

    def month(episode_id):
        day = date.fromisoformat(dates[int(episode_id)])
        later = [one for one in dates[int(episode_id) + 1 :] if one[:7] == dates[int(episode_id)][:7]]
        return f"{day:%Y-%m}", len(later)

    def budget():
        return es.certify.Budget(WINDOW, 24.0, calendar=month)

    return {
        "budget": lambda: es.SafeAgent(task, budget()),
        "budget, sure form": lambda: es.SafeAgent(task, es.certify.Budget(WINDOW, 24.0, form="sure", calendar=month)),
        "Hindsight and budget": lambda: es.SafeAgent(task, es.certify.Both(es.certify.Hindsight(), budget())),
        "Hindsight": lambda: es.SafeAgent(task, es.certify.Hindsight()),
        "ladder, no guard": lambda: es.SafeAgent(task, Unguarded(WINDOW, 24.0)),
        "monthly rule": lambda: Rule(task, rules),
    }


def least_month(dates, utilities):
    """Return the least mean of a whole calendar month."""
    months = np.array([one[:7] for one in dates])
    whole = [one for one in dict.fromkeys(months)][: len(set(months)) - (dates[-1][8:] < "28")]
    return min(utilities[months == one].mean() for one in whole)


def compare(name, num_days, kinds, change=None, seed=None):
    """Print one table."""
    make, share = SERIES[name]
    rules, (dates, values) = make(), load(name)
    dates, values = dates[:num_days], values[:num_days].copy()
    if change is not None:
        values[change:] *= 1.4
    traces = traces_of(rules, dates, values)
    if seed is not None:
        traces = [traces[i] for i in np.random.default_rng(seed).permutation(len(traces))]
    task = listed_task(rules, share * 24, slack=(1 - share) * 24)
    best, b, shares = best_fixed(task, traces), share * 24, {}
    what = (
        f"change by 1.4 on day {change}" if change else f"shuffled, seed {seed}" if seed is not None else "true order"
    )
    print(f"\n{name}, {len(traces)} days, {what}: limit {b:g}, best fixed policy {best:.3f} a day")
    print(f"{'':24}{'share':>7}{'windows < b':>13}{'least window':>14}{'months':>9}{'CPU s/day':>11}")
    for kind, build in agents(task, rules, dates).items():
        if kind not in kinds:
            continue
        began, found = time.process_time(), play(build(), traces)
        took = (time.process_time() - began) / len(traces)
        means = np.convolve(found[:, 1], np.ones(WINDOW) / WINDOW, "valid")
        month = least_month(dates, found[:, 1])
        shares[kind] = found[:, 0].mean() / best
        below = int((means < b - 1e-9).sum())
        print(f"{kind:24}{shares[kind]:7.3f}{below:13d}{means.min():14.3f}{month:9.3f}{took:11.3f}", flush=True)
    return shares


def adversary(num_runs=1000, n=28, K=120):
    """Print the least window of adversaries who see the weight, delay reports and lose some."""
    worst, took, days = np.inf, 0.0, 0
    for seed in range(num_runs):
        rng, windows = np.random.default_rng(seed), Windows(n, np.array([0.9]), np.array([0.95]))
        totals, waiting, strikes = [], [], rng.random()
        for t in range(K):
            began = time.process_time()
            share = windows.share(np.zeros(1), "")
            windows.deploy(t, np.array([(1 - share) * 0.95]), "")
            took, days = took + time.process_time() - began, days + 1
            low = rng.random() < strikes or share > 0.5
            totals.append(share * (not low) + (1 - share) * 0.95)
            waiting.append(t)
            while waiting and rng.random() < 0.6:
                k = waiting.pop(int(rng.integers(len(waiting))))
                if rng.random() < 0.05:
                    windows.abandon(k)
                else:
                    windows.settle(k, np.array([totals[k]]))
        worst = min(worst, np.convolve(totals, np.ones(n) / n, "valid").min())
    print(f"\n{num_runs} adversarial sequences: least window {worst:.12f}, limit 0.9; {1e3 * took / days:.3f} ms a day")


def guard_time(num_days=120):
    """Print the time of a day that the guard takes: weight, deployment, replays and settlement."""
    rules, (dates, values) = Booths(), load("road")
    task = listed_task(rules, 21.6, slack=2.4)
    agent = es.SafeAgent(task, es.certify.Budget(WINDOW, 24.0))
    traces = traces_of(rules, dates, values)[:num_days]
    play(agent, traces[:60])
    certifier, took = agent.certifier, []
    for k, trace in enumerate(traces[60:], 10_000):
        began = time.process_time()
        plan = certifier.plan()
        certifier.deployed(k, plan)
        certifier.apply(k, certifier.evidence(k, es.Episode(trace=trace)))
        took.append(time.process_time() - began)
    print(f"guard: {1e3 * np.median(took):.2f} ms a day (median of {len(took)})")


if __name__ == "__main__":
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    everything = list(agents(None, None, None))
    for series in SERIES:
        compare(series, days, everything)
    for series in SERIES:
        runs = [
            compare(series, 365, ["budget", "Hindsight and budget", "Hindsight", "ladder, no guard"], seed=s)
            for s in (1, 2)
        ]
        for guarded, free in (("Hindsight and budget", "Hindsight"), ("budget", "ladder, no guard")):
            loss = np.mean([one[free] - one[guarded] for one in runs])
            print(f"{series}, shuffled: {guarded} earns {loss:.3f} of the way less than {free}")
        compare(series, 365, ["budget", "Hindsight and budget", "monthly rule"], change=200)
    adversary()
    guard_time()
