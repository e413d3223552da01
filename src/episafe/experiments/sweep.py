"""Sweeps of one's own: a TOML file names environments, agents and seeds; lists are tried in every combination."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from episafe.checks import as_whole
from episafe.envs import ENVIRONMENTS, options_of
from episafe.experiments.agent_choice import split_changes
from episafe.experiments.job import Job, Settings, folder_name
from episafe.registry import AGENTS
from episafe.storage.regular_files import read_regular

LARGEST_FILE = 1 << 20  # bytes
TOP = ("title", "episodes", "seeds", "environment", "agent")
OF_AGENT = {"constants": "published", "replan": "", "multiplier": 1.0}  # what an [[agent]] may say beside changes
RANGE = ".."
MOST_JOBS = 1_000_000

Setting = tuple[str, Settings]  # an environment or an agent by name, with one value of everything


@dataclass(frozen=True)
class Sweep:
    """Every agent on every environment, at every seed."""

    title: str
    num_episodes: int
    seeds: tuple[int, ...]
    environments: tuple[Setting, ...]
    agents: tuple[Setting, ...]

    def jobs(self) -> list[Job]:
        """All jobs, seed by seed, so that a sweep that is stopped early has something of everything."""
        return [self._job(*one) for one in product(self.seeds, self.environments, self.agents)]

    def size(self) -> str:
        """What there is, in words."""
        names = [", ".join(dict(settings)) for settings in (self.agents, self.environments)]
        settings = "setting" if len(self.agents) == 1 else "settings"
        counts = f"{len(self.agents)} {settings} of agents, {len(self.environments)} of environments"
        return f"{names[0]} on {names[1]} ({counts}), {len(self.seeds)} seeds of {self.num_episodes} episodes"

    def _job(self, seed: int, env: Setting, agent: Setting) -> Job:
        (agent_name, changes), (env_name, values) = agent, env
        said, options = dict(changes), dict(values)
        own = {name: said.pop(name, usual) for name, usual in OF_AGENT.items()}
        variant = options.pop("variant", "released")
        told = {"episodes": self.num_episodes, "env": values, "agent": changes}
        name = folder_name(env_name, agent_name, seed, told)
        return Job(
            name, env_name, agent_name, seed, self.num_episodes, variant, changes=tuple(said.items()),
            options=tuple(options.items()), cost=float(self.num_episodes), **own,
        )  # fmt: skip


def read_sweep(path: Path) -> Sweep:
    """The sweep that a file stands for; whatever is wrong in it is an error that names the place and the remedy."""
    try:
        said = tomllib.loads(read_regular(path, LARGEST_FILE).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
    for name in said:
        if name not in TOP:
            raise ValueError(f"{path}: no {name!r} here; there are {', '.join(TOP)}")
    for name in TOP[1:]:
        if name not in said:
            raise ValueError(f"{path}: {name} is missing; see the example in docs/sweeps.md")
    environments = [_environment(path, one) for one in _tables(path, said, "environment")]
    agents = [_agent(path, one) for one in _tables(path, said, "agent")]
    sweep = Sweep(
        str(said.get("title", path.stem)),
        as_whole("episodes", said["episodes"], 1),
        tuple(_whole_numbers(path, said["seeds"])),
        tuple(setting for one in environments for setting in _combinations(one)),
        tuple(setting for one in agents for setting in _combinations(one)),
    )
    num_jobs = len(sweep.seeds) * len(sweep.environments) * len(sweep.agents)
    if num_jobs > MOST_JOBS:
        raise ValueError(f"{path} asks for {num_jobs:,} runs, more than {MOST_JOBS:,}: make several sweeps of it")
    return sweep


def _tables(path: Path, said: Mapping[str, Any], kind: str) -> Sequence[dict[str, Any]]:
    tables = said[kind]
    if not isinstance(tables, list) or not all(isinstance(one, dict) and "name" in one for one in tables):
        raise ValueError(f'{path}: write each {kind} as [[{kind}]] with a line name = "…"')
    return tables


def _environment(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The table of an environment, checked as far as it can be without drawing it."""
    name, options = table["name"], table.keys() - {"name", "variant"}
    if name in ENVIRONMENTS:
        for option in options - options_of(name).keys():
            raise ValueError(f"{path}: {name} has no option {option!r}; it has {', '.join(options_of(name))}")
    elif ":" not in str(name):
        raise ValueError(f"{path}: no environment {name!r}; there are {', '.join(ENVIRONMENTS)}; or give module:name")
    return table


def _agent(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The table of an agent, checked in the same way."""
    name, changes = table["name"], {k: v for k, v in table.items() if k not in ("name", *OF_AGENT)}
    if name in AGENTS:
        constants, _, unknown = split_changes("", name, changes)
        if constants and not AGENTS[name].reads_constants:
            raise ValueError(f"{path}: {name} reads no constants: leave out {', '.join(constants)}")
        if unknown:
            raise ValueError(
                f"{path}: {name} has no {', '.join(unknown)}; change a constant, e.g. C_u, or {', '.join(OF_AGENT)}"
            )
    elif ":" not in str(name):
        raise ValueError(f"{path}: no agent {name!r}; there are {', '.join(AGENTS)}; or give module:name")
    return table


def _combinations(table: Mapping[str, Any]) -> Iterator[Setting]:
    """One setting for every combination of what is listed; a list of lists is a list of values that are lists."""
    names = [name for name in table if name != "name"]
    values = [table[name] if isinstance(table[name], list) else [table[name]] for name in names]
    for combination in product(*values):
        plain = (tuple(value) if isinstance(value, list) else value for value in combination)
        yield table["name"], tuple(zip(names, plain, strict=True))


def _whole_numbers(path: Path, seeds: Any) -> Iterator[int]:
    """Seeds as a list, or as a range "0..99" with both ends, or as a list of these."""
    for one in seeds if isinstance(seeds, list) else [seeds]:
        first, dots, last = str(one).partition(RANGE)
        try:
            low = as_whole("seeds", int(first) if dots else one, 0)
            high = as_whole("seeds", int(last), low) if dots else low
        except ValueError as error:
            raise ValueError(f'{path}: seeds are whole numbers ≥ 0, or ranges such as "0..99", got {one!r}') from error
        if high - low >= MOST_JOBS:
            raise ValueError(f"{path} asks for {high - low + 1:,} seeds, more than {MOST_JOBS:,}: make several sweeps")
        yield from range(low, high + 1)
