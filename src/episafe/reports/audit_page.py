"""An audit as a page that can be read without knowing the code: as text, and as HTML."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from episafe.plain_text import one_line
from episafe.reports.findings import plural
from episafe.reports.page_frame import render
from episafe.reports.pictures import Picture, Scale
from episafe.reports.record_groups import is_bandit
from episafe.reports.run_pictures import MIXED, NOT_SURE, REFUSED, bounds_picture, stacked_picture, threshold_steps
from episafe.runs.record import ROUNDING
from episafe.types import Array, amount, amounts

SHOWN = 12  # changes listed at each end, for a terminal
MOST_SHOWN = 200  # the same, on a page

SOURCES = {
    "safe": "the incumbent",
    "zero": "a learned policy (no weight on the constraint was needed)",
    "search": "a learned policy",
    "fixed": "a fixed policy, which nobody checks",
}
LEVELS = {
    "theorem": "proved to hold with the stated probability if the stated assumptions are true",
    "calibrated": "validated by simulation on a stated family of problems",
    "heuristic": "observed to work, and not proved",
}
SAFE_MEANS = "What must be kept is the expected utility of what is deployed, whatever a single episode brings."
CANNOT_SHOW = (
    "that the reported episodes are what really happened: it starts from what was reported",
    "that missing reports are missing by chance: if they are not, the bounds are biased",
    "that the incumbent is safe, or that the assumptions behind the level are true",
    "that nobody rewrote all files consistently: only a head hash that was kept elsewhere shows that",
)

ALIKE = 4  # the column that counts plans
BOUNDS = {"bound": ".6g", "margin": ".3g"}  # figures of a plan, None where it has none, and how they are written
NAMELESS = "a simulation keeps no names of what it mixes"
HEADER = (
    "from", "time", "plan", "deployed", "plans alike", "lower bound", "above threshold by", "reports known", "because",
)  # fmt: skip
EVENTS = {
    "fault": "something went wrong", "halt": "exploring was stopped", "resume": "exploring goes on",
    "close": "closed in good order", "abandon": "a deployment that will never be reported",
    "candidate": "a candidate comes on trial", "promote": "another policy becomes the fallback",
    "change": "settings or versions changed", "withdraw": "a trial was ended", "lost": "what a repair could not keep",
}  # fmt: skip
NARROW = ("from", "time", "plan", "deployed", "alike", "bound", "margin", "known", "because")  # for a terminal
TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?\+00:00")
WORDS = ("time", "deployed", "because")  # columns of words; the others hold numbers


Rows = list[tuple[str, ...]]
Section = tuple[str, list[str], Rows]  # title, sentences, and rows of the table of deployments where it has one


def sections(found: dict[str, Any], lines: list[str], most: int = SHOWN) -> list[Section]:
    """The page, part by part; of the changes of what was deployed at most `most` at each end."""
    read = _read(found, lines)
    deployed = [line for line in read if "event" not in line]
    changes = _changes(read)
    return [
        ("Verdict", _verdict(found), []),
        ("At which level", _level(found, deployed), []),
        ("Reports", _reports(found), []),
        ("What went wrong or was stopped while it ran", _faults(found), []),
        ("What was verified", _verified(found), []),
        ("What this cannot show", [f"{text}." for text in CANNOT_SHOW], []),
        (
            "What was deployed, and why it was allowed",
            _deployed(found, deployed, len(changes), most),
            _ends(changes, most),
        ),
    ]


def _read(found: dict[str, Any], lines: list[str]) -> list[dict[str, Any]]:
    """The lines of a trail; none of one that is damaged."""
    return [] if found["damage"] else [json.loads(line) for line in lines]


def _faults(found: dict[str, Any]) -> list[str]:
    """What went wrong or was stopped, once each: an alarm halts for a reason that it has told already."""
    said = [fault or "without a reason" for fault in found["faults"]]
    told = [one for one in said if not any(other.endswith(f": {one}") for other in said)]
    return told or ["Not known: the trail is damaged." if found["damage"] else "Nothing was recorded."]


def _verdict(found: dict[str, Any]) -> list[str]:
    if found["damage"]:
        return ["DAMAGED. Do not rely on this trail.", *found["damage"]]
    if found["format"] == 1:
        return ["The chain of lines is whole: none was edited, deleted, inserted or moved, unless all after it were "
                "written anew.", _checked(found), "NO certificate was recomputed, and NOTHING was read but the trail: "
                "the log of a journal of format 1 was not chained, so that a halt or reports may have been cut out of "
                "it, and the last lines of the trail with them, if their hash was not kept elsewhere. The version that "
                "wrote it can recompute its certificates."]  # fmt: skip
    if found["recomputed"] is None:
        unbuilt = "the agent could not be built from the folder; hand it over with --agent MODULE:NAME"
        why = found["otherwise"] or unbuilt
        return [
            f"The chain of lines is whole, and the log says the same. NO certificate was recomputed: {why}.",
            _checked(found),
        ]
    if found["otherwise"]:
        return _otherwise(found)
    return ["WHOLE. Every line is in its place, and every certificate came out again to the last bit."]


def _checked(found: dict[str, Any]) -> str:
    passed = f"{found['checked']:,} of {plural(found['plans'], 'plan')} passed the check by what was recorded"
    return f"{passed}: the incumbent, or a bound that reaches the threshold."


def _otherwise(found: dict[str, Any]) -> list[str]:
    """The verdict where this version plans otherwise than the one that wrote the folder."""
    whole = "WHOLE, BY WHAT WAS RECORDED. Another version wrote it, and this one plans otherwise, which is no damage."
    if found["doubts"]:
        whole = "IN DOUBT. The files are whole; of what another version deployed, this one would not deploy all."
    verified = "Chain, numbers, reports and halts are right, and the log says the same as the trail."
    if found["confirmed"] is None:
        anew = "No bound could be computed anew: that takes the policies themselves, which a journal does not keep."
    else:
        count = found["confirmed"]
        reach = "1 bound of a learned policy reaches" if count == 1 else f"{count:,} bounds of learned policies reach"
        anew = f"Computed anew from the recorded episodes, {reach} the threshold, up to rounding."
    came = f"{plural(found['recomputed'], 'plan')} came out again to the last bit. After that: {found['otherwise']}"
    return [whole, f"{verified} {_checked(found)}", anew, *found["doubts"], came]


def _verified(found: dict[str, Any]) -> list[str]:
    if found["damage"]:
        return ["Not all of it: see the verdict."]
    said = [f"{found['lines']:,} lines of the audit trail, each with the hash of the one before it."]
    if found["recomputed"]:
        said.append(
            f"{found['recomputed']:,} certificates (source, λ, bound, log-determinants, hash of the state), made again "
            f"by a new agent from the {found['episodes']:,} recorded episodes."
        )
    if found["replaced"]:
        said.append(
            f"A person has replaced the incumbent: {'; '.join(found['replaced'])}. Plans from before the last time are "
            "held against the check, and not made again."
        )
    if found["incumbent"]:
        said.append(
            f"That the incumbent is the same is known by the version alone that its user gave: {found['incumbent']}."
        )
    if found["head_at"] is not None:
        said.append(f"The hash that was kept elsewhere is that of line {found['head_at'] + 1}.")
    written = [f"Written by {_said(found['versions'])}", *(f"Then by {_said(one)}" for one in found["later_versions"])]
    return [*said, f"Hash of the last line, to be kept elsewhere: {found['head']}", *written]


def _said(versions: dict[str, Any]) -> str:
    return ", ".join(f"{name.removesuffix('_version')} {version}" for name, version in versions.items())


def _deployed(found: dict[str, Any], deployed: list[dict[str, Any]], num_changes: int, most: int) -> list[str]:
    if not deployed:
        return ["Not shown: the trail is damaged or empty."]
    counts = Counter(_what(one) for one in deployed)
    said = [f"{plural(count, 'plan')}: {what}." for what, count in counts.items()]
    else_bound = "its own" if is_bandit(found["settings"]) else "that of what was refused"
    said.append(
        f"A learned policy is allowed only if {_limits(deployed, _unit(found))}; else the incumbent is deployed, and "
        f"the bound is {else_bound}."
    )
    margins = [_numbers(one["margin"]).min() for one in deployed if one["source"] in ("zero", "search")]
    checked = [margin for margin in margins if math.isfinite(margin)]
    if checked:
        said.append(f"The smallest margin of a learned policy was {_figure(min(checked), '.6g')}.")
    said.append("Below is every change of what was deployed, and every event; figures are of the first plan of each.")
    if num_changes > 2 * most:
        said.append(f"Of {num_changes:,} the first and the last {most} are shown; all plans are in audit.jsonl.")
    return said


def _limits(deployed: list[dict[str, Any]], unit: str) -> str:
    """What a bound must reach: the threshold, or one a constraint, and what a person made of it."""
    first, *later = [
        _written(line["threshold"], "g").replace(", ", " and ")
        for line in (deployed[0], *(line for _, line in _changed(deployed)))
    ]
    since = [f", from {unit} {line['episode'] + 1:,} on " for _, line in _changed(deployed)]
    reached = "its lower bound on the expected utility reaches the threshold"
    if " and " in first:
        reached = "each of its lower bounds on expected utility reaches its threshold,"
    return f"{reached} {first}{''.join(when + limit for when, limit in zip(since, later, strict=True))}"


def _changed(deployed: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Where the threshold is another than before: the last line of the one, and the first of the other."""
    return [(last, line) for last, line in pairwise(deployed) if line["threshold"] != last["threshold"]]


def _unit(found: dict[str, Any]) -> str:
    """What is deployed once: an episode of a simulation, or a deployment, whose report may come late or never."""
    if is_bandit(found["settings"]):
        return "round"
    return "episode" if found["kind"] == "run" else "deployment"


def _what(line: dict[str, Any]) -> str:
    """What a line says was deployed."""
    what = SOURCES.get(line["source"], str(line["source"]))
    weights = line.get("weights") or [1]
    return f"{what}, in a mixture" if weights[0] < 1 else what


def _changes(read: list[dict[str, Any]]) -> Rows:
    """A row for each change of what is deployed, with how many plans follow that are like it, and for each event."""
    rows: list[list[str]] = []
    last, count = "", 0
    for line in read:
        if "event" in line:
            rows.append(_event(line))
            last = ""
            continue
        if _what(line) != last:
            last, count = _what(line), 0
            rows.append(_row(line))
        count += 1
        rows[-1][ALIKE] = f"{count:,}"
    return [tuple(row) for row in rows]


def _ends(rows: Rows, most: int) -> Rows:
    """All rows, or those at both ends."""
    return rows if len(rows) <= 2 * most else [*rows[:most], ("…",) * len(HEADER), *rows[-most:]]


def _row(line: dict[str, Any]) -> list[str]:
    what, names = SOURCES.get(line["source"], str(line["source"])), line.get("names") or []
    weights = line.get("weights") or [1]
    if weights[0] < 1:
        what += f", in a mixture with weights {_weights(weights, names)}{'' if names else f' ({NAMELESS})'}"
    elif names and line["source"] != "safe":
        what += f": {names[0]}"
    bounds = [_written(line[name], form) for name, form in BOUNDS.items()]
    plan = f"{line['plan']:,}" if line["plan"] >= 0 else "–"  # halted: of no plan
    known, reason = f"{line['learned']:,}", str(line.get("reason") or "–")
    return [f"{line['episode'] + 1:,}", _when(line), plan, what, "1", *bounds, known, reason]


def _weights(weights: Sequence[float], names: Sequence[str]) -> str:
    """The weights of a mixture, each with its policy's name where the trail has it."""
    named = [*names, *[""] * (len(weights) - len(names))]
    return ", ".join(
        f"{weight:.4g}{f' for {name}' if name else ''}" for weight, name in zip(weights, named, strict=False) if weight
    )


def _when(line: dict[str, Any]) -> str:
    """The time of a line, to the second, as a person writes it; as it is where it is no time."""
    return _to_the_second(str(line.get("time") or "–"))


def _to_the_second(said: str) -> str:
    return TIME.sub(r"\1 \2 UTC", said)


def _numbers(value: Any) -> Array:
    """A figure of a line, or one a constraint; what it does not say is NaN."""
    return amounts(math.nan if value is None else [math.nan if one is None else one for one in np.ravel(value)])


def _written(value: Any, form: str) -> str:
    return ", ".join("–" if math.isnan(one) else _figure(one, form) for one in _numbers(value).tolist())


def _figure(value: float, form: str) -> str:
    return f"< {ROUNDING:g}" if 0 < value < ROUNDING else f"{value:{form}}"


def _event(line: dict[str, Any]) -> list[str]:
    what = EVENTS.get(line["event"], str(line["event"]))
    what += f": {line['name']}" if line.get("name") else ""
    return ["–", _when(line), "–", what, "–", "–", "–", "–", str(line.get("reason") or "–")]


def _level(found: dict[str, Any], deployed: list[dict[str, Any]]) -> list[str]:
    settings = found["settings"]
    if found["damage"] and not settings.get("level"):
        return ["Not known: the trail is damaged, and nothing is claimed."]
    level = str(settings.get("level") or (deployed[0]["level"] if deployed else "unknown"))
    said = [f"{level}: {LEVELS.get(level, 'nothing is claimed')}."]
    if not found["recomputed"]:
        said.append("That is what the trail says of itself: no certificate was recomputed here.")
    if settings.get("delta"):
        said.append(f"Probability that some deployed policy is unsafe all the same: at most {settings['delta']}.")
    statement = str(settings.get("statement") or "")
    return [*said, f"{statement[0].upper()}{statement[1:]}."] if statement else said


def _reports(found: dict[str, Any]) -> list[str]:
    if found["format"] == 1:
        return ["They were not counted: only the trail of a journal of format 1 is read."]
    if found["damage"] and not found["episodes"]:
        return ["They were not counted: the trail is damaged."]
    missing = sum(found["missing"].values())
    said = [f"{found['episodes']:,} episodes were reported."]
    if found["kind"] == "run":
        return [*said, "It was a simulation: nothing can be missing."]
    oldest = f"; the oldest is of {_to_the_second(found['oldest_missing'])}" if missing else ""
    never = "1 deployment was" if missing == 1 else f"{missing:,} deployments were"
    return [*said, f"{never} never reported{oldest}."]


def as_text(found: dict[str, Any], lines: list[str]) -> str:
    """The page for a terminal, without anything that it would obey."""
    parts = [f"Audit of {one_line(found['folder'])}", SAFE_MEANS]
    for title, sentences, rows in sections(found, lines):
        parts.append(f"\n{title}\n" + "\n".join(f"  {one_line(sentence)}" for sentence in sentences))
        parts += _rows_as_text(rows) if rows else []
    return "\n".join(parts)


def _rows_as_text(rows: Rows) -> list[str]:
    """Figures in columns, none for an event, and below them what was deployed, when and why."""
    columns = [i for i, heading in enumerate(HEADER) if heading not in WORDS]
    table = [[one_line(row[i]) for i in columns] for row in (NARROW, *rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    said = [f"  {'  '.join(f'{cell:>{width}}' for cell, width in zip(row, widths, strict=True))}" for row in table]
    found = [said[0]]
    for row, cells, figures in zip(rows, table[1:], said[1:], strict=True):
        if any(cell != "–" for cell in cells):
            found.append(figures)
        words = [one_line(cell) for name in WORDS if (cell := row[HEADER.index(name)]) != "–"]
        found.append(f"      {'  '.join(words)}")
    return [line.rstrip() for line in found]


def as_html(found: dict[str, Any], lines: list[str]) -> str:
    """The page for a browser, without anything from elsewhere."""
    return render(
        "audit.html",
        title=f"Audit of {found['folder']}",
        safe_means=SAFE_MEANS,
        verdict=_colour(found),
        sections=[_section_as_values(section, _unit(found)) for section in sections(found, lines, MOST_SHOWN)],
        pictures=_pictures(found, _read(found, lines)),
        words=WORDS[1:],  # a time does not wrap
    )


def _colour(found: dict[str, Any]) -> str:
    """Of the verdict: none where no certificate was made again, so that nothing is known to be right or wrong."""
    if found["damage"] or found["doubts"]:
        return "unsafe"
    return "" if found["recomputed"] is None else "safe"


def _pictures(found: dict[str, Any], read: list[dict[str, Any]]) -> list[Picture]:
    """Bounds against the threshold, and what was deployed when, by the trail; of several constraints by their names."""
    names, unit = found["constraints"], _unit(found)
    refused = NOT_SURE if is_bandit(found["settings"]) else REFUSED
    deployed = [line for line in read if "event" not in line]
    thresholds = _numbers(deployed[-1]["threshold"]) if deployed else np.zeros(0)
    if not np.isfinite(thresholds).all() or not deployed:
        return []
    starts = np.array([line["episode"] for line in deployed])
    length = max([int(starts[-1]) + 1, *(line.get("deployments", 0) for line in read)])
    across = Scale.linear(unit, 0.0, float(length), 6)
    bounds = np.array([np.resize(_numbers(line["bound"]), len(thresholds)) for line in deployed])
    allowed = np.array([line["source"] != "safe" for line in deployed])
    mixed = np.array([bool(line.get("weights")) and max(line["weights"]) < 1 for line in deployed])
    in_force = np.searchsorted(starts, np.arange(length), side="right") - 1
    whose = {"incumbent": ~allowed, "mixture": allowed & mixed, "learned policy": allowed & ~mixed}
    by_episode = {name: theirs[in_force] for name, theirs in whose.items()}
    earlier = [(line["episode"], amount(_numbers(last["threshold"]))) for last, line in _changed(deployed)]
    drawn, caption = list[Picture](), MIXED[len(thresholds) == 1] if mixed.any() else ""
    for c, threshold in enumerate(thresholds.tolist()):
        if np.isfinite(bounds[:, c]).any():
            called = names[c] if len(names) == len(thresholds) else f"constraint {c}"
            of = f": {called}" if len(thresholds) > 1 else ""
            one = bounds_picture(starts + 1.0, bounds[:, c], allowed, threshold, across, caption, of, refused)
            drawn.append(replace(one, marks=[*one.marks, *threshold_steps(earlier, c)]))
    return [*drawn, stacked_picture("What was deployed", f"% of {unit}s", by_episode, across)]


def _section_as_values(section: Section, unit: str) -> dict[str, Any]:
    """A section as the template shows it; its table without the columns that say nothing."""
    title, sentences, rows = section
    columns = [i for i in range(len(HEADER)) if any(row[i] not in ("–", "…") for row in rows)]
    headings, *shown = [[row[i] for i in columns] for row in ((f"from {unit}", *HEADER[1:]), *rows)]
    return {"title": title, "sentences": sentences, "headings": headings, "rows": shown}
