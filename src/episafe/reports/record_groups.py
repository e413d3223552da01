"""Which records are runs of the same experiment, in which order experiments are shown, and what a reader must be told
of the runs behind one row: cut short, repeated, not made alike; and versions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from episafe.registry import REGISTRY
from episafe.runs.record import Record
from episafe.storage.toml_settings import Scalar

ENVS = ("tabular", "streaming", "linear", "finite", "ball", "ellipsoid", "contexts", "catalogue")
VARIED, VARIANTS = ENVS[:3], ("released", "text")  # only the paper's problems have variants
AGENTS = tuple(name for name, entry in REGISTRY.items() if entry.colour)
EVERY = "Every()"  # how a record says that its agent planned before every episode
CHOSEN = ("bonus", "delta", "radius", "without")  # what is chosen for an agent and depends on no problem
OF_ONE_RUN = (  # settings that may differ between runs of a group
    "seed", "run_seed", "slack", "job", "seconds", "incumbent_reward", "known_utility", "redraws", "num_episodes",
    "num_rounds", "reasons", "alarms", "planning_failed",
)  # fmt: skip
VERSION = "_version"
SHORT = 8  # characters of a number that is shown with all its digits
_CONSTANTS = re.compile(r" constants=(\S+)")  # of a job that asked for others than the published ones


@dataclass(frozen=True)
class Group:
    """What the runs of one row, one curve, have in common; "" where the records do not say."""

    env: str
    variant: str
    agent: str
    replan: str
    level: str
    options: str = ""  # of the environment, where they are not its own defaults
    changes: str = ""  # of the agent's constants, as a sweep or a frontier made them

    @classmethod
    def said_by(cls, settings: Mapping[str, Scalar]) -> "Group":
        """The group that the settings of a record name; a user's problem is "problem", an unnamed agent "agent"."""
        said = {key: str(settings.get(key, "")) for key in cls.__dataclass_fields__}
        variant = said["variant"] if said["env"] in VARIED else ""
        agent, radius = said["agent"] or "agent", str(settings.get("radius", "paper"))
        if asked := _CONSTANTS.search(str(settings.get("job", ""))):
            said["changes"] = ", ".join(filter(None, [f"constants={asked[1]}", said["changes"]]))
        if agent == "oplbsp" and radius == "determinant":
            agent = "oplbsp-determinant"  # whoever built it without a label
        elif agent == "oplbsp" and radius != "paper":
            said["changes"] = ", ".join(filter(None, [said["changes"], f"radius={radius}"]))
        return cls(**{**said, "variant": variant, "env": said["env"] or "problem", "agent": agent})

    @property
    def place(self) -> tuple[str, str]:
        """Environment with its options, and variant: what shares a figure."""
        return self.where, self.variant

    @property
    def where(self) -> str:
        """The environment and, in brackets, the options that are not its defaults."""
        return f"{self.env} ({self.options})" if self.options else self.env

    @property
    def replans_every_episode(self) -> bool:
        """Whether the agent plans before every episode, or is a fixed policy that never has to."""
        return self.replan in (EVERY, "")

    def order(self) -> tuple[object, ...]:
        """Sorts groups: the paper's environments, variants and agents first, in its order."""
        return (
            *_rank(self.env, ENVS),
            self.options,
            *_rank(self.variant, VARIANTS),
            *_rank(self.agent, AGENTS),
            not self.replans_every_episode,
            self.replan,
            self.level,
            self.changes,
        )


def grouped(records: Iterable[Record]) -> dict[Group, list[Record]]:
    """Records by group, in the order of reports; those of unlike settings are apart, and say what differs."""
    named: dict[Group, list[Record]] = {}
    for record in records:
        named.setdefault(Group.said_by(record.settings), []).append(record)
    found: dict[Group, list[Record]] = {}
    for group, runs in named.items():
        keys = _unlike(runs)
        for run in runs:
            apart = [group.changes, *(f"{key}={_few_digits(runs, run, key)}" for key in keys)]
            found.setdefault(replace(group, changes=", ".join(filter(None, apart))), []).append(run)
    return {group: found[group] for group in sorted(found, key=Group.order)}


def _few_digits(runs: Sequence[Record], run: Record, key: str) -> str:
    """A setting in as few digits as tell it from those of the other runs."""
    value = run.settings.get(key, "–")
    if not isinstance(value, float) or len(str(value)) <= SHORT:
        return str(value)
    others = {float(one) for one in (other.settings.get(key) for other in runs) if isinstance(one, float)}
    short = f"{value:.4g}"
    return str(value) if any(f"{other:.4g}" == short for other in others - {value}) else short


def _unlike(runs: Sequence[Record]) -> list[str]:
    """The settings by which runs are of different experiments: chosen ones, and those that differ on one problem.

    Constants that are derived from a problem may differ from one seed to the next.
    """
    keys = [key for key in shared_keys(runs) if not agree(runs, key) and key not in Group.__dataclass_fields__]
    seeds: dict[str, list[Record]] = {}
    for run in runs:
        seeds.setdefault(repr(run.settings.get("seed")), []).append(run)
    return [key for key in keys if key in CHOSEN or not all(agree(alike, key) for alike in seeds.values())]


def shared_keys(runs: Sequence[Record]) -> list[str]:
    """The settings of some runs that should be the same in all."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    own = (*OF_ONE_RUN, *(key for key in keys if key.startswith("incumbent_utility")))
    return [key for key in keys if key not in own and not key.endswith(VERSION)]


def agree(runs: Sequence[Record], key: str) -> bool:
    """Whether all runs say the same of this setting."""
    return len({repr(run.settings.get(key)) for run in runs}) == 1


def shortest(records: Sequence[Record]) -> int:
    """Number of episodes that every run has."""
    length = min(len(record.reward_values) for record in records)
    if length == 0:
        raise ValueError("a record holds no episode: run it for at least one, or remove its folder")
    return length


def first(record: Record, num_episodes: int) -> Record:
    """The record as if the run had ended after `num_episodes`."""
    return replace(record, **{name: getattr(record, name)[:num_episodes] for name in record.columns()})


def _rank(name: str, known: tuple[str, ...]) -> tuple[int, str]:
    return (known.index(name), "") if name in known else (len(known), name)


def is_bandit(settings: Mapping[str, Scalar]) -> bool:
    """Whether the episodes of a record with these settings are rounds of a bandit."""
    return settings.get("problem") == "bandit"


def notes(runs: Sequence[Record]) -> tuple[str, ...]:
    """Warnings about one group, as sentences without a full stop."""
    found = []
    length, unit = shortest(runs), "rounds" if is_bandit(runs[0].settings) else "episodes"
    if any(len(run.reward_values) > length for run in runs):
        found.append(f"runs differ in length: cut to the first {length:,} {unit} of each")
    differing = [key for key in shared_keys(runs) if not agree(runs, key)]
    if differing and not _asked_alike(runs):
        found.append(f"runs differ in {', '.join(differing)}: the mean is over unlike runs")
    alarms = [str(run.settings["alarms"]) for run in runs if run.settings.get("alarms", "none") != "none"]
    if alarms:
        found.append(f"monitors raised an alarm in {len(alarms)} of {len(runs)} runs, the first: {alarms[0]}")
    failed = [str(run.settings["planning_failed"]) for run in runs if "planning_failed" in run.settings]
    if failed:
        found.append(f"planning failed in {len(failed)} of {len(runs)} runs; the incumbent acted in {failed[0]}")
    seeded = [run.settings for run in runs if {"seed", "run_seed"} <= run.settings.keys()]
    repeated = len(seeded) - len({(said["seed"], said["run_seed"]) for said in seeded})
    if repeated:
        found.append(f"{repeated} of {len(runs)} runs repeat the seeds of another: the interval is too narrow")
    return tuple(found)


def _asked_alike(runs: Sequence[Record]) -> bool:
    """Whether jobs asked for the same in all runs, but for the seed: what differs then comes from the problems."""
    asked = {str(run.settings.get("job", "")).partition(" ")[2] for run in runs}
    return len(asked) == 1 and asked != {""}


def common_settings(runs: Sequence[Record]) -> dict[str, Scalar]:
    """Settings that all runs have and agree on, without what names the group."""
    named = Group.__dataclass_fields__
    return {key: runs[0].settings[key] for key in shared_keys(runs) if key not in named and agree(runs, key)}


def seeds(runs: Iterable[Record]) -> tuple[int, ...]:
    """Seeds of the problems, each once."""
    return tuple(sorted({int(run.settings["seed"]) for run in runs if "seed" in run.settings}))


def software(settings: Iterable[Mapping[str, Scalar]]) -> dict[str, list[str]]:
    """Versions behind the records with these settings, by package; more than one where they disagree."""
    found: dict[str, set[str]] = {}
    for said in settings:
        for key, value in said.items():
            if key.endswith(VERSION):
                found.setdefault(key.removesuffix(VERSION), set()).add(str(value))
    return {package: sorted(versions) for package, versions in found.items()}
