"""How far `Hindsight` has come on inventory, battery and cloud after so many episodes, on seeds not tuned on.

The share of the way from incumbent to optimum, (V^r of what is deployed − incumbent)/(optimum − incumbent), by exact
values: the mean of the last ten episodes before the column's, over the seeds. Without a log, and with one of 200
traces of the incumbent. One setting for all: `es.OPSE(task)`.

    python benchmarks/hindsight.py                # 20 seeds: five minutes of one core
    python benchmarks/hindsight.py 5
    python benchmarks/hindsight.py coverage       # 1,000 runs a setting, and the controls that must fail: five minutes
    python benchmarks/hindsight.py coverage 100
    python benchmarks/hindsight.py speed          # seconds for 10^5 episodes
"""

import sys
import time
from dataclasses import dataclass, replace

import numpy as np

import episafe as es
from episafe.certify.hindsight import NUM_ROWS
from episafe.learning.hindsight_planner import propose
from episafe.learning.listed_traces import ListedTraces
from episafe.learning.planner import Aim
from episafe.problems.rules import Rules, listed
from episafe.stats import rate_interval

AT = (30, 100, 300, 1000)
LOGGED = 200
REAL = ("inventory", "battery", "cloud")


def agent_of(task) -> es.Agent:
    """The agent that is measured."""
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Hindsight(0.05))


def learn_log(cmdp, agent, number: int, seed: int) -> None:
    """Let an agent learn so many episodes of the incumbent, with their traces."""
    rng, task = np.random.default_rng([seed, 77]), cmdp.task
    for _ in range(number):
        agent.learn(task.replay(task.safe_policy, cmdp.draw_trace(rng), rng))


def shares(name: str, seed: int, logged: int) -> tuple[list[float], bool, bool]:
    """The share of the way at each number of episodes; whether any deployed mixture was below b, or a bound wrong."""
    cmdp = es.make(name, seed=seed)
    agent = agent_of(cmdp.task)
    learn_log(cmdp, agent, logged, seed)
    record = es.run(cmdp, agent, AT[-1], seed=seed)
    incumbent = cmdp.evaluate(cmdp.task.safe_policy)[0]
    way = (record.reward_values - incumbent) / (cmdp.optimal_value() - incumbent)
    violates = bool((record.utility_values < cmdp.task.threshold - 1e-9).any())
    wrong = (record.sources != "safe") & (record.utility_bounds > record.utility_values + 1e-9)
    return [float(way[k - 10 : k].mean()) for k in AT], violates, bool(wrong.any())


def progress(num_seeds: int) -> None:
    """One row a problem, without and with a log."""
    print(f"{'':22s} " + " ".join(f"{k:>11d}" for k in AT) + "   violating, wrong bounds")
    for logged in (0, LOGGED):
        for name in REAL:
            found = [shares(name, seed, logged) for seed in range(num_seeds)]
            rows = np.array([way for way, *_ in found])
            middle, error = rows.mean(axis=0), 1.96 * rows.std(axis=0, ddof=1) / np.sqrt(num_seeds)
            cells = " ".join(f"{m:.3f} ± {e:.2f}" for m, e in zip(middle, error, strict=True))
            label = f"{name}, {logged} logged" if logged else name
            violating, wrong = (sum(one[i] for one in found) for i in (1, 2))
            print(f"{label:22s} {cells}   {violating}, {wrong} of {num_seeds}", flush=True)


def kiosk(num_omens: int = 2) -> es.LinearCMDP:
    """Four days: order 0 to 2, demand 0 to 2. Small, so that a thousand runs take minutes."""
    return listed(Kiosk(num_omens=num_omens), threshold=2.8)


@dataclass(frozen=True)
class Kiosk(Rules):
    """Papers are not kept overnight. To order one earns more, two serve everybody; a state is yesterday's omen."""

    horizon: int = 4
    num_actions: int = 3
    num_omens: int = 2
    start: tuple[int, ...] = (0,)

    @property
    def shape(self):
        """One number."""
        return (self.num_omens,)

    def chances(self, h, state):
        """Demand, and an omen of nothing."""
        return [((0, 1, 2), (0.3, 0.3, 0.4)), (range(self.num_omens), np.full(self.num_omens, 1 / self.num_omens))]

    def move(self, h, state, action, luck):
        """One who orders more serves more, and earns less."""
        demand, omen = luck
        sold = min(action, demand)
        return (omen,), (2 + sold - 0.9 * action) / 4, sold / demand if demand else 1.0

    def incumbent(self, h, state):
        """Two, always."""
        return np.array([0.0, 0.0, 1.0])


def traces_of(cmdp, number: int, rng, regime: float = 0.0) -> list:
    """Traces; with a `regime`, the last one comes again with that probability, as if chance persisted."""
    found = [cmdp.draw_trace(rng)]
    for _ in range(number - 1):
        found.append(found[-1] if rng.random() < regime else cmdp.draw_trace(rng))
    return found


def is_wrong(cmdp, agent) -> bool:
    """Whether a bound is above the exact utility of its policy."""
    proved = agent.bounds()
    return any(proved[name] > cmdp.evaluate(agent.policy_named(name).policy)[1] + 1e-9 for name in proved)


def live(cmdp, task, seed: int, number: int, regime: float = 0.0) -> bool:
    """Whether any bound was ever wrong in so many episodes, for an agent that is told `task`."""
    rng = np.random.default_rng([seed, 5])
    agent, wrong = agent_of(task), False
    for k, trace in enumerate(traces_of(cmdp, number, rng, regime)):
        plan = agent.plan()
        component, acting = plan.policy.draw(rng)
        episode = task.replay(acting, trace, rng)
        agent.learn(replace(episode, component=component if len(plan.policy.components) > 1 else None), plan_id=plan.id)
        wrong = wrong or (k % 5 == 4 and is_wrong(cmdp, agent))
    return wrong


def chosen_after(cmdp, seed: int, number: int, after: bool) -> bool:
    """Whether the bound of a proposal from `number` traces is wrong; judged by as many others, or by those.

    Judged by those that it was made from, it is the control. Omens say nothing of demand, and are many: what is
    fitted to them on few traces seems to serve everybody with few papers.
    """
    rng = np.random.default_rng([seed, 6])
    task, halves = cmdp.task, (ListedTraces(cmdp.task), ListedTraces(cmdp.task))
    for traces in halves:
        for trace in traces_of(cmdp, number, rng):
            traces.take_in(trace)
    found = propose(halves[0], Aim(task.threshold + 0.5)).policy
    agent = agent_of(task)
    agent.add_candidate("found", found)
    for reward, utility in halves[0 if after else 1].totals(found).tolist():
        agent.certificate.replayed.credit(None, [NUM_ROWS], [1.0], utility, reward)
    return is_wrong(cmdp, agent)


def too_hopeful(cmdp):
    """A move that is right where the incumbent goes, and says that one paper serves everybody."""

    def move(h, state, action, w):
        following, reward, utility = cmdp.task.move(h, state, action, w)
        return following, reward, 1.0 if action == 1 else utility

    return replace(cmdp.task, move=move)


def count_wrong(settings, num_runs: int) -> None:
    """One row a setting: how many runs are bad, and the 95 % interval of their rate."""
    for words, is_bad in settings.items():
        wrong = sum(is_bad(seed) for seed in range(num_runs))
        low, high = rate_interval(wrong, num_runs)
        print(f"{words:40s} {wrong} of {num_runs}, {low:.4f} to {high:.4f}", flush=True)


def coverage(num_runs: int = 1000) -> None:
    """Runs in which any bound was ever wrong; δ = 0.05 allows 50 of 1,000. The controls must have far more."""
    cmdp, omens = kiosk(), kiosk(60)
    settings = {
        "as it is, 60 episodes": lambda s: live(cmdp, cmdp.task, s, 60),
        "a proposal judged by other traces": lambda s: chosen_after(omens, s, 60, after=False),
        "control: by those that chose it": lambda s: chosen_after(omens, s, 60, after=True),
        "control: chance persists, 0.98": lambda s: live(cmdp, cmdp.task, s, 60, regime=0.98),
        "control: move is wrong off the path": lambda s: live(cmdp, too_hopeful(cmdp), s, 60),
    }
    count_wrong(settings, num_runs)


def speed() -> None:
    """Seconds of the core for 10^5 episodes."""
    for name in REAL:
        cmdp = es.make(name, seed=0)
        es.run(cmdp, agent_of(cmdp.task), 20)  # compiled
        began = time.process_time()
        es.run(cmdp, agent_of(cmdp.task), 100_000)
        print(f"{name:10s} {time.process_time() - began:.1f} s", flush=True)


def main() -> None:
    """What is asked for."""
    asked = sys.argv[1] if len(sys.argv) > 1 else "20"
    if asked == "speed":
        speed()
    elif asked == "coverage":
        coverage(int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
    else:
        progress(int(asked))


if __name__ == "__main__":
    main()
