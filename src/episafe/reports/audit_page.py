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

Section = tuple[str, list[str]]


def sections(found: dict[str, Any], lines: list[str]) -> list[Section]:
    """The page: a title and its sentences, one after another."""
    deployed = [json.loads(line) for line in lines] if not found["damage"] else []
    return [
        ("Verdict", _verdict(found)),
        ("What was verified", _verified(found)),
        ("What was deployed, and why it was allowed", _deployed(found, deployed)),
        ("At which level", _level(found, deployed)),
        ("Reports", _reports(found)),
        ("What went wrong while it ran", found["faults"] or ["Nothing was recorded."]),
        ("What this cannot show", [f"{text}." for text in CANNOT_SHOW]),
    ]


def _verdict(found: dict[str, Any]) -> list[str]:
    if found["damage"]:
        return ["DAMAGED. Do not rely on this trail.", *found["damage"]]
    if found["recomputed"] is None:
        return ["The chain of lines is whole. NO certificate was recomputed: the agent could not be built from the "
                "folder; hand it over with --agent MODULE:NAME."]  # fmt: skip
    return ["WHOLE. Every line is in its place, and every certificate came out again to the last bit."]


def _verified(found: dict[str, Any]) -> list[str]:
    said = [f"{found['lines']} lines of the audit trail, each with the hash of the one before it."]
    if found["recomputed"] is not None:
        said.append(
            f"{found['recomputed']} certificates (source, λ, bound, log-determinants, hash of the state), made again "
            f"by a new agent from the {found['episodes']} recorded episodes."
        )
    if found["head_at"] is not None:
        said.append(f"The hash that was kept elsewhere is that of line {found['head_at'] + 1}.")
    said.append(f"Hash of the last line, to be kept elsewhere: {found['head']}")
    said.append(
        "Written by " + ", ".join(f"{name.removesuffix('_version')} {v}" for name, v in found["versions"].items())
    )
    return said


def _deployed(found: dict[str, Any], deployed: list[dict[str, Any]]) -> list[str]:
    if not deployed:
        return ["Not shown: the trail is damaged or empty."]
    counts = Counter(one["source"] for one in deployed)
    said = [f"{count} times {SOURCES.get(source, source)}." for source, count in counts.items()]
    said.append(
        f"A learned policy is allowed only if its lower bound on the expected utility reaches the threshold "
        f"{deployed[0]['threshold']:g}; else the incumbent is deployed."
    )
    checked = [one["margin"] for one in deployed if one["source"] in ("zero", "search") and one["margin"] is not None]
    if checked:
        said.append(f"The smallest margin of a learned policy was {min(checked):.6g}.")
    few = len(deployed) <= 2 * SHOWN
    shown = deployed if few else deployed[:SHOWN]
    said += [_one(one) for one in shown]
    if not few:
        said.append(f"… {len(deployed) - 2 * SHOWN} more, all in audit.jsonl …")
        said += [_one(one) for one in deployed[-SHOWN:]]
    return said


def _one(line: dict[str, Any]) -> str:
    when = f"{line['time']}, " if "time" in line else ""
    what = f"{when}from episode {line['episode']}: plan {line['plan']}, {SOURCES.get(line['source'], line['source'])}"
    if line["bound"] is not None:
        what += f"; bound {line['bound']:.6g}, margin {line['margin']:.3g}"
    if "weights" in line and line["weights"][0] < 1:
        what += f"; a mixture with weights {line['weights'][0]:.4g} and {line['weights'][1]:.4g}"
    if line.get("reason"):
        what += f"; because: {line['reason']}"
    return f"{what}; {line['learned']} episodes were known."


def _level(found: dict[str, Any], deployed: list[dict[str, Any]]) -> list[str]:
    level = str(found["settings"].get("level") or (deployed[0]["level"] if deployed else "unknown"))
    said = [f"{level}: {LEVELS.get(level, 'nothing is claimed')}."]
    if found["settings"].get("delta"):
        said.append(
            f"Probability that some deployed policy is unsafe all the same: at most {found['settings']['delta']}."
        )
    if found["settings"].get("statement"):
        said.append(str(found["settings"]["statement"]) + ".")
    return said


def _reports(found: dict[str, Any]) -> list[str]:
    missing = sum(found["missing"].values())
    said = [f"{found['episodes']} episodes were reported."]
    if found["kind"] == "run":
        return [*said, "It was a simulation: nothing can be missing."]
    said.append(
        f"{missing} deployments were never reported"
        + (f"; the oldest is of {found['oldest_missing']}." * bool(missing) or ".")
    )
    return said


def as_text(found: dict[str, Any], lines: list[str]) -> str:
    """The page for a terminal."""
    parts = [f"Audit of {found['folder']}"]
    for title, sentences in sections(found, lines):
        parts.append(f"\n{title}\n" + "\n".join(f"  {sentence}" for sentence in sentences))
    return "\n".join(parts)


def as_html(found: dict[str, Any], lines: list[str]) -> str:
    """The page for a browser, without anything from elsewhere."""
    colour = "#b00020" if found["damage"] else "#1b5e20"
    body = "".join(
        f"<h2>{html.escape(title)}</h2><ul>"
        + "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
        + "</ul>"
        for title, sentences in sections(found, lines)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Audit of {html.escape(found['folder'])}</title><style>body{{font:16px/1.5 system-ui,sans-serif;"
        "max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}h2{font-size:1.1rem;margin-top:2rem;border-bottom:"
        f"1px solid #ddd}}h2:first-of-type{{color:{colour}}}li{{margin:.2rem 0;overflow-wrap:anywhere}}</style>"
        f"<h1>Audit of {html.escape(found['folder'])}</h1>{body}</html>\n"
    )
