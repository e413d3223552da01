"""What a reader must be told about the runs behind one row: cut short, repeated, not made alike; and versions."""

from collections.abc import Iterable, Mapping, Sequence

from episafe.reports.record_groups import VERSION, Group, agree, is_bandit, shared_keys, shortest
from episafe.runs.record import Record
from episafe.storage.toml_settings import Scalar


def notes(runs: Sequence[Record]) -> tuple[str, ...]:
    """Warnings about one group, as sentences without a full stop."""
    found = []
    length, unit = shortest(runs), "rounds" if is_bandit(runs[0].settings) else "episodes"
    if any(len(run.reward_values) > length for run in runs):
        found.append(f"runs differ in length: cut to the first {length:,} {unit} of each")
    differing = [key for key in shared_keys(runs) if not agree(runs, key)]
    if differing:
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
