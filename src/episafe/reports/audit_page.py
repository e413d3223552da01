"""An audit as a page that can be read without knowing the code: as text, and as HTML."""

import json
from collections import Counter
from typing import Any

from episafe.plain_text import one_line
from episafe.reports.page_frame import render

SHOWN = 12  # deployments listed at each end

SOURCES = {
    "safe": "the incumbent",
    "zero": "a learned policy (no weight on the constraint was needed)",
    "search": "a learned policy",
    "fixed": "a fixed policy, which nobody checks",
}
LEVELS = {
    "theorem": "proved: holds with the stated probability if the stated assumptions are true",
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

BOUNDS = {"bound": ".6g", "margin": ".3g"}  # figures of a plan, None where it has none, and how they are written
HEADER = ("from episode", "time", "plan", "deployed", "lower bound", "above threshold by", "episodes known", "because")
WORDS = ("time", "deployed", "because")  # columns of words; the others hold numbers


Rows = list[tuple[str, ...]]
Section = tuple[str, list[str], Rows]  # title, sentences, and rows of the table of deployments where it has one


def sections(found: dict[str, Any], lines: list[str]) -> list[Section]:
    """The page, part by part."""
    read = [json.loads(line) for line in lines] if not found["damage"] else []
    deployed = [line for line in read if "event" not in line]
    faults = [fault or "without a reason" for fault in found["faults"]]
    return [
        ("Verdict", _verdict(found), []),
        ("At which level", _level(found, deployed), []),
        ("Reports", _reports(found), []),
        ("What went wrong while it ran", faults or ["Nothing was recorded."], []),
        ("What was verified", _verified(found), []),
        ("What this cannot show", [f"{text}." for text in CANNOT_SHOW], []),
        ("What was deployed, and why it was allowed", _deployed(deployed), _shown(deployed)),
    ]


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
        why = "the agent could not be built from the folder; hand it over with --agent MODULE:NAME"
        return [
            f"The chain of lines is whole, and the log says the same. NO certificate was recomputed: {why}.",
            _checked(found),
        ]
    if found["otherwise"]:
        return _otherwise(found)
    return ["WHOLE. Every line is in its place, and every certificate came out again to the last bit."]


def _checked(found: dict[str, Any]) -> str:
    return (
        f"{found['checked']:,} of {_plans(found['plans'])} passed the check by what was recorded: the incumbent, or a "
        "bound that reaches the threshold."
    )


def _otherwise(found: dict[str, Any]) -> list[str]:
    """The verdict where this version plans otherwise than the one that wrote the folder."""
    whole = "WHOLE, BY WHAT WAS RECORDED. Another version wrote it, and this one plans otherwise, which is no damage."
    if found["doubts"]:
        whole = "IN DOUBT. The files are whole; of what another version deployed, this one would not deploy all."
    verified = "Chain, numbers, reports and halts are right, and the log says the same as the trail."
    if found["confirmed"] is None:
        anew = "No bound could be computed anew: that takes the policies themselves, which a journal does not keep."
    else:
        anew = f"Computed anew from the recorded episodes, {_bounds(found['confirmed'])} the threshold, up to rounding."
    came = f"{_plans(found['recomputed'])} came out again to the last bit. After that: {found['otherwise']}"
    return [whole, f"{verified} {_checked(found)}", anew, *found["doubts"], came]


def _bounds(count: int) -> str:
    return "1 bound of a learned policy reaches" if count == 1 else f"{count:,} bounds of learned policies reach"


def _verified(found: dict[str, Any]) -> list[str]:
    if found["damage"]:
        return ["Not all of it: see the verdict."]
    said = [f"{found['lines']} lines of the audit trail, each with the hash of the one before it."]
    if found["recomputed"]:
        said.append(
            f"{found['recomputed']} certificates (source, λ, bound, log-determinants, hash of the state), made again "
            f"by a new agent from the {found['episodes']} recorded episodes."
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


def _deployed(deployed: list[dict[str, Any]]) -> list[str]:
    if not deployed:
        return ["Not shown: the trail is damaged or empty."]
    counts = Counter(one["source"] for one in deployed)
    said = [f"{_plans(count)}: {SOURCES.get(source, source)}." for source, count in counts.items()]
    said.append(
        f"A learned policy is allowed only if its lower bound on the expected utility reaches the threshold "
        f"{deployed[0]['threshold']:g}; else the incumbent is deployed, and the bound is that of what was refused."
    )
    checked = [one["margin"] for one in deployed if one["source"] in ("zero", "search") and one["margin"] is not None]
    if checked:
        said.append(f"The smallest margin of a learned policy was {min(checked):.6g}.")
    if len(deployed) > 2 * SHOWN:
        said.append(f"Below are the first and the last {SHOWN} of {_plans(len(deployed))}; all are in audit.jsonl.")
    return said


def _plans(count: int) -> str:
    return "1 plan" if count == 1 else f"{count:,} plans"


def _shown(deployed: list[dict[str, Any]]) -> Rows:
    """Rows of the table: all plans, or those at both ends."""
    rows = [_row(one) for one in deployed]
    return rows if len(rows) <= 2 * SHOWN else [*rows[:SHOWN], ("…",) * len(HEADER), *rows[-SHOWN:]]


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    what = SOURCES.get(line["source"], str(line["source"]))
    weights = line.get("weights") or [1]
    if weights[0] < 1:
        what += f", in a mixture with weights {', '.join(f'{weight:.4g}' for weight in weights)}"
    bounds = [("–" if line[name] is None else f"{line[name]:{form}}") for name, form in BOUNDS.items()]
    said = [str(line.get(name) or "–") for name in ("time", "reason")]
    return (str(line["episode"]), said[0], str(line["plan"]), what, *bounds, str(line["learned"]), said[1])


def _level(found: dict[str, Any], deployed: list[dict[str, Any]]) -> list[str]:
    settings = found["settings"]
    level = str(settings.get("level") or (deployed[0]["level"] if deployed else "unknown"))
    said = [f"{level}: {LEVELS.get(level, 'nothing is claimed')}."]
    if not found["recomputed"]:
        said.append("That is what the trail says of itself: no certificate was recomputed here.")
    if settings.get("delta"):
        said.append(f"Probability that some deployed policy is unsafe all the same: at most {settings['delta']}.")
    return [*said, f"{settings['statement']}."] if settings.get("statement") else said


def _reports(found: dict[str, Any]) -> list[str]:
    if found["format"] == 1:
        return ["They were not counted: only the trail of a journal of format 1 is read."]
    missing = sum(found["missing"].values())
    said = [f"{found['episodes']} episodes were reported."]
    if found["kind"] == "run":
        return [*said, "It was a simulation: nothing can be missing."]
    oldest = f"; the oldest is of {found['oldest_missing']}" if missing else ""
    return [*said, f"{missing} deployments were never reported{oldest}."]


def _table(rows: Rows) -> list[list[str]]:
    """Header and rows, without the columns that say nothing."""
    columns = [i for i in range(len(HEADER)) if any(row[i] not in ("–", "…") for row in rows)]
    return [[row[i] for i in columns] for row in (HEADER, *rows)] if rows else []


def as_text(found: dict[str, Any], lines: list[str]) -> str:
    """The page for a terminal, without anything that it would obey."""
    parts = [f"Audit of {one_line(found['folder'])}", SAFE_MEANS]
    for title, sentences, rows in sections(found, lines):
        parts.append(f"\n{title}\n" + "\n".join(f"  {one_line(sentence)}" for sentence in sentences))
        table = [[one_line(cell) for cell in row] for row in _table(rows)]
        widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
        padded = [[f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)] for row in table]
        parts += [f"  {'  '.join(row)}".rstrip() for row in padded]
    return "\n".join(parts)


def as_html(found: dict[str, Any], lines: list[str]) -> str:
    """The page for a browser, without anything from elsewhere."""
    return render(
        "audit.html",
        title=f"Audit of {found['folder']}",
        safe_means=SAFE_MEANS,
        unsafe=bool(found["damage"] or found["doubts"]),
        sections=[_section_as_values(section) for section in sections(found, lines)],
        words=WORDS,
    )


def _section_as_values(section: Section) -> dict[str, Any]:
    title, sentences, rows = section
    headings, *shown = _table(rows) if rows else [[]]
    return {"title": title, "sentences": sentences, "headings": headings, "rows": shown}
