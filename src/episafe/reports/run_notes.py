"""What a reader must be told about the runs behind one row: cut short, repeated, not made alike; and versions."""

from collections.abc import Iterable, Mapping, Sequence

from episafe.reports.record_groups import Group, is_bandit, shortest
from episafe.runs.record import Record
from episafe.storage.toml_settings import Scalar

# settings that may differ between runs of a group
OF_ONE_RUN = (
    "seed",
    "run_seed",
    "slack",
    "job",
    "seconds",
    "incumbent_reward",
    "redraws",
    "num_episodes",
    "num_rounds",
    "reasons",
    "alarms",
)
VERSION = "_version"


def notes(runs: Sequence[Record]) -> tuple[str, ...]:
    """Warnings about one group, as sentences without a full stop."""
    found = []
    length, unit = shortest(runs), "rounds" if is_bandit(runs[0].settings) else "episodes"
    if any(len(run.reward_values) > length for run in runs):
        found.append(f"runs differ in length: cut to the first {length:,} {unit} of each")
    differing = [key for key in _shared_keys(runs) if not _agree(runs, key)]
    if differing:
        found.append(f"runs differ in {', '.join(differing)}: the mean is over unlike runs")
    alarms = [str(run.settings["alarms"]) for run in runs if run.settings.get("alarms", "none") != "none"]
    if alarms:
        found.append(f"monitors raised an alarm in {len(alarms)} of {len(runs)} runs, the first: {alarms[0]}")
    seeded = [run.settings for run in runs if {"seed", "run_seed"} <= run.settings.keys()]
    repeated = len(seeded) - len({(said["seed"], said["run_seed"]) for said in seeded})
    if repeated:
        found.append(f"{repeated} of {len(runs)} runs repeat the seeds of another: the interval is too narrow")
    return tuple(found)


def common_settings(runs: Sequence[Record]) -> dict[str, Scalar]:
    """Settings that all runs have and agree on, without what names the group."""
    named = Group.__dataclass_fields__
    return {key: runs[0].settings[key] for key in _shared_keys(runs) if key not in named and _agree(runs, key)}


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


def _shared_keys(runs: Sequence[Record]) -> list[str]:
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    own = (*OF_ONE_RUN, *(key for key in keys if key.startswith("incumbent_utility")))
    return [key for key in keys if key not in own and not key.endswith(VERSION)]


def _agree(runs: Sequence[Record], key: str) -> bool:
    return len({repr(run.settings.get(key)) for run in runs}) == 1
