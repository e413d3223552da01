"""An experiment read from TOML, and the jobs it stands for."""

import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from episafe.agents.base import Agent
from episafe.deployment.folder import remove_journal
from episafe.envs import ENVIRONMENTS, make
from episafe.experiments.agent_choice import build_agent
from episafe.learning.replanning import parse_replan
from episafe.problems.cmdp import LinearCMDP
from episafe.registry import AGENTS
from episafe.runs.kept_run import run_or_resume
from episafe.runs.record import Record, is_complete
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

    def is_done(self, records: Path) -> bool:
        """Whether the record of just this job is there, whole."""
        folder = records / self.name
        return is_complete(folder) and Record.load(folder).settings.get("job") == self.identity

    def short(self) -> "Job":
        """Two episodes of seed 0: what all jobs of this agent and environment compile."""
        return replace(self, seed=0, variant="released", num_episodes=2)

    def compiled_as(self) -> str:
        """One-hot features and others have different kernels."""
        return "one-hot" if make(self.env).task.one_hot else "features"

    def record(self) -> Record:
        """Run the job."""
        return run(*self._made(), self.num_episodes, self.seed).noting(job=self.identity)

    def run(self, records: Path) -> None:
        """Run the job, from where it was stopped if it was, and save its record; the journal has then served."""
        cmdp, agent = self._made()
        simulation = Simulation(cmdp, agent, self.num_episodes, self.seed)
        run_or_resume(simulation, records / self.name, job=self.identity)
        remove_journal(records / self.name)

    def _made(self) -> tuple[LinearCMDP, Agent]:
        cmdp = make(self.env, self.seed, self.variant)
        return cmdp, build_agent(self.agent, cmdp, replan=parse_replan(self.replan))


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
        jobs = [
            self._job(env, variant, agent, seed)
            for env in self.environments
            for variant in self.variants
            for agent in self.agents
            for seed in range(self.num_seeds)
        ]
        return sorted(jobs, key=lambda job: -job.cost)

    def _job(self, env: str, variant: str, agent: str, seed: int) -> Job:
        replan = self.replan.get(f"{agent}/{env}", "every")
        cost = self.num_episodes * self.cost.get(env, 1.0) * self.cost.get(agent, 1.0)
        return Job(env, variant, agent, seed, self.num_episodes, replan, cost)


def paper_experiment(quick: bool) -> Experiment:
    """The paper's experiments; `quick` takes the smaller budget that stands in the same file."""
    data = tomllib.loads(files("episafe.experiments").joinpath("paper.toml").read_text())
    small = data.pop("quick")
    return Experiment(**{**data, **(small if quick else {})})
