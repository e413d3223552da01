"""What a battery needs of a problem: to run agents on it, to play single plans, and to know what is wrong or secret."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

import episafe as es
from episafe.types import Array

MakeAgent = Callable[[Any], Any]
NUM_EPISODES = 40  # of most checks


class Report(NamedTuple):
    """What `agent.learn` is called with."""

    args: tuple[Any, ...]
    plan_id: dict[str, int]


class Ground(ABC):
    """A problem as the batteries see it."""

    audits_runs: ClassVar[bool]  # whether the folder of a run has an audit trail

    def __init__(self, problem: Any) -> None:
        self.problem, self.task = problem, problem.task

    @abstractmethod
    def run(self, agent: Any, length: int, seed: int = 0, folder: Path | None = None) -> es.Record:
        """So many episodes of a new agent."""

    @abstractmethod
    def go_on(self, folder: Path, length: int, agent: Any, seed: int = 0) -> es.Record:
        """The run in `folder` up to `length` episodes, by an agent that was built alike."""

    @abstractmethod
    def play(self, plan: Any, rng: np.random.Generator) -> Report:
        """One episode of a plan."""

    @abstractmethod
    def distributions(self, plan: Any) -> list[Array]:
        """What a plan draws from: the last axis of each array sums to 1."""

    @abstractmethod
    def policy_arrays(self, plan: Any) -> list[Array]:
        """What a plan deploys: equal arrays are equal policies."""

    @abstractmethod
    def incumbent(self, round: int = 0) -> Any:
        """The incumbent as a plan, for a round where it changes with them."""

    @abstractmethod
    def secrets(self) -> list[Any]:
        """What no agent may reach."""

    @abstractmethod
    def wrong_reports(self, good: Report) -> Iterator[tuple[str, Report]]:
        """Reports that must be refused, and what is wrong with each."""

    def learn_by(self, agent: Any, num_episodes: int, seed: int = 0) -> Iterator[Any]:
        """The agent plans, acts and learns; yields each plan before its episode."""
        rng = np.random.default_rng(seed)
        for _ in range(num_episodes):
            plan = agent.plan()
            yield plan
            report = self.play(plan, rng)
            agent.learn(*report.args, **report.plan_id)


def ground_of(problem: Any) -> Ground:
    """The ground for a problem of any kind."""
    return BanditGround(problem) if isinstance(problem, es.bandits.LinearBandit) else EpisodeGround(problem)


class EpisodeGround(Ground):
    """An MDP: listed, by functions, or live."""

    audits_runs: ClassVar[bool] = True

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self.states = self._probes()

    def run(self, agent: Any, length: int, seed: int = 0, folder: Path | None = None) -> es.Record:
        """`es.run`."""
        return es.run(self.problem, agent, length, seed, folder=folder)

    def go_on(self, folder: Path, length: int, agent: Any, seed: int = 0) -> es.Record:
        """`es.resume`, which reads the seed from the folder."""
        return es.resume(folder, length, cmdp=self.problem, agent=agent)

    def play(self, plan: Any, rng: np.random.Generator) -> Report:
        """One component acts for the whole episode."""
        parts, weights = _parts(plan.policy)
        component = int(rng.choice(len(parts), p=weights))
        episode = self._episode(parts[component], rng)
        return Report((replace(episode, component=component if len(parts) > 1 else None),), {"plan_id": plan.id})

    def distributions(self, plan: Any) -> list[Array]:
        """All of its arrays."""
        return self.policy_arrays(plan)

    def policy_arrays(self, plan: Any) -> list[Array]:
        """The weights of the components, then π_h(·|s) of each at the states that are known."""
        parts, weights = _parts(plan.policy)
        steps = range(self.task.horizon)
        rows = [np.array([[part.probabilities(h, s) for s in self.states] for h in steps]) for part in parts]
        return [np.array(weights), *rows]

    def incumbent(self, round: int = 0) -> es.Plan:
        """With the id of a first plan."""
        return es.Plan(self.task.safe_policy, "safe", reason="the battery asks for it")

    def secrets(self) -> list[Any]:
        """The problem and its P, or what samples from it."""
        names = ("P", "sample", "env")
        return [self.problem, *(getattr(self.problem, name) for name in names if hasattr(self.problem, name))]

    def wrong_reports(self, good: Report) -> Iterator[tuple[str, Report]]:
        """One thing wrong in each."""
        episode, A = good.args[0], self.task.num_actions
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
            yield words, Report((replace(episode, **changes),), good.plan_id)
        yield "the id of a plan that was never issued", Report(good.args, {"plan_id": 10**6})

    @property
    def is_listed(self) -> bool:
        """Whether states are numbers below S."""
        return hasattr(self.problem, "P")

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
        states, actions = [task.initial_state], []
        for h in range(task.horizon):
            row = policy.probabilities(h, states[-1])
            actions.append(int(rng.choice(len(row), p=row / row.sum())))
            if self.is_listed:
                states.append(int(rng.choice(task.num_states, p=problem.P[h, states[-1], actions[-1]])))
            else:
                states.append(problem.sample(h, states[-1], actions[-1], rng))
        return es.Episode(states, actions)


class BanditGround(Ground):
    """A linear bandit: an episode is one round."""

    audits_runs: ClassVar[bool] = False

    def run(self, agent: Any, length: int, seed: int = 0, folder: Path | None = None) -> es.Record:
        """`es.bandits.run`."""
        return es.bandits.run(self.problem, agent, length, seed, folder=folder)

    def go_on(self, folder: Path, length: int, agent: Any, seed: int = 0) -> es.Record:
        """The same call once more."""
        return self.run(agent, length, seed, folder)

    def play(self, plan: Any, rng: np.random.Generator) -> Report:
        """An atom, and what is seen of it."""
        atom = plan.atoms[rng.choice(len(plan.probabilities), p=plan.probabilities / plan.probabilities.sum())]
        noise = self.task.noise * rng.normal(size=2)
        return Report((atom, self.problem.theta_r @ atom + noise[0], self.problem.theta_u @ atom + noise[1]), {})

    def distributions(self, plan: Any) -> list[Array]:
        """The probabilities of the atoms."""
        return [plan.probabilities]

    def policy_arrays(self, plan: Any) -> list[Array]:
        """The mean action: expected reward and utility are linear in it."""
        return [plan.probabilities @ plan.atoms]

    def incumbent(self, round: int = 0) -> es.bandits.BanditPlan:
        """With the id of a first plan."""
        mixture = self.problem.safe_policy(round)
        return es.bandits.BanditPlan(mixture.atoms, mixture.probabilities, "safe", reason="the battery asks for it")

    def secrets(self) -> list[Any]:
        """The problem and its parameters."""
        return [self.problem, self.problem.theta_r, self.problem.theta_u]

    def wrong_reports(self, good: Report) -> Iterator[tuple[str, Report]]:
        """One thing wrong in each."""
        action, reward, utility = good.args
        wrong = {
            "a reward that is no number": (action, np.nan, utility),
            "a utility in words": (action, reward, "much"),
            "an action of another dimension": (np.append(action, 0.0), reward, utility),
            "an action of norm 3": (np.full(len(action), 3 / len(action) ** 0.5), reward, utility),
            "two rewards for one utility": (np.array([action, action]), [reward, reward], utility),
        }
        for words, args in wrong.items():
            yield words, Report(args, {})


def _parts(policy: Any) -> tuple[tuple[Any, ...], list[float]]:
    """Components and weights of a mixture; of any other policy, itself with weight 1."""
    return getattr(policy, "components", (policy,)), [float(w) for w in getattr(policy, "weights", (1.0,))]
