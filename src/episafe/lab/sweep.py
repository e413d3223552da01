"""Sweeps: every agent on every environment at every seed, run in processes or on Dask, resumed by what is missing."""

import hashlib
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from episafe.core.checks import as_count, require
from episafe.core.files import write_atomically
from episafe.lab.build import known_agent, make_agent, make_problem, named_object
from episafe.simulation.record import Record
from episafe.simulation.run import run

Settings = tuple[tuple[str, object], ...]  # options by name, in order
KEYS = ("title", "episodes", "seeds", "environment", "agent")


@dataclass(frozen=True)
class Job:
    """One run. The problem and the run have the same seed and separate random streams.

    Attributes:
        env: an environment by name, or `module:name` of a function (seed, **options).
        agent: an agent by name, or `module:Class`.
        seed: of the problem and of the run.
        num_episodes: K.
        env_options, agent_options: options by name.
        label: what reports call this setting of the agent; the agent's name by default.
    """

    env: str
    agent: str
    seed: int
    num_episodes: int
    env_options: Settings = ()
    agent_options: Settings = ()
    label: str = ""

    @property
    def name(self) -> str:
        """Return the folder name: environment, agent, a hash of everything else, seed.

        The hash covers the file of a class or function from outside, so that an edited one runs again.
        """
        outside = [_source(one) for one in (self.env, self.agent) if ":" in one]
        digest = hashlib.sha256(
            repr((self.num_episodes, self.env_options, self.agent_options, *outside)).encode()
        ).hexdigest()
        return re.sub(r"[^A-Za-z0-9_-]+", "_", f"{self.env}-{self.agent}-{digest[:8]}-{self.seed}")

    def run(self, on_progress: Callable[[int], None] | None = None) -> Record:
        """Return the record of the run; `on_progress` is called with the number of episodes done."""
        problem = make_problem(self.env, self.seed, dict(self.env_options))
        agent = make_agent(self.agent, problem, self.num_episodes, dict(self.agent_options))
        record = run(problem, agent, self.num_episodes, self.seed, on_progress=on_progress)
        options = ", ".join(f"{name}={value!r}" for name, value in self.env_options)
        facts = {"env": self.env, "env_options": options, "setting": self.setting(record), "problem_seed": self.seed}
        return record.noting(**facts)

    def setting(self, record: Record) -> str:
        """Return what reports call this setting of the agent: its label, or its name with what differs from the paper.

        A bonus that is not the default of the agent's class is part of it.
        """
        if self.label:
            return self.label
        taken = inspect.signature(known_agent(self.agent)[1]).parameters.get("bonus")
        usual = 1 if taken is None else taken.default
        bonus = record.settings.get("bonus", usual)
        scaled = f" bonus={bonus:g}" if bonus != usual and "bonus" not in dict(self.agent_options) else ""
        return self.agent + "".join(f" {name}={value}" for name, value in self.agent_options) + scaled


@dataclass(frozen=True)
class Sweep:
    """Every agent on every environment at every seed."""

    title: str
    jobs: tuple[Job, ...]

    @classmethod
    def read(cls, path: str | Path) -> "Sweep":
        """Return the sweep of a TOML file; raise ValueError that names what is wrong in it.

        An option that is a list is tried with each of its values. Jobs are in the order of their seeds, so that a sweep
        stopped early has something of everything. The first problem and every agent are built once, so that a misspelt
        option fails before anything runs.
        """
        path = Path(path)
        try:
            document = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a TOML file: {error}") from error
        unknown, missing = document.keys() - set(KEYS), set(KEYS[1:]) - document.keys()
        text = f"{path} has unknown keys: {', '.join(sorted(unknown))}; there are {', '.join(KEYS)}"
        require(not unknown, text, ValueError)
        require(not missing, f"{path} lacks {', '.join(sorted(missing))}", ValueError)
        environments, agents = (list(_settings(path, kind, document[kind])) for kind in ("environment", "agent"))
        seeds, episodes = list(_seeds(document["seeds"])), as_count("episodes", document["episodes"])
        jobs = [
            Job(env, agent, seed, episodes, env_options, agent_options)
            for seed, (env, env_options), (agent, agent_options) in product(seeds, environments, agents)
        ]
        sweep = cls(document.get("title", path.stem), tuple(jobs))
        sweep.check()
        return sweep

    def check(self) -> None:
        """Build every agent on every problem once; raise for an option that does not exist or a pair that cannot be."""
        made = cache(lambda env, seed, options: make_problem(env, seed, dict(options)))
        firsts = {(job.env, job.env_options, job.agent, job.agent_options): job for job in reversed(self.jobs)}
        for job in firsts.values():
            problem = made(job.env, job.seed, job.env_options)
            make_agent(job.agent, problem, job.num_episodes, dict(job.agent_options))

    def run(
        self,
        folder: str | Path,
        workers: int | None = None,
        on: str = "local",
        on_done: Callable[[int, int], None] = lambda done, total: None,
    ) -> dict[str, str]:
        """Run what is missing in `folder`/records; return the failed jobs with their reasons.

        Args:
            folder: where records are stored; jobs that have a record there are not run again.
            workers: processes; one per core by default.
            on: "local", or "dask:ADDRESS" of a Dask scheduler on a trusted network.
            on_done: called with the number of finished jobs and their total.
        """
        records = Path(folder) / "records"
        records.mkdir(parents=True, exist_ok=True)
        told = {"title": self.title, "records": [job.name for job in self.jobs]}
        write_atomically(Path(folder) / "sweep.json", (json.dumps(told, indent=1) + "\n").encode())
        missing = [job for job in self.jobs if not (records / job.name / "record.json").exists()]
        done, total, failures = len(self.jobs) - len(missing), len(self.jobs), dict[str, str]()
        on_done(done, total)
        with _executor(on, workers) as executor:
            waiting: dict[Future[Record], Job] = {executor.submit(Job.run, job): job for job in missing}
            for future in as_completed(waiting):
                job = waiting[future]
                try:
                    future.result().save(records / job.name)
                except BrokenProcessPool as error:
                    raise RuntimeError(
                        "a worker process was killed, perhaps for lack of memory: repeat the command to finish"
                    ) from error
                except Exception as error:
                    failures[job.name] = f"{type(error).__name__}: {error}"
                done += 1
                on_done(done, total)
        return failures

    def records(self, folder: str | Path) -> list[Record]:
        """Return the records of this sweep that are in a folder."""
        found = [Path(folder) / "records" / job.name for job in self.jobs]
        return [Record.load(one) for one in found if (one / "record.json").exists()]


@contextmanager
def _executor(on: str, workers: int | None) -> Iterator[Executor]:
    """Yield processes of this machine, or the executor of a Dask cluster."""
    kind, _, address = on.partition(":")
    if kind == "dask":
        from distributed import Client

        with Client(address) as client:
            yield client.get_executor(pure=False)
    elif kind == "local":
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        raise ValueError(f"on must be 'local' or 'dask:ADDRESS', got {on!r}")


def _source(name: str) -> bytes:
    """Return the file of the module of `module:name`."""
    named_object(name)
    return Path(str(sys.modules[name.partition(":")[0]].__file__)).read_bytes()


def _settings(path: Path, kind: str, tables: object) -> Iterator[tuple[str, Settings]]:
    """Yield the names in the tables of a kind, each with every combination of the values of its options."""
    if not isinstance(tables, list) or not all(isinstance(one, dict) and "name" in one for one in tables):
        raise ValueError(f'{path}: write each {kind} as [[{kind}]] with a line name = "…"')
    for table in tables:
        options = {key: value if isinstance(value, list) else [value] for key, value in table.items() if key != "name"}
        for combination in product(*options.values()):
            yield table["name"], tuple(zip(options, combination, strict=True))


def _seeds(given: object) -> Iterator[int]:
    """Yield seeds of a list, of a range "0..9" with both ends, or of a list of these."""
    for one in given if isinstance(given, list) else [given]:
        match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", str(one))
        if not match:
            raise ValueError(f'seeds must be whole numbers or ranges such as "0..9", got {one!r}')
        yield from range(int(match[1]), int(match[2] or match[1]) + 1)
