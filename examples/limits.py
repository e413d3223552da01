"""Several limits at once, and a limit on bad episodes: a shop, a battery, a server. `--full` for the figures."""

import sys

import numpy as np

import episafe as es
from episafe.envs.battery import Battery
from episafe.problems.rules import listed
from episafe.reports.outcome import Outcome, draw_outcomes

FULL = "--full" in sys.argv
SEEDS = range(5) if FULL else range(1)


class Worn(Battery):
    """The battery with a second limit: units moved in a day wear it out. One more number in `move` is all it takes."""

    names = ("reserve", "wear")

    def move(self, h, state, action, luck):
        following, reward, kept = super().move(h, state, action, luck)
        return following, reward, (kept, 1 - abs(self.traded(state[0], action)))


def shop(seed):
    """95 % of the customers served, and at most 4 units thrown away, in a fortnight, on average."""
    return es.make("shop", seed)


def battery(seed):
    """The reserve in store in 90 % of the hours, and at most 9 units moved a day, on average."""
    load = float(np.random.default_rng(seed).uniform(0.1, 0.2))
    return listed(Worn(load=load), [0.9 * 24, 24 - 9])


def server(seed):
    """In at most 10 % of half-hours may more than 3 minutes miss the latency objective."""
    return es.chance(es.make("cloud", seed), total_cost_at_most=3, probability=0.9, name="good half-hours")


def learn(title, make, kept, num_episodes):
    """Every deployed mixture keeps every limit, with probability 0.95 over the whole run."""
    problems, records = [make(seed) for seed in SEEDS], []
    for seed, problem in zip(SEEDS, problems, strict=True):
        agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Hindsight(delta=0.05))
        records.append(es.run(problem, agent, num_episodes, seed=seed))
    incumbents = [problem.evaluate(problem.task.safe_policy) for problem in problems]
    outcome = Outcome(title, records, incumbents, [problem.optimal_value() for problem in problems], kept)
    for run, record in enumerate(records):
        way, names = outcome.shares(record.reward_values, run), problems[run].task.constraint_names
        spare = np.atleast_1d((record.utility_values - problems[run].task.limits).min(axis=0))
        said = ", ".join(f"{name} {room:+.3f}" for name, room in zip(names, spare, strict=True))
        found = f"{way[-1]:.0%} of the way to the optimum, {record.violating().sum()} episodes violate"
        print(f"{title}, seed {run}: {found}; lowest over the limit: {said}; level {agent.level}")
    return outcome


if __name__ == "__main__":
    length = 600 if FULL else 60
    rows = [
        learn("Shop", shop, ("customers served", "not thrown away"), length),
        learn("Battery", battery, ("hours with reserve", "not moved"), length),
        learn("Server", server, ("good half-hours",), length // 2),
    ]
    print(draw_outcomes(rows, (14, 24, 1), "limits.png"))
