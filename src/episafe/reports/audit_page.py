"""An audit as a page that can be read without knowing the code: as text, and as HTML."""

import html
import json
from collections import Counter
from typing import Any

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
CANNOT_SHOW = (
    "that the reported episodes are what really happened: it starts from what was reported",
    "that missing reports are missing by chance: if they are not, the bounds are biased",
    "that the incumbent is safe, or that the assumptions behind the level are true",
    "that nobody rewrote all files consistently: only a head hash that was kept elsewhere shows that",
)

HEADER = ("from episode", "time", "plan", "deployed", "lower bound", "above threshold by", "episodes known", "because")


Rows = list[tuple[str, ...]]
Section = tuple[str, list[str], Rows]  # title, sentences, and rows of the table of deployments where it has one


def sections(found: dict[str, Any], lines: list[str]) -> list[Section]:
    """The page, part by part."""
    read = [json.loads(line) for line in lines] if not found["damage"] else []
    deployed = [line for line in read if "event" not in line]
    return [
        ("Verdict", _verdict(found), []),
        ("At which level", _level(found, deployed), []),
        ("Reports", _reports(found), []),
        ("What went wrong while it ran", found["faults"] or ["Nothing was recorded."], []),
        ("What was verified", _verified(found), []),
        ("What this cannot show", [f"{text}." for text in CANNOT_SHOW], []),
        ("What was deployed, and why it was allowed", _deployed(deployed), _shown(deployed)),
    ]


def _verdict(found: dict[str, Any]) -> list[str]:
    if found["damage"]:
        return ["DAMAGED. Do not rely on this trail.", *found["damage"]]
    if found["recomputed"] is None:
        return ["The chain of lines is whole. NO certificate was recomputed: the agent could not be built from the "
                "folder; hand it over with --agent MODULE:NAME."]  # fmt: skip
    return ["WHOLE. Every line is in its place, and every certificate came out again to the last bit."]


def _verified(found: dict[str, Any]) -> list[str]:
    if found["damage"]:
        return ["Not all of it: see the verdict."]
    said = [f"{found['lines']} lines of the audit trail, each with the hash of the one before it."]
    if found["recomputed"] is not None:
        said.append(
            f"{found['recomputed']} certificates (source, λ, bound, log-determinants, hash of the state), made again "
            f"by a new agent from the {found['episodes']} recorded episodes."
        )
    if found["head_at"] is not None:
        said.append(f"The hash that was kept elsewhere is that of line {found['head_at'] + 1}.")
    versions = ", ".join(f"{name.removesuffix('_version')} {version}" for name, version in found["versions"].items())
    return [*said, f"Hash of the last line, to be kept elsewhere: {found['head']}", f"Written by {versions}"]


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
    what = SOURCES.get(line["source"], line["source"])
    if "weights" in line and line["weights"][0] < 1:
        what += f", in a mixture with weights {line['weights'][0]:.4g} and {line['weights'][1]:.4g}"
    bound = ("–", "–") if line["bound"] is None else (f"{line['bound']:.6g}", f"{line['margin']:.3g}")
    place = (str(line["episode"]), str(line.get("time", "–")), str(line["plan"]))
    return (*place, what, *bound, str(line["learned"]), line.get("reason") or "–")


def _level(found: dict[str, Any], deployed: list[dict[str, Any]]) -> list[str]:
    settings = found["settings"]
    level = str(settings.get("level") or (deployed[0]["level"] if deployed else "unknown"))
    said = [f"{level}: {LEVELS.get(level, 'nothing is claimed')}."]
    if found["recomputed"] is None:
        said.append("That is what the trail says of itself: no certificate was recomputed here.")
    if settings.get("delta"):
        said.append(f"Probability that some deployed policy is unsafe all the same: at most {settings['delta']}.")
    return [*said, f"{settings['statement']}."] if settings.get("statement") else said


def _reports(found: dict[str, Any]) -> list[str]:
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
    """The page for a terminal."""
    parts = [f"Audit of {found['folder']}"]
    for title, sentences, rows in sections(found, lines):
        parts.append(f"\n{title}\n" + "\n".join(f"  {sentence}" for sentence in sentences))
        table = _table(rows)
        widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
        padded = [[f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)] for row in table]
        parts += [f"  {'  '.join(row)}".rstrip() for row in padded]
    return "\n".join(parts)


def as_html(found: dict[str, Any], lines: list[str]) -> str:
    """The page for a browser, without anything from elsewhere."""
    colour = "#b00020" if found["damage"] else "#1b5e20"
    body = "".join(_section_as_html(section) for section in sections(found, lines))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Audit of {html.escape(found['folder'])}</title><style>body{{font:16px/1.5 system-ui,sans-serif;"
        "max-width:66rem;margin:2rem auto;padding:0 1rem;color:#222}h2{font-size:1.1rem;margin-top:2rem;border-bottom:"
        f"1px solid #ddd}}h2:first-of-type,h2:first-of-type+ul{{color:{colour};font-weight:bold}}"
        "li{margin:.2rem 0;overflow-wrap:anywhere}table{border-collapse:collapse;font-size:.85rem;width:100%}"
        "th,td{border-bottom:1px solid #eee;padding:.25rem .6rem;text-align:left;vertical-align:top}"
        "td{font-variant-numeric:tabular-nums}</style>"
        f"<h1>Audit of {html.escape(found['folder'])}</h1>{body}</html>\n"
    )


def _section_as_html(section: Section) -> str:
    title, sentences, rows = section
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    text = f"<h2>{html.escape(title)}</h2><ul>{items}</ul>"
    if not rows:
        return text
    header, *shown = _table(rows)
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in shown)
    return f"{text}<table><tr>{head}</tr>{body}</table>"
