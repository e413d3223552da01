"""Pages: a run, a comparison of runs or a benchmark, as one HTML file that needs no network."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

import episafe2
from episafe2.core.errors import InvalidProblem
from episafe2.report import figures
from episafe2.run.record import Record

RUN, RECORDS = "record.json", "records"


def write_report(folder: str | Path) -> Path:
    """Write report.html for a folder with a record or a sweep; return its path."""
    folder = Path(folder)
    if (folder / RUN).exists():
        page = run_page(Record.load(folder))
    elif (folder / RECORDS).is_dir():
        records = [Record.load(path.parent) for path in sorted((folder / RECORDS).glob(f"*/{RUN}"))]
        page = comparison_page(records, folder.name)
    else:
        raise InvalidProblem(f"{folder} has no {RUN} and no {RECORDS}/: give the folder of a run, a sweep or a session")
    path = folder / "report.html"
    path.write_text(page)
    return path


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("episafe2.report"), autoescape=select_autoescape(), undefined=StrictUndefined
    )


def render(template: str, **facts: Any) -> str:
    """Return a page from a template of this package."""
    environment = _environment()
    style = environment.get_template("style.css").render()
    return environment.get_template(template).render(style=style, version=episafe2.__version__, **facts)


def run_page(record: Record) -> str:
    """Return the page of one run."""
    units = {key[5:]: str(value) for key, value in record.settings.items() if key.startswith("unit_")}
    drawn = [("", figures.to_svg(figures.run_figure(record, units)))]
    names = record.constraint_names or ("utility",)
    if record.utility_totals is not None:
        for c, name in enumerate(names):
            totals = figures.column(record.utility_totals, c)
            b = float(np.atleast_1d(record.threshold)[c])
            below = np.mean(totals < b)
            caption = f"{below:.0%} of the episode totals are below the limit, which applies to their expectation."
            drawn.append((caption, figures.to_svg(figures.totals_figure(totals, b, name, units.get(name, "")))))
    settings = record.settings
    return render(
        "run.html",
        title=f"{settings.get('agent', 'agent')} on {settings.get('env', 'your problem')}",
        verdict=verdict(record),
        safe=not record.is_exact or not record.violating().any(),
        cards=_cards(record, names),
        figures=drawn,
        statement=settings.get("statement")
        or f"Nothing is proved: the level of the bounds is {settings.get('level')}.",
        settings=sorted((name, value) for name, value in settings.items()),
    )


def verdict(record: Record) -> str:
    """Return the outcome of a run in one or two sentences."""
    K = len(record.reward_values)
    if not record.is_exact:
        last = slice(-figures.window(K), None)
        totals = record.utility_totals
        seen = (
            ""
            if totals is None
            else f" The last {figures.window(K)} episodes had mean utility {shown(totals[last].mean(axis=0))}"
        )
        limit = f" (limit {shown(record.threshold)})." if seen else ""
        return f"{K:,} episodes. Exact values are unknown for this problem.{seen}{limit}"
    below = int(record.violating().sum())
    start, end = float(record.reward_values[0]), float(record.reward_values[-figures.window(K) :].mean())
    gained = ""
    if math.isfinite(record.optimum) and record.optimum > start and record.sources[0] == "safe":
        gained = f", {(end - start) / (record.optimum - start):.0%} of the way to the optimum"
    safe = (
        f"None of the {K:,} deployed policies was below the limit"
        if not below
        else (f"{below:,} of {K:,} deployed policies were below the limit")
    )
    return f"{safe} (exact values). Expected reward went from {start:.4g} to {end:.4g}{gained}."


def _cards(record: Record, names: Sequence[str]) -> list[tuple[str, str, str]]:
    cards = [("episodes", f"{len(record.reward_values):,}", "")]
    if record.is_exact:
        lowest = np.atleast_1d(record.utility_values.min(axis=0))
        for name, low, b in zip(names, lowest, np.atleast_1d(record.threshold), strict=True):
            cards.append((f"lowest expected {name}", f"{low:.4g}", f"limit {b:.4g}"))
    acted = record.incumbent_acted().mean()
    cards.append(("incumbent acted", f"{acted:.0%}", "of the episodes"))
    level = str(record.settings.get("level", "heuristic"))
    delta = record.settings.get("delta")
    sure = (
        f"{1 - float(delta):.0%} confidence, if the assumptions hold" if delta and level == "theorem" else "not proved"
    )
    cards.append(("level of the bounds", level, sure))
    return cards


def comparison_page(records: Sequence[Record], title: str) -> str:
    """Return the page of a sweep: one section per environment."""
    exact = [one for one in records if one.is_exact]
    if not exact:
        raise InvalidProblem("no record has exact values, so there is no regret to compare: read the records instead")
    places: dict[str, dict[str, list[Record]]] = {}
    for record in exact:
        settings = record.settings
        place = " ".join(str(settings[key]) for key in ("env", "env_options") if settings.get(key))
        places.setdefault(place, {}).setdefault(str(settings.get("setting", settings.get("agent"))), []).append(record)
    sections = []
    for place, groups in places.items():
        figure = figures.comparison_figure(groups, place, {})
        sections.append(
            {
                "title": place,
                "svg": figures.to_svg(figure),
                "caption": "Mean and 95 % interval over runs.",
                "rows": [_comparison_row(name, group) for name, group in groups.items()],
            }
        )
    intro = f"{len(exact):,} runs on {len(places)} problem{'' if len(places) == 1 else 's'}."
    return render("comparison.html", title=title, intro=intro, places=sections)


def _comparison_row(name: str, group: Sequence[Record]) -> dict[str, Any]:
    regrets = np.array([float(one.regret()[-1]) for one in group])
    violations = np.array([float(np.sum(one.violation()[-1])) for one in group])
    violating = sum(bool(one.violating().any()) for one in group)
    return {
        "agent": name,
        "runs": len(group),
        "regret": plus_minus(regrets),
        "violation": plus_minus(violations),
        "violating": violating,
        "share": f"{np.mean([one.violating().mean() for one in group]):.2%}",
        "incumbent": f"{np.mean([one.incumbent_acted().mean() for one in group]):.0%}",
    }


def plus_minus(values: Any) -> str:
    """Return the mean with the half-width of its 95 % interval."""
    mean, half = figures.mean_interval(np.asarray(values, dtype=np.float64))
    return f"{mean:,.4g}" + ("" if math.isnan(half) else f" ± {half:,.2g}")


def benchmark_page(rows: Sequence[Any], reference: Sequence[Any], version: str) -> str:
    """Return the page of benchmark results (`lab.benchmark.Row`), beside the reference results."""
    places = []
    for name in dict.fromkeys(row.set for row in rows):
        own = [row for row in rows if row.set == name]
        known = {row.agent for row in own}
        beside = [one for one in reference if one.set == name and one.episodes == own[0].episodes]
        group = own + [one for one in beside if one.agent not in known]
        places.append(
            {
                "title": name,
                "svg": figures.to_svg(figures.benchmark_figure(group, name)),
                "rows": [
                    {
                        "agent": row.agent + ("" if row in own else " (reference)"),
                        "problems": row.problems,
                        "episodes": f"{row.episodes:,}",
                        "regret": f"{row.regret:.3f} ± {row.regret_half_width:.2g}",
                        "violating": row.violating,
                        "half_way": "never" if math.isinf(row.half_way) else f"{row.half_way:g}",
                    }
                    for row in group
                ],
            }
        )
    intro = f"{version}: {len({row.agent for row in rows})} agents on {len(places)} sets of problems."
    return render("benchmark.html", title="Benchmark", intro=intro, places=places)


def shown(values: Any) -> str:
    """Return numbers with four digits."""
    return ", ".join(f"{value:.4g}" for value in np.atleast_1d(values))
