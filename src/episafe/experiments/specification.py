"""Experiments read from TOML, and the jobs they stand for."""

import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from episafe import bandits
from episafe.agents.base import Agent
from episafe.deployment.folder import remove_journal
from episafe.envs import ENVIRONMENTS, make
from episafe.experiments.agent_choice import build_agent, build_bandit_agent
from episafe.learning.replanning import parse_replan
from episafe.problems.cmdp import LinearCMDP
from episafe.registry import AGENTS, BANDIT_AGENTS
from episafe.runs.kept_run import run_or_resume
from episafe.runs.record import Record
from episafe.runs.run import Simulation, run


@dataclass(frozen=True)
class Job:
    """One run: an agent on one drawn problem. Problem and run have the same seed and separate streams."""

    env: str
    variant: Any
    agent: str
    seed: int
    num_episodes: int
    replan: str
    cost: float

    @property
    def name(self) -> str:
        """Folder name of the record."""
        return f"{self.env}-{self.variant}-{self.agent}-{self.seed}"

    @property
    def identity(self) -> str:
        """What was asked for, in one string; it is kept in the record, beside constants and versions."""
        return f"{self.name} episodes={self.num_episodes} replan={self.replan}"

    def short(self) -> "Job":
        """Two episodes of seed 0: what all jobs of this agent and environment compile."""
        return replace(self, seed=0, variant="released", num_episodes=2)

    def compiled_as(self) -> str:
        """One-hot features and others have different kernels."""
        return "one-hot" if make(self.env).task.one_hot else "features"

    def record(self) -> Record:
        """Run the job."""
        return run(*self._made(), self.num_episodes, self.seed)

    def run(self, records: Path) -> None:
        """Run the job, from where it was stopped if it was, and save its record; the journal has then served."""
        cmdp, agent = self._made()
        simulation = Simulation(cmdp, agent, self.num_episodes, self.seed)
        run_or_resume(simulation, records / self.name, job=self.identity)
        remove_journal(records / self.name)

    def _made(self) -> tuple[LinearCMDP, Agent]:
        cmdp = make(self.env, self.seed, self.variant)
        rule = parse_replan(self.replan)
        return cmdp, build_agent(self.agent, cmdp, replan=rule, num_episodes=self.num_episodes)


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
        return Job(env, variant, agent, seed, self.num_episodes, replan, cost)


@dataclass(frozen=True)
class BanditJob:
    """One run: an agent on one drawn bandit. Problem and run have the same seed and separate streams."""

    env: str
    agent: str
    seed: int
    num_rounds: int
    slack: float
    noise: float
    delta: float
    replan: str

    @property
    def name(self) -> str:
        """Folder name of the record."""
        return f"{self.env}-{self.agent}-{self.slack:g}-{self.seed}"

    @property
    def cost(self) -> float:
        """Relative time: changing arms are planned for in every round."""
        return self.num_rounds * (10.0 if self.env == "contexts" else 1.0)

    @property
    def identity(self) -> str:
        """What was asked for, in one string; it is kept in the record."""
        return str(self)

    def short(self) -> "BanditJob":
        """Two rounds of seed 0, which compile all that the job needs."""
        return replace(self, seed=0, num_rounds=2)

    def compiled_as(self) -> str:
        """All rule agents and sets share their kernels."""
        return "bandit"

    def run(self, records: Path) -> None:
        """Run the job, from where it was stopped if it was, and save its record."""
        folder = records / self.name
        self.record(folder).noting(job=self.identity).save(folder)
        remove_journal(folder)

    def record(self, folder: Path | None = None) -> Record:
        """Run the job, with a journal in `folder` where one is given."""
        bandit = bandits.make(self.env, self.seed, slack=self.slack, noise=self.noise)
        agent = build_bandit_agent(self.agent, bandit, self.num_rounds, self.delta, parse_replan(self.replan))
        return bandits.run(bandit, agent, self.num_rounds, self.seed, folder=folder)


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
            if env == "finite" or not BANDIT_AGENTS[agent].bandit.finite_only  # type: ignore[union-attr]
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


AnyJob = Job | BanditJob
