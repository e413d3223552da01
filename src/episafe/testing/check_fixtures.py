"""What checks are made on, problems of any kind played alike, and how they are chosen and run."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import episafe as es
from episafe.types import Array

MakeAgent = Callable[[Any], Any]
Report = tuple[tuple[Any, ...], dict[str, int]]  # what `agent.learn` is called with: what was seen, the plan_id
NUM_EPISODES = 40  # of most checks


class EpisodeGround:
    """An MDP: listed, by functions, or live."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.task, self.is_listed = problem, problem.task, hasattr(problem, "P")
        self.states = self._probes()

    def play(self, plan: Any, rng: np.random.Generator) -> Report:
        """An episode of a plan: one component acts for the whole of it."""
        parts = plan.policy.components
        component = int(rng.choice(len(parts), p=plan.policy.weights))
        episode = self._episode(parts[component], rng)
        return (replace(episode, component=component if len(parts) > 1 else None),), {"plan_id": plan.id}

    def distributions(self, plan: Any) -> list[Array]:
        """What a plan draws from: the last axis of each array sums to 1."""
        return self.policy_arrays(plan)

    def policy_arrays(self, plan: Any) -> list[Array]:
        """The weights of the components, then π_h(·|s) of each at the states that are known: the same, if equal."""
        steps, parts = range(self.task.horizon), plan.policy.components
        rows = [np.array([[part.probabilities(h, s) for s in self.states] for h in steps]) for part in parts]
        return [np.array(plan.policy.weights), *rows]

    def secrets(self) -> list[Any]:
        """The problem and its P, or what samples from it; of an exogenous one the law of chance."""
        known = (getattr(self.problem, name, None) for name in ("P", "sample", "env", "chance", "law"))
        found = [secret for secret in known if secret is not None]
        return [self.problem, *found, *(law.law for law in found if hasattr(law, "law"))]

    def wrong_reports(self, good: Report) -> Iterator[tuple[str, Report]]:
        """Reports that must be refused, and the one thing that is wrong with each."""
        (episode,), plan_id = good
        A = self.task.num_actions
        states, actions, H = list(episode.states), list(episode.actions), self.task.horizon
        wrong: dict[str, dict[str, Any]] = {
            "a state too few": {"states": states[:-1]},
            "an action too few": {"actions": actions[:-1]},
            "an action that there is not": {"actions": [A, *actions[1:]]},
            "a negative action": {"actions": [-1, *actions[1:]]},
            "half an action": {"actions": [0.5, *actions[1:]]},
            "a reward that is no number": {"rewards": [np.nan] * H},
            "a reward too few": {"rewards": [0.0] * (H - 1)},
            "utilities in words": {"utilities": "a" * H},
        }
        if self.is_listed:
            wrong["a state that there is not"] = {"states": [*states[:-1], self.task.num_states]}
            wrong["half a state"] = {"states": [*states[:-1], 0.5]}
        for words, changes in wrong.items():
            yield words, ((replace(episode, **changes),), plan_id)
        yield "the id of a plan that was never issued", ((episode,), {"plan_id": 10**6})

    def _probes(self) -> list[Any]:
        """All states, or those of a few episodes of the incumbent."""
        if self.is_listed:
            return list(range(self.task.num_states))
        if hasattr(self.problem, "seed"):
            self.problem.seed(0)
        rng = np.random.default_rng(0)
        return [state for _ in range(3) for state in self._episode(self.task.safe_policy, rng).states]

    def _episode(self, policy: Any, rng: np.random.Generator) -> es.Episode:
        if not self.is_listed and not hasattr(self.problem, "sample"):
            return es.play(self.problem, policy, rng)
        task, problem = self.task, self.problem
        if getattr(problem, "chance", None) is not None or getattr(problem, "law", None) is not None:
            return task.replay(policy, problem.draw_trace(rng), rng)
        states, actions = [task.initial_state], []
        for h in range(task.horizon):
            row = policy.probabilities(h, states[-1])
            actions.append(int(rng.choice(len(row), p=row / row.sum())))
            if self.is_listed:
                states.append(int(rng.choice(task.num_states, p=problem.P[h, states[-1], actions[-1]])))
            else:
                states.append(problem.sample(h, states[-1], actions[-1], rng))
        return es.Episode(states, actions)


class BanditGround:
    """A linear bandit, with the methods of an `EpisodeGround`: an episode is one round."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.task = problem, problem.task

    def play(self, plan: Any, rng: np.random.Generator) -> Report:
        """An atom, and what is seen of it."""
        atom = plan.atoms[rng.choice(len(plan.probabilities), p=plan.probabilities / plan.probabilities.sum())]
        noise = self.task.noise * rng.normal(size=1 + self.task.num_constraints)
        utility = self.problem.theta_u @ atom + (noise[1:] if self.task.num_constraints > 1 else noise[1])
        return (atom, self.problem.theta_r @ atom + noise[0], utility), {}

    def distributions(self, plan: Any) -> list[Array]:
        """The probabilities of the atoms."""
        return [plan.probabilities]

    def policy_arrays(self, plan: Any) -> list[Array]:
        """The mean action: expected reward and utility are linear in it."""
        return [plan.probabilities @ plan.atoms]

    def secrets(self) -> list[Any]:
        """The problem and its parameters."""
        return [self.problem, self.problem.theta_r, self.problem.theta_u]

    def wrong_reports(self, good: Report) -> Iterator[tuple[str, Report]]:
        """One thing wrong in each."""
        action, reward, utility = good[0]
        wrong = {
            "a reward that is no number": (action, np.nan, utility),
            "a utility in words": (action, reward, "much"),
            "an action of another dimension": (np.append(action, 0.0), reward, utility),
            "an action of norm 3": (np.full(len(action), 3 / len(action) ** 0.5), reward, utility),
            "two rewards for one utility": (np.array([action, action]), [reward, reward], utility),
        }
        yield from ((words, (args, {})) for words, args in wrong.items())


Ground = EpisodeGround | BanditGround


def ground_of(problem: Any) -> Ground:
    """The ground for a problem of any kind."""
    return BanditGround(problem) if problem.task.kind == "bandit" else EpisodeGround(problem)


def incumbent_of(task: Any, round: int = 0) -> Any:
    """The incumbent as a first plan, of a round where it changes with them."""
    return task.incumbent_plan(round, "safe", np.nan, np.nan, "heuristic", "the battery asks for it")


def learn_by(ground: Ground, agent: Any, num_episodes: int) -> Iterator[Any]:
    """The agent plans, acts and learns; yields each plan before its episode."""
    rng = np.random.default_rng(0)
    for _ in range(num_episodes):
        plan = agent.plan()
        yield plan
        args, plan_id = ground.play(plan, rng)
        agent.learn(*args, **plan_id)


Check = Callable[..., Any]


def checks_of(module: str, *runners: Check) -> list[Check]:
    """The functions of a module that are called check_…, in the order they stand there, but for those that run them."""
    named = (value for name, value in vars(sys.modules[module]).items() if name.startswith("check_"))
    return [check for check in named if check not in runners]


def selected(checks: Sequence[Check], skip: Iterable[str | Check]) -> list[Check]:
    """The checks without those to skip, given by name or as functions; a name that is none is refused."""
    names = {getattr(one, "__name__", one) for one in skip}
    unknown = names - {check.__name__ for check in checks}
    if unknown:
        known = ", ".join(check.__name__ for check in checks)
        raise ValueError(f"skip: no check {', '.join(sorted(map(str, unknown)))}; there are {known}")
    return [check for check in checks if check.__name__ not in names]


def run_all(checks: Sequence[Check], cases: Iterable[tuple[str, tuple[Any, ...]]]) -> list[str]:
    """Every check on every case (name, arguments); the names of what passed, or an AssertionError with all failures."""
    passed: list[str] = []
    failed: list[str] = []
    first: Exception | None = None
    for name, arguments in cases:
        for check in checks:
            label = f"{check.__name__}[{name}]"
            try:
                check(*arguments)
                passed.append(label)
            except Exception as error:  # whatever goes wrong, the other checks are made
                first = first or error
                said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                failed.append(f"{label}: {said}")
    if failed:
        raise AssertionError(
            f"{len(failed)} of {len(failed) + len(passed)} checks failed\n" + "\n".join(failed)
        ) from first
    return passed
