"""Pages: a run, a comparison of runs or a benchmark, as one HTML file that needs no network."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

import episafe
from episafe.core.errors import InvalidProblem
from episafe.core.types import Array, Document
from episafe.report import figures
from episafe.report.verdict import percent, promise, verdict
from episafe.simulation.record import Record, window

RUN, RECORDS, SWEEP = "record.json", "records", "sweep.json"


def shown(figure: Figure, caption: str) -> dict[str, str]:
    """Return a figure of a page: the SVG, and what to see in it."""
    return {"svg": figures.to_svg(figure), "caption": caption}


def write_report(folder: str | Path) -> Path:
    """Write report.html for a folder with a record or a sweep; return its path."""
    folder = Path(folder)
    if (folder / RUN).exists():
        page = run_page(Record.load(folder))
    elif (folder / RECORDS).is_dir():
        page = comparison_page(*read_sweep(folder))
    else:
        raise InvalidProblem(f"{folder} has no {RUN} and no {RECORDS}/: give the folder of a run, a sweep or a session")
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def read_sweep(folder: Path) -> tuple[list[Record], str]:
    """Return the records of a sweep that are there, in its order, and its title."""
    names, title = sorted(path.parent.name for path in (folder / RECORDS).glob(f"*/{RUN}")), folder.resolve().name
    if (folder / SWEEP).exists():
        told = json.loads((folder / SWEEP).read_text())
        names, title = [name for name in told["records"] if name in set(names)], told["title"]
    return [Record.load(folder / RECORDS / name) for name in names], title


@cache
def environment(*packages: str) -> Environment:
    """Return the templates of some packages and of this one."""
    loaders = [PackageLoader(one) for one in (*packages, "episafe.report")]
    return Environment(loader=ChoiceLoader(loaders), autoescape=True, undefined=StrictUndefined)


def render(template: str, **facts: Any) -> str:
    """Return a page from a template of this package."""
    return environment().get_template(template).render(version=episafe.__version__, **facts)


# one run


def run_page(record: Record) -> str:
    """Return the page of one run: verdict, results, certificates, and what is assumed."""
    settings = record.settings
    return render(
        "run.html",
        title=f"{settings.get('setting', settings.get('agent', 'agent'))} on {settings.get('env', 'your problem')}",
        limits=[limit_text(record, c) for c in range(len(record.limit_names))],
        verdict=verdict(record),
        safe=not record.is_exact or not record.violating().any(),
        cards=_cards(record),
        reached=_reached(record),
        allowed=_allowed(record),
        single=_single_episodes(record),
        promise=promise(record),
        statement=str(settings.get("statement", "")),
        settings=sorted((name, value) for name, value in settings.items() if name != "statement"),
    )


def limit_text(record: Record, c: int) -> str:
    """Return limit c in words, with its unit."""
    name, b = record.limit_names[c], float(np.atleast_1d(record.threshold)[c])
    unit = record.unit(name)
    return f"expected {name} per episode {unit.bound} {unit.say(b)}"


def _cards(record: Record) -> list[tuple[str, str, str]]:
    cards = [("episodes", f"{len(record.reward_values):,}", "")]
    if record.is_exact:
        lowest = np.atleast_1d(record.utility_values.min(axis=0))
        for name, low, b in zip(record.limit_names, lowest, np.atleast_1d(record.threshold), strict=True):
            unit = record.unit(name)
            most = "highest" if unit.factor < 0 else "lowest"
            cards.append((f"{most} expected {name}", f"{unit.raw(low):.4g}", f"limit: {unit.bound} {unit.say(b)}"))
    cards.append(("incumbent acted in", percent(float(record.incumbent_acted().mean())), "of the episodes"))
    level = str(record.settings.get("level", "heuristic"))
    cards.append(("certificate", {"theorem": "proved", "window": "budget"}.get(level, "none"), promise(record)))
    return cards


def _reached(record: Record) -> list[dict[str, str]]:
    exact = "Exact values of the deployed policies." if record.is_exact else "Means of observed totals."
    caption = f"{exact} The limit applies to the expectation, not to single episodes."
    drawn = [figures.panel_figure(figures.draw_utility, record, c) for c in range(len(record.limit_names))]
    reward = shown(figures.panel_figure(figures.draw_reward, record), exact)
    return [reward, *(shown(one, caption) for one in drawn)]


def _allowed(record: Record) -> list[dict[str, str]]:
    """Return the figures of what moved: which policy acted, bounds of the components, weight of learned policies."""
    acted = shown(figures.acting_figure(record), "Deployed alone, or drawn from a mixture.")
    if record.history is None:
        return [acted]
    caption = (
        "A mixture may be deployed if its bound, the weighted mean of these, reaches the limit. The incumbent's value "
        f"is assumed; the others are proved {promise(record)}."
    )
    return [shown(figures.allowed_figure(record), caption), acted]


def _single_episodes(record: Record) -> Document:
    """Return what single episodes and single components did, which the limit does not bind."""
    lines, drawn = [], []
    below = record.acting_below()
    if below is not None and record.mixed().any():
        times = f"In {percent(float(below.mean()))} of the episodes" if below.any() else "In no episode"
        lines.append(
            f"{times} the acting component, taken alone, is beyond a limit in expectation. This is allowed for a "
            "candidate on trial, but not for the mixture that it is drawn from."
        )
    if record.utility_totals is not None:
        for c, name in enumerate(record.limit_names):
            totals, b = figures.column(record.utility_totals, c), float(np.atleast_1d(record.threshold)[c])
            unit, share = record.unit(name), percent(float(np.mean(totals < b)))
            low, high = sorted(unit.raw(np.quantile(totals, [0.05, 0.95])).tolist())
            caption = (
                f"{share} of the episode totals are {unit.beyond} the limit, which applies to their expectation. "
                f"The middle 90 % lie between {low:.4g} and {high:.4g}."
            )
            drawn.append(shown(figures.totals_figure(totals, b, name, unit), caption))
    return {"lines": lines, "figures": drawn}


# several runs


def comparison_page(records: Sequence[Record], title: str) -> str:
    """Return the page of a sweep: one section per environment."""
    if not records:
        raise InvalidProblem("there is no complete record yet: run the sweep first")
    places: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        settings = record.settings
        place = " ".join(str(settings[key]) for key in ("env", "env_options") if settings.get(key))
        places.setdefault(place, {}).setdefault(str(settings.get("setting", settings.get("agent"))), []).append(record)
    agents = dict.fromkeys(name for groups in places.values() for name in groups)
    colours = figures.colours_of(agents)
    sections = [_section(place, groups, colours) for place, groups in places.items()]
    broke = {row["agent"] for one in sections for row in one["rows"] if row["violating"]}
    exact = all(one.is_exact for one in records)
    found = "Exact values are unknown in some runs, so regret and violations are not shown for them."
    if exact:
        kept = ", ".join(name for name in agents if name not in broke) or "No agent"
        found = f"{kept} kept the limit with every deployed policy"
        found += f"; {', '.join(name for name in agents if name in broke)} did not." if broke else "."
    problems = "one environment" if len(places) == 1 else f"{len(places)} environments"
    intro = f"{len(records):,} runs of {len(agents)} agent{'' if len(agents) == 1 else 's'} on {problems}."
    return render("comparison.html", title=title, verdict=found, safe=not broke, places=sections, intro=intro)


def _section(place: str, groups: Mapping[str, Sequence[Record]], colours: Mapping[str, str]) -> Document:
    drawn = []
    if exact := all(one.is_exact for group in groups.values() for one in group):
        runs = "Mean and single runs" if max(map(len, groups.values())) < figures.FEW_RUNS else "Mean and 95 % interval"
        drawn = [
            shown(figures.comparison_figure(groups, "regret", colours), f"{runs}; lower is better."),
            shown(figures.comparison_figure(groups, "violation", colours), f"{runs}; 0 if all kept the limit."),
        ]
    told = _compared if exact else _observed
    acted = {name: np.mean([one.incumbent_acted().mean() for one in group]) for name, group in groups.items()}
    rows = [
        {"agent": name, "runs": len(group), "incumbent": percent(float(acted[name])), **told(group)}
        for name, group in groups.items()
    ]
    return {"title": place, "exact": exact, "figures": drawn, "rows": rows}


def _observed(group: Sequence[Record]) -> Document:
    """Return means of observed totals over the last window of each run, where exact values are unknown."""
    last = [slice(-window(len(one.sources)), None) for one in group]
    rewards, utilities = (
        [np.mean(totals[at], axis=0) for totals, at in zip(column, last, strict=True) if totals is not None]
        for column in ([one.reward_totals for one in group], [one.utility_totals for one in group])
    )
    return {
        "reward": plus_minus(rewards),
        "utility": ", ".join(plus_minus(column) for column in np.reshape(utilities, (len(utilities), -1)).T),
        "limit": ", ".join(f"{b:.4g}" for b in np.atleast_1d(group[0].threshold)),
        "violating": 0,
    }


def _compared(group: Sequence[Record]) -> Document:
    regrets = np.array([float(one.regret()[-1]) for one in group])
    violations = np.array([float(np.sum(one.violation()[-1])) for one in group])
    violating = sum(bool(one.violating().any()) for one in group)
    return {
        "regret": plus_minus(regrets),
        "violation": plus_minus(violations) if violating else "0",
        "violating": violating,
        "share": percent(float(np.mean([one.violating().mean() for one in group]))),
    }


def plus_minus(values: Sequence[float] | Array) -> str:
    """Return the mean with the half-width of its 95 % interval."""
    mean, half = map(float, figures.mean_interval(np.asarray(values, dtype=np.float64)))
    return short(mean) + ("" if math.isnan(half) else f" ± {short(half)}")


def short(value: float) -> str:
    """Return a number in at most four digits before the point, and two after it."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def benchmark_page(
    rows: Sequence[Any], reference: Sequence[Any], version: str, left_out: Mapping[tuple[str, str], str]
) -> str:
    """Return the page of benchmark results (`lab.benchmark.Row`), beside the reference results."""
    places = []
    for name in dict.fromkeys(row.set for row in rows):
        own = [row for row in rows if row.set == name]
        lengths = sorted({one.episodes for one in reference if one.set == name})
        nearest = min(lengths, key=lambda n: abs(math.log(n / own[0].episodes)), default=0)
        beside = [one for one in reference if one.set == name and one.episodes == nearest]
        group = own + sorted(beside, key=lambda one: (one.violating > 0, one.regret))
        note = f"The reference has {nearest:,} episodes, your runs {own[0].episodes:,}: do not compare their regret."
        places.append(
            {
                "title": name,
                "active": f"The limit changes the optimum of {own[0].active} of {own[0].problems} problems.",
                "svg": figures.to_svg(figures.benchmark_figure(own, group[len(own) :])),
                "note": "" if nearest in (0, own[0].episodes) else note,
                "rows": [_benchmark_row(row, row in own) for row in group],
            }
        )
    sets = "one set" if len(places) == 1 else f"{len(places)} sets"
    number = len({row.agent for row in rows})
    intro = f"{version}: {number} {'agent' if number == 1 else 'agents'} on {sets} of problems."
    reasons = [f"{agent} cannot play {name}: {reason}" for (agent, name), reason in left_out.items()]
    return render("benchmark.html", title="Benchmark", intro=intro, places=places, left_out=reasons)


def _benchmark_row(row: Any, own: bool) -> Document:
    interval = f" ({row.regret_low:.3f} to {row.regret_high:.3f})" if row.regret_high - row.regret_low > 5e-4 else ""
    return {
        "agent": row.agent,
        "level": row.level,
        "own": own,
        "problems": row.problems,
        "episodes": f"{row.episodes:,}",
        "regret": f"{row.regret:.3f}{interval}",
        "violating": row.violating,
        "violating_share": f"{row.violating_share:.1%}",
        "acting_below": "unknown" if math.isnan(row.acting_below) else f"{row.acting_below:.1%}",
        "incumbent": f"{row.incumbent:.1%}",
        "half_way": "never" if math.isinf(row.half_way) else f"{row.half_way:,.0f}",
        "seconds": f"{row.seconds:.2g}",
    }
