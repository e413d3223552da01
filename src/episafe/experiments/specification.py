"""Experiments read from TOML, and the jobs they stand for."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any

from episafe.envs import ENVIRONMENTS
from episafe.experiments.job import BanditJob, Job
from episafe.registry import AGENTS, BANDIT_BUILDS


@dataclass(frozen=True)
class Experiment:
    """Every agent on every environment and variant, `num_seeds` times."""

    title: str
    environments: list[str]
    variants: list[str]
    agents: list[str]
    num_seeds: int
    num_episodes: int
    replan: dict[str, str]
    cost: dict[str, float]

    def __post_init__(self) -> None:
        for kind, names, known in (
            ("environment", self.environments, set(ENVIRONMENTS)),
            ("variant", self.variants, {"released", "text"}),
            ("agent", self.agents, set(AGENTS)),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"no {kind} {name!r}; there are {', '.join(sorted(known))}")

    def jobs(self) -> list[Job]:
        """All jobs, the costliest first, so that the last ones to end are short."""
        every = product(self.environments, self.variants, self.agents, range(self.num_seeds))
        return sorted((self._job(*one) for one in every), key=lambda job: -job.cost)

    def _job(self, env: str, variant: str, agent: str, seed: int) -> Job:
        replan = self.replan.get(f"{agent}/{env}", "every")
        cost = self.num_episodes * self.cost.get(env, 1.0) * self.cost.get(agent, 1.0)
        name = f"{env}-{variant}-{agent}-{seed}"
        return Job(name, env, agent, seed, self.num_episodes, variant, replan, cost=cost)


@dataclass(frozen=True)
class BanditExperiment:
    """Every agent on every environment, `num_seeds` times; and one agent on finite sets of several slacks."""

    title: str
    environments: list[str]
    agents: list[str]
    num_seeds: int
    num_rounds: int
    slack: float
    slacks: list[float]
    noise: float
    delta: float
    replan: str

    def jobs(self) -> list[BanditJob]:
        """The comparison, the costliest first, so that the last ones to end are short."""
        jobs = [
            self._job(env, agent, seed, self.slack)
            for env, agent, seed in product(self.environments, self.agents, range(self.num_seeds))
            if env == "finite" or not BANDIT_BUILDS[agent].finite_only
        ]
        return sorted(jobs, key=lambda job: -job.cost)

    def slack_jobs(self) -> list[BanditJob]:
        """OPLB-SP with the determinant radius on finite sets, by slack."""
        pairs = product(self.slacks, range(self.num_seeds))
        return [self._job("finite", "oplbsp-determinant", seed, slack) for slack, seed in pairs]

    def _job(self, env: str, agent: str, seed: int, slack: float) -> BanditJob:
        return BanditJob(env, agent, seed, self.num_rounds, slack, self.noise, self.delta, self.replan)


def paper_experiment(quick: bool) -> Experiment:
    """The paper's experiments."""
    return Experiment(**_read("paper.toml", quick))


def bandit_experiment(quick: bool) -> BanditExperiment:
    """The bandit experiments."""
    return BanditExperiment(**_read("bandit.toml", quick))


def _read(file: str, quick: bool) -> dict[str, Any]:
    """What stands in a file of this package; `quick` takes the smaller budget that stands there too."""
    data = tomllib.loads(files("episafe.experiments").joinpath(file).read_text())
    small = data.pop("quick")
    return {**data, **(small if quick else {})}
