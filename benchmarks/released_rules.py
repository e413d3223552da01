"""What each rule of the paper's released code changes: violation and regret with one of them in place of the text's.

    python benchmarks/released_rules.py [PROBLEMS] [EPISODES] [ENVIRONMENT …] [AGENT …]

By default 10 problems, 10,000 episodes, streaming and tabular, ghosh and opse: twenty minutes of one core. Differences
are paired by problem, with 95 % intervals (normal).
"""

import sys

import numpy as np

import episafe as es
from episafe.learning.planner import Decision, SoftmaxPlanner
from episafe.learning.released_planner import ReleasedPlanner
from episafe.types import SAFE, SEARCH, ZERO

RULES = ("limits", "entropy", "λ", "first")  # as ReleasedPlanner has them; the text's are below
AGENTS = {"ghosh": es.Ghosh2024, "opse": es.OPSE}


class Mixed(ReleasedPlanner):
    """The rules of the text, but for one."""

    rule = ""

    @property
    def steps_limited(self):
        return super().steps_limited - (self.rule != "limits")

    @property
    def entropy(self):
        return super().entropy if self.rule == "entropy" else (self.scales.kappa, 1.0)

    @property
    def value_after(self):
        return super().value_after if self.rule == "entropy" else 0.0

    def decide(self):
        if self.rule == "first" and self.num_learned == 0:
            return Decision(SAFE, np.nan, np.nan)
        tables, search = self._tables(), self.search
        if self.rule != "λ":
            at_max = self._evaluate(tables, search.lam_max)
            if self._pessimistic and at_max < search.threshold:
                return Decision(SAFE, np.nan, at_max)
            at_zero = self._evaluate(tables, 0.0)
            if at_zero >= search.threshold:
                return Decision(ZERO, 0.0, at_zero)
        lower, upper = 0.0, search.lam_max
        for _ in range(search.num_halvings):
            middle = (lower + upper) / 2
            safe = self._evaluate(tables, middle) >= search.threshold
            lower, upper = (lower, middle) if safe else (middle, upper)
        bound = self._evaluate(tables, upper)
        unsafe = self._pessimistic and bound < search.threshold
        return Decision(SAFE, np.nan, bound) if unsafe else Decision(SEARCH, upper, bound)


def figures(env: str, name: str, rule: str, seed: int, num_episodes: int) -> tuple[float, float]:
    cmdp = es.make(env, seed)
    constants = es.Constants.paper(env, name)
    agent = AGENTS[name](cmdp.task, constants, variant="text" if rule == "text" else "released")
    if rule in RULES:
        agent.learner = Mixed(cmdp.task, constants, pessimistic=name == "opse")
        agent.learner.rule = rule
    assert rule != "text" or type(agent.learner) is SoftmaxPlanner
    record = es.run(cmdp, agent, num_episodes, seed)
    return float(record.violation()[-1]), float(record.regret()[-1])


def main() -> None:
    given = sys.argv[1:]
    num_problems, num_episodes = (int(given[i]) if len(given) > i else default for i, default in ((0, 10), (1, 10_000)))
    envs, names = ([one for one in given[2:] if (one in AGENTS) == is_agent] for is_agent in (False, True))
    for env in envs or ("streaming", "tabular"):
        for name in names or AGENTS:
            text = None
            for rule in ("text", *RULES, "released"):
                found = np.array([figures(env, name, rule, seed, num_episodes) for seed in range(num_problems)])
                text = found if text is None else text
                change, half = (
                    (found - text).mean(axis=0),
                    1.96 * (found - text).std(axis=0, ddof=1) / num_problems**0.5,
                )
                said = [
                    f"{what} {found[:, i].mean():6.0f} ({change[i]:+5.0f} ± {half[i]:3.0f})"
                    for i, what in enumerate(("violation", "regret"))
                ]
                print(f"{env:9} {name:5} {rule:8}  {'  '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
