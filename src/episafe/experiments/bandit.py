"""The bandit experiments, end to end: jobs, records, report."""

import tomllib
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console

from episafe import bandits
from episafe.deployment.folder import remove_journal
from episafe.experiments import progress
from episafe.experiments.agent_choice import build_bandit_agent
from episafe.experiments.paper import claim
from episafe.experiments.worker_pool import Outcome, run_jobs
from episafe.learning.replanning import parse_replan
from episafe.registry import BANDIT_AGENTS
from episafe.reports.report import write_report
from episafe.runs.record import Record, is_complete

SLACK = "slack"  # the folder of the runs with other slacks


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

    def is_done(self, records: Path) -> bool:
        """Whether the record of just this job is there, whole."""
        folder = records / self.name
        return is_complete(folder) and Record.load(folder).settings.get("job") == str(self)

    def short(self) -> "BanditJob":
        """Two rounds of seed 0, which compile all that the job needs."""
        return replace(self, seed=0, num_rounds=2)

    def compiled_as(self) -> str:
        """All rule agents and sets share their kernels."""
        return "bandit"

    def record(self) -> Record:
        """Run the job."""
        return self._record(None)

    def run(self, records: Path) -> None:
        """Run the job, from where it was stopped if it was, and save its record."""
        folder = records / self.name
        self._record(folder).save(folder)
        remove_journal(folder)

    def _record(self, folder: Path | None) -> Record:
        bandit = bandits.make(self.env, self.seed, slack=self.slack, noise=self.noise)
        agent = build_bandit_agent(self.agent, bandit, self.num_rounds, self.delta, parse_replan(self.replan))
        return bandits.run(bandit, agent, self.num_rounds, self.seed, folder=folder).noting(job=str(self))


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
            for env in self.environments
            for agent in self.agents
            for seed in range(self.num_seeds)
            if env == "finite" or not BANDIT_AGENTS[agent].bandit.finite_only  # type: ignore[union-attr]
        ]
        return sorted(jobs, key=lambda job: -job.cost)

    def slack_jobs(self) -> list[BanditJob]:
        """OPLB-SP with the determinant radius on finite sets, by slack."""
        pairs = [(slack, seed) for slack in self.slacks for seed in range(self.num_seeds)]
        return [self._job("finite", "oplbsp-determinant", seed, slack) for slack, seed in pairs]

    def _job(self, env: str, agent: str, seed: int, slack: float) -> BanditJob:
        return BanditJob(env, agent, seed, self.num_rounds, slack, self.noise, self.delta, self.replan)


def bandit_experiment(quick: bool) -> BanditExperiment:
    """The bandit experiments; `quick` takes the smaller budget that stands in the same file."""
    data: dict[str, Any] = tomllib.loads(files("episafe.experiments").joinpath("bandit.toml").read_text())
    small = data.pop("quick")
    return BanditExperiment(**{**data, **(small if quick else {})})


def compare(quick: bool, folder: Path, workers: int | None, console: Console) -> dict[str, str]:
    """Run what is missing of the bandit experiments, write the report; returns the failed jobs with their reasons."""
    experiment = bandit_experiment(quick)
    claim(folder, asdict(experiment))
    jobs, slack_jobs = experiment.jobs(), experiment.slack_jobs()
    console.print(
        f"{len(jobs) + len(slack_jobs)} runs: {', '.join(experiment.agents)} on {', '.join(experiment.environments)}, "
        f"{experiment.num_seeds} seeds of {experiment.num_rounds:,} rounds; slacks "
        f"{', '.join(f'{slack:g}' for slack in experiment.slacks)}",
        highlight=False,
    )
    console.print("the first run on a machine compiles for about half a minute before anything moves", highlight=False)
    outcomes: list[Outcome] = []
    done = 0.0
    with progress.bar("episafe bandit", sum(job.cost for job in jobs + slack_jobs), console) as advance:

        def on_done(job: BanditJob) -> None:
            nonlocal done
            done += job.cost
            advance(done)

        outcomes.append(run_jobs(jobs, folder / "records", workers, on_done))
        outcomes.append(run_jobs(slack_jobs, folder / SLACK, workers, on_done))
    made, found = sum(outcome.made for outcome in outcomes), sum(outcome.found for outcome in outcomes)
    console.print(f"{made} runs made, {found} were there already", highlight=False)
    if made or found:
        console.print(f"report: {write_report(folder)}", highlight=False, soft_wrap=True)
    return {name: reason for outcome in outcomes for name, reason in outcome.failures.items()}
