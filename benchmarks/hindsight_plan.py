"""Time listing and planning with Hindsight on a call centre of 121 states, 36 rosters and 12 hours.

    python benchmarks/hindsight_plan.py [episodes]

Targets: listing at most 20 s, each plan() at most 1 s of CPU time. Simulations on inventory, battery and cloud have
at least 17,000 episodes per second.
"""

import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import episafe as es
from episafe.core.types import Array
from episafe.problems.rules import Chance, Rules, RuleState, listed, mostly

BUSY = (0.5, 0.8, 1.2, 1.4, 1.2, 0.9, 0.8, 1.0, 1.3, 1.2, 0.8, 0.5)  # calls by hour, times the mean


@dataclass(frozen=True)
class CallCentre(Rules):
    """Two kinds of calls, each with its own agents. A state is (first kind on hold, second kind on hold).

    An action is a roster: 0 to 5 agents more than the least for each kind. Each serves two calls per hour. Reward is
    what the largest roster would cost, less the wages, scaled to [0, 1]; utility is the share served in time.
    """

    mean_calls: float = 5.0
    most_calls: int = 10
    least_agents: int = 1
    horizon: int = 12
    num_actions: int = 36
    start: RuleState = (0, 0)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """Calls of both kinds in this hour."""
        calls = range(self.most_calls + 1)
        return [(calls, _poisson(self.mean_calls * BUSY[h] * share, self.most_calls)) for share in (1.0, 0.7)]

    def move(self, h: int, state: RuleState, action: int, luck: tuple[Any, ...]) -> tuple[RuleState, float, float]:
        """Serve, keep at most ten on hold; the others give up."""
        least = self.least_agents
        staff_1, staff_2 = least + action // 6, least + action % 6
        due_1, due_2 = state[0] + luck[0], state[1] + luck[1]
        served_1, served_2 = min(due_1, 2 * staff_1), min(due_2, 2 * staff_2)
        in_time = (served_1 + served_2) / (due_1 + due_2) if due_1 + due_2 else 1.0
        left = min(due_1 - served_1, 10), min(due_2 - served_2, 10)
        return left, 1 - (staff_1 + staff_2) / (2 * (least + 5)), in_time

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Use the largest roster, and now and then one agent less."""
        return mostly(35, 34, 36, 0.1)


def _poisson(mean: float, most: int) -> list[float]:
    p = [math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(most)]
    return [*p, 1 - sum(p)]


def main(num_episodes: int = 300) -> None:
    """Print both figures."""
    began = time.process_time()
    problem = listed(CallCentre(), 10.8)
    print(f"listing: {time.process_time() - began:.1f} s; {problem!r}")
    agent, rng, slowest = es.SafeAgent(problem, es.certify.Hindsight()), np.random.default_rng(0), []
    task, move = problem.task, problem.task.move
    assert move is not None
    for _ in range(num_episodes):
        began = time.process_time()
        plan = agent.plan()
        slowest.append(time.process_time() - began)
        policy = plan.policy.draw(rng)[1] if isinstance(plan.policy, es.Mixture) else plan.policy
        trace, states, actions, signals = problem.draw_trace(rng), [task.initial_state], [], []
        for h, w in enumerate(trace[1]):
            actions.append(policy.act(h, states[-1], rng))
            following, reward, utility = move(h, states[-1], actions[-1], w)
            states.append(following)
            signals.append((reward, *utility))
        rewards, utilities = np.array(signals)[:, 0], np.array(signals)[:, 1:]
        agent.learn(es.Episode(np.array(states), np.array(actions), rewards, utilities, trace=trace), plan.id)
    first, start = problem.evaluate(plan.policy), problem.evaluate(task.incumbent)
    print(f"plan(): slowest {max(slowest):.2f} s, those with a proposal {np.round(sorted(slowest)[-8:], 2).tolist()}")
    share = (first[0] - start[0]) / (problem.optimal_value() - start[0])
    print(f"after {num_episodes} episodes: {share:.2f} of the way to the optimum, utility {first[1]:.3f} (limit 10.8)")
    for name in ("inventory", "battery", "cloud"):
        small, best = es.make(name), 0.0
        for _ in range(3):  # the first run compiles
            began = time.process_time()
            es.run(small, es.SafeAgent(small), 20_000)
            best = max(best, 20_000 / (time.process_time() - began))
        print(f"{name}: {best:,.0f} episodes per second")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
