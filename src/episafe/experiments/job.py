"""One run as data: what is to be made, small enough to be sent anywhere, and the record that comes of it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from episafe import bandits
from episafe.envs import ENVIRONMENTS, make
from episafe.experiments.agent_choice import build_bandit_agent, chosen_agent
from episafe.learning.planner import parse_replan
from episafe.registry import AGENTS
from episafe.runs.record import Record
from episafe.runs.run import run
from episafe.tools.named_object import errors_inside, named

Settings = tuple[tuple[str, Any], ...]  # names and values, in order
DIGEST = 8  # letters of a hash that tell settings apart in the name of a folder


@dataclass(frozen=True)
class Job:
    """An agent on one problem. Problem and run have the same seed and separate streams.

    Attributes:
        name: folder name of the record.
        env: an environment, or `module:name` of a problem, or of a function of a seed and options that makes one.
        agent: an agent, or `module:name` of a function of a task and of `changes` that makes one.
        seed: of both.
        num_episodes: K.
        variant: of the paper's environments.
        replan: "" for the rule that goes with the constants.
        constants: "published", "tuned" or "theory".
        changes: of the constants or of the agent.
        options: of the environment.
        multiplier: of all bonuses of the agent.
        cost: relative time.
    """

    name: str
    env: str
    agent: str
    seed: int
    num_episodes: int
    variant: Any = "released"
    replan: str = ""
    constants: str = "published"
    changes: Settings = ()
    options: Settings = ()
    multiplier: float = 1.0
    cost: float = 1.0

    @property
    def identity(self) -> str:
        """All that was asked for, in one string; it is kept in the record, beside constants and versions."""
        plain = f"{self.name} episodes={self.num_episodes} replan={self.replan}"
        more = {"constants": self.constants, "changes": _said(self.changes), "options": _said(self.options)}
        more["multiplier"] = f"{self.multiplier:g}"
        usual = {"constants": "published", "changes": "", "options": "", "multiplier": "1"}
        return " ".join([plain, *(f"{name}={value}" for name, value in more.items() if value != usual[name])])

    def short(self) -> "Job":
        """Two episodes: what all jobs of this agent compile."""
        return replace(self, num_episodes=2)

    def compiled_as(self) -> tuple[str, str]:
        """One-hot features and others have different kernels."""
        return _kernels(self.env), self.agent

    def record(self) -> Record:
        """Run the job."""
        problem = self.problem()
        agent = self._agent(problem)
        made = run(problem, agent, self.num_episodes, self.seed)
        said: dict[str, Any] = {"job": self.identity, **self.facts(agent)}
        if ":" in self.env:
            said |= {"env": self.env, "seed": self.seed, "options": _said(self.options)}
        multiplied = {} if self.multiplier == 1 else {"multiplier": self.multiplier}
        if asked := _said((*self.changes, *multiplied.items())):
            said["changes"] = asked
        return made.noting(**said)

    def facts(self, agent: Any) -> dict[str, Any]:
        """What else its record says, of the agent after the run."""
        return {}

    def problem(self) -> Any:
        """The problem, drawn."""
        if self.env in ENVIRONMENTS:
            return make(self.env, self.seed, self.variant, **dict(self.options))
        found = named(self.env)
        with errors_inside(self.env):
            return found(self.seed, **dict(self.options)) if callable(found) else found

    def _agent(self, problem: Any) -> Any:
        replan = parse_replan(self.replan) if self.replan else None
        if self.agent in AGENTS:
            return chosen_agent(
                self.agent, problem, self.num_episodes, self.constants, dict(self.changes), replan, self.multiplier
            )
        found = named(self.agent)
        with errors_inside(self.agent):
            return found(problem.task, **dict(self.changes))


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

    def compiled_as(self) -> tuple[str, str]:
        """All rule agents and sets share their kernels."""
        return "bandit", f"{self.env} {self.agent}"

    def record(self) -> Record:
        """Run the job."""
        bandit = bandits.make(self.env, self.seed, slack=self.slack, noise=self.noise)
        agent = build_bandit_agent(self.agent, bandit, self.num_rounds, self.delta, parse_replan(self.replan))
        return bandits.run(bandit, agent, self.num_rounds, self.seed).noting(job=self.identity)


AnyJob = Job | BanditJob  # what a pool runs; sent by pickle, to processes of ours or to a cluster that is trusted


def folder_name(env: str, agent: str, seed: int, told: Mapping[str, Any]) -> str:
    """A name for the folder of a run: environment, agent, a hash of whatever else was asked for, seed."""
    digest = hashlib.sha256(repr(sorted(told.items())).encode()).hexdigest()[:DIGEST]
    return re.sub(r"[^A-Za-z0-9_-]+", "_", f"{env}-{agent}-{digest}-{seed}")


def _said(settings: Settings) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings)


@cache
def _kernels(env: str) -> str:
    """Which kernels the environment needs; "own" for what is not known here."""
    if env not in ENVIRONMENTS:
        return "own"
    return "one-hot" if make(env).task.one_hot else "features"
