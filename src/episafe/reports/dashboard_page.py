"""A journal that is followed, as a page: who acts, what that rests on, what came of it, and what asks for a person."""

import math
from typing import Any

from episafe.deployment.explanation import DeploymentRow, percent
from episafe.deployment.follower import Follower
from episafe.deployment.session_book import missing_warning, num_overdue
from episafe.reports.audit_page import SAFE_MEANS
from episafe.reports.explanation_page import check_picture
from episafe.reports.findings import plural
from episafe.reports.labels import name
from episafe.reports.page_frame import render
from episafe.reports.run_page import fact, gained, kept, who_acted
from episafe.reports.run_pictures import by_constraint, pictures
from episafe.reports.tables import number
from episafe.storage.json_values import plain
from episafe.types import amounts

NOT_VERIFIED = "Frames were verified to follow from each other; that certificates come out again, episafe audit shows."


def page(follower: Follower, seconds: float) -> str:
    """The whole page; it asks for its inside again every so many seconds."""
    title = follower.folder.resolve().name
    return render(
        "dashboard.html", title=title, safe_means=SAFE_MEANS, seconds=seconds, not_verified=NOT_VERIFIED,
        inside=_inside(follower),
    )  # fmt: skip


def inside(follower: Follower) -> str:
    """What changes on the page."""
    return render("dashboard_inside.html", inside=_inside(follower))


def figures(follower: Follower) -> dict[str, Any]:
    """What the page says, for a program; what is not known is null."""
    columns, record = follower.columns, follower.record
    acted = None if record is None else int(record.incumbent_acted().sum())
    said = {
        "folder": str(follower.folder), "kind": follower.head["kind"], "share_read": follower.share_read,
        "deployments": len(columns), "reported": columns.reported, "missing": len(columns.waiting),
        "oldest_missing": columns.oldest_missing, "abandoned": columns.abandoned, "unannounced": columns.unannounced,
        "incumbent_acted": acted, "mixed": None if record is None else int(record.mixed().sum()),
        "halted": follower.halted, "promoted": follower.promoted, "closed": follower.is_closed,
        "last_written": follower.last_written, "thresholds": amounts(follower.threshold),
        "bounds": [] if record is None else amounts(record.utility_bounds[-1]),
        "alarms": follower.num_alarms, "events": [event._asdict() for event in follower.events],
        "latest": [_row_as_values(row) for row in follower.latest()],
    }  # fmt: skip
    return dict(plain(said))


def _row_as_values(row: DeploymentRow) -> dict[str, Any]:
    reward, *utilities = row.totals
    said = {"deployment": row.number, "time": row.time, "acting": row.acting, "episode_id": row.name}
    return {**said, "reward": reward, "utilities": utilities, "plan": row.why.plan, "why": row.why.sentences}


def _inside(follower: Follower) -> dict[str, Any]:
    record, rows = follower.record, follower.latest()
    facts = [] if record is None else [who_acted(record), *map(kept, by_constraint(record)), gained(record)]
    return {
        "state": _state(follower),
        "reading": "" if follower.share_read >= 1 else f"Reading the journal: {100 * follower.share_read:.0f} %",
        "sub": _sub(follower),
        "facts": [*facts, _reports(follower), _alarms(follower)],
        "pictures": {} if record is None else pictures(record, follower.columns.halts, follower.earlier),
        "newest": check_picture(rows[0].why) if rows else None,
        "proved": [] if not rows else _proved(rows[0]),
        "events": [event._replace(time=_clock(event.time)) for event in reversed(follower.events)],
        "rows": [_shown(row) for row in rows],
    }


def _state(follower: Follower) -> dict[str, str]:
    """The one line that somebody reads from across the room."""
    acts = "the incumbent acts" if follower.promoted == "incumbent" else f"{follower.promoted} acts"
    if follower.halted:
        return {"css": "unsafe", "says": f"✗ Halted: {acts}", "why": follower.halted}
    if not len(follower.columns):
        return {"css": "", "says": "Nothing was deployed yet", "why": ""}
    row = follower.latest()[0]
    who = "the incumbent acts" if row.why.is_incumbent else _mixture(row)
    promoted = "" if follower.promoted == "incumbent" else f"{follower.promoted} is promoted. "
    return {"css": "safe", "says": f"✓ The agent decides: {who}", "why": f"{promoted}{row.why.sentences[1]}"}


def _mixture(row: DeploymentRow) -> str:
    parts = [part for part in row.why.parts if part.weight > 0]
    if len(parts) == 1:
        return "a learned policy acts" if parts[0].name in ("zero", "search") else f"{parts[0].name} acts"
    if not row.why.time:
        return f"a coin draws one of {len(parts)} policies"  # a simulation keeps no names
    return ", ".join(f"{part.name} {percent(part.weight)}" for part in parts)


def _sub(follower: Follower) -> str:
    agent = name(str(follower.settings.get("agent", "agent")))
    kind = "live session" if follower.is_live else "simulation"
    closed = ", closed" if follower.is_closed else ""
    written = f"; last written {_clock(follower.last_written)}" if follower.last_written else ""
    return f"{agent}, {kind}{closed}, {plural(len(follower.columns), 'deployment')}{written}"


def _reports(follower: Follower) -> dict[str, str]:
    columns = follower.columns
    waiting, oldest = len(columns.waiting), _clock(columns.oldest_missing)
    overdue = num_overdue(getattr(columns, "next_number", 0), columns.waiting)  # of a run nothing waits
    warning = missing_warning(len(columns), overdue, columns.abandoned, columns.oldest_missing)
    since = f"; the oldest waits since {oldest}" if oldest else ""
    said = f"{columns.reported:,} of {len(columns):,} deployments reported, {columns.abandoned:,} abandoned{since}."
    headline = "No report missing" if not waiting else f"{plural(waiting, 'report')} missing"
    return fact(headline, f"{said} {warning}", "unsafe" if warning else "")


def _alarms(follower: Follower) -> dict[str, str]:
    count = follower.num_alarms
    headline = "No alarm" if not count else plural(count, "alarm")
    said = "Monitors watch what the guarantee assumes; see the events below." if count else "No monitor has raised one."
    return fact(headline, said, "unsafe" if count else "")


def _proved(row: DeploymentRow) -> list[tuple[str, str, str]]:
    """Of each policy of the plan deployed last its name, probability and what is proved of it."""
    return [(part.name, percent(part.weight), _figure(part.proved)) for part in row.why.parts]


def _shown(row: DeploymentRow) -> dict[str, Any]:
    reward, *utilities = row.totals
    why, sign = row.why, "≥" if row.why.bound >= row.why.threshold else "<"
    came = "not reported" if all(map(math.isnan, row.totals)) else (
        f"reward {_figure(reward)}, utility {', '.join(map(_figure, utilities))}"
    )  # fmt: skip
    return {
        "id": row.number, "number": f"{row.number:,}", "time": _clock(row.time), "acting": row.acting or "not known",
        "check": "" if math.isnan(why.bound) else f"{why.bound:.4g} {sign} {why.threshold:.4g}", "came": came,
        "why": [*([f"Episode: {row.name}"] if row.name else []), *why.sentences],
    }  # fmt: skip


def _figure(value: float) -> str:
    return number(value) if math.isfinite(value) else "–"


def _clock(time: str) -> str:
    """A time as people read it; they are all UTC."""
    return f"{time[:10]} {time[11:19]}" if time else ""
