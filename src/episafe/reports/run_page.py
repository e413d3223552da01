"""The page of single runs, simulated or live: first what was gained, what was kept and who acted, then pictures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from episafe.reports.audit_page import LEVELS, SAFE_MEANS
from episafe.reports.findings import plural, share
from episafe.reports.labels import name
from episafe.reports.metrics import Interval
from episafe.reports.page_frame import render
from episafe.reports.pictures import Picture
from episafe.reports.record_groups import Group
from episafe.reports.run_pictures import (
    LAST,
    MORE_OR_LESS,
    acting_shares,
    by_constraint,
    incumbent_values,
    observed_rewards,
    pictures,
    raw_cost,
    totals,
    unit,
)
from episafe.reports.tables import number, plus_minus
from episafe.runs.record import Record
from episafe.stats import normal_interval
from episafe.types import Amount, Array

MOST_RUNS = 12  # on one page
MOST_RISE = 5  # times the incumbent's reward that a rise is told as a share of it: beyond, the share says nothing
SHOWN = (
    "env", "variant", "options", "agent", "level", "statement", "delta", "constants", "replan", "seed", "run_seed",
    "alarms", "planning_failed",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class ShownRun:
    """One run to be shown.

    Attributes:
        title: where it was found.
        record: what happened.
        halts: the episodes after which only the incumbent acted, and why.
        changes: maps of what learned policies do otherwise.
        notes: what a reader must know.
        earlier: thresholds that a person changed, and the episode from which on they held no more.
    """

    title: str
    record: Record
    halts: Sequence[tuple[int, str]] = ()
    changes: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    earlier: Sequence[tuple[int, Amount]] = ()


def to_html(title: str, runs: Sequence[ShownRun]) -> str:
    """The page."""
    units = {unit(run.record) for run in runs}
    brings = "round" if units == {"round"} else "episode"
    return render("run.html", title=title, safe_means=SAFE_MEANS.replace("episode", brings), **sections(runs))


def sections(runs: Sequence[ShownRun]) -> dict[str, Any]:
    """The runs as a template shows them, and how many are too many for one page."""
    left = len(runs) - MOST_RUNS
    more = f"{plural(left, 'more run')} not shown: make a report of each folder." if left > 0 else ""
    return {"runs": [_section(run) for run in runs[:MOST_RUNS]], "more": more}


def _section(run: ShownRun) -> dict[str, Any]:
    record = run.record
    return {
        "title": run.title,
        "sub": _made_by(record),
        "facts": [gained(record), *map(kept, by_constraint(record)), who_acted(record)],
        "notes": [*run.notes, *(f"Halted after {unit(record)} {k + 1:,}: {why}" for k, why in run.halts)],
        "pictures": list(pictures(record, run.halts, run.earlier).items()),
        "changes": run.changes,
        "changes_key": MORE_OR_LESS,
        "settings": [(key.replace("_", " "), str(record.settings[key])) for key in SHOWN if record.settings.get(key)],
    }


def _made_by(record: Record) -> str:
    """Who acted where, and for how long."""
    agent, where = name(Group.said_by(record.settings).agent), record.settings.get("env")
    return f"{agent}{f' on {where}' if where else ''}, {plural(len(record.sources), unit(record))}"


def at_end(values: Array) -> Array:
    """What is known of the last tenth of the episodes."""
    last = values[-max(1, math.ceil(LAST * len(values))) :]
    return last[np.isfinite(last)]


def gained(record: Record) -> dict[str, str]:
    """What the reward rose by, over the incumbent's."""
    before, _ = incumbent_values(by_constraint(record)[0])
    end = at_end(record.reward_values if record.is_exact else totals(record, 0))
    if not len(end):
        return fact("Reward: not known", f"None was reported in the last tenth of the {unit(record)}s.")
    if not math.isfinite(before):
        alone = " alone" if record.is_exact else ""
        said = f"In the last tenth of the {unit(record)}s. The incumbent’s is not known here: it never acted{alone}."
        return fact(f"Reward {_with_error(record, end)}", said)
    after, observed = float(end.mean()), observed_rewards(record)
    rise = after - before
    said_rise = f"{rise:+.3g}" if abs(rise) > MOST_RISE * abs(before) else f"{100 * rise / abs(before):+.1f} %"
    error = math.hypot(_error(end), _error(observed) if len(observed) else 0.0)
    is_seen = record.is_exact or abs(after - before) > error
    headline = f"{said_rise} reward" if is_seen else "Reward: no difference seen"
    incumbent = _with_error(record, observed) if len(observed) else number(before)
    said = f"{incumbent} of the incumbent, {_with_error(record, end)} in the last tenth of the {unit(record)}s"
    if math.isfinite(record.optimum) and record.optimum > before:
        said += f"; {share(after - before, record.optimum - before)} of the way to the optimum {number(record.optimum)}"
    return fact(headline, f"{said}.")


def kept(record: Record) -> dict[str, str]:
    """Whether the threshold was kept: by exact values, or by what was observed."""
    b, of = number(record.threshold), f"{record.settings['constraint']}: " if "constraint" in record.settings else ""
    said_level = str(record.settings.get("level", ""))
    level = f" Level {said_level}, {LEVELS[said_level]}." if said_level in LEVELS else ""
    if record.is_exact:
        count, K = int(record.violating().sum()), len(record.sources)
        smallest = number(float(record.utility_values.min()))
        said = f"Smallest expected utility {smallest}, required {b}.{level}"
        mark, css = ("✗", "unsafe") if count else ("✓", "safe")
        return fact(f"{mark} {of}{count:,} of {K:,} {unit(record)}s below the threshold", said, css)
    end = at_end(totals(record, 1))
    if not len(end):
        return fact(f"{of}utility not reported", f"Required {b}.{level}")
    said = (
        f"Observed in the last tenth of the {unit(record)}s; required {b} in expectation.{_as_cost(record, end)}{level}"
    )
    observed = f"{of}utility {_with_error(record, end)}"
    if float(end.mean()) + _error(end) < record.threshold:
        return fact(f"✗ {observed[:1].upper()}{observed[1:]}: below the threshold", said, "unsafe")
    return fact(observed, said)


def _as_cost(record: Record, utilities: Array) -> str:
    """What was observed as the cost that a user counts, where it is one."""
    found = raw_cost(record, float(utilities.mean()))
    return f" As a cost: {number(found[0])}, at most {number(found[1])}." if found else ""


def who_acted(record: Record) -> dict[str, str]:
    """The share of episodes in which the incumbent acted, and in how many a mixture's coin said so.

    These are counts, which add up to all of them where rounded shares would not.
    """
    K, of = len(record.sources), acting_shares(record)
    acted = int(record.incumbent_acted().sum())
    parts = [f"{who}: {int(which.sum()):,}" for who, which in of.items() if which.any()]
    said = "; ".join(parts)
    return fact(f"Incumbent acted in {share(acted, K)}", f"Of {K:,} {unit(record)}s. {said[0].upper()}{said[1:]}.")


def fact(headline: str, said: str, css: str = "") -> dict[str, str]:
    """A fact as pages show it: in few words, in a sentence, and how it looks."""
    return {"headline": headline[:1].upper() + headline[1:], "said": said, "css": css}


def _error(values: Array) -> float:
    return float(normal_interval(values)[1]) if len(values) > 1 else math.nan


def _with_error(record: Record, values: Array) -> str:
    mean, error = float(values.mean()), math.nan if record.is_exact else _error(values)
    return plus_minus(Interval(mean, error))
