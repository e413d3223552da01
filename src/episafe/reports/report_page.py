"""The report as one HTML file that opens offline: outcome first, then charts, numbers, and how to read them."""

from collections.abc import Mapping, Sequence

from episafe.registry import REGISTRY
from episafe.reports import findings
from episafe.reports.labels import are_rounds, in_rounds, label, name, place_title, replanning
from episafe.reports.metrics import Summary
from episafe.reports.page_frame import items, page, row, table, text
from episafe.reports.panels import Chart, size
from episafe.reports.plotly_charts import fragment, script
from episafe.reports.tables import NUM_WORDS, SAFE_MEANS, beforehand, cells, headings, plus_minus

TITLE, BANDIT_TITLE = "Safe exploration: regret and violation", "Safe linear bandits: regret and violation"
MATRIX_KEY = (
    "Each cell: the share of episodes that violate the constraint; regret at the last episode, mean ± 95 % interval; "
    "how often the incumbent was deployed alone, where the agent has one; what a certifier deploys may hold it too."
)
NUM_PLACE = 2  # columns of the table that name the place
Places = Mapping[tuple[str, str], Sequence[Summary]]


def to_html(
    summaries: Sequence[Summary],
    charts: Sequence[Chart],
    software: Mapping[str, Sequence[str]],
    left_out: Mapping[str, int],
    extra: str = "",
) -> str:
    """The whole report; `left_out` says how many runs are not in it, by reason; `extra` is a section of its own."""
    by_place = {chart.place: [one for one in summaries if one.group.place == chart.place] for chart in charts}
    title = BANDIT_TITLE if are_rounds(summaries) else TITLE
    head = f"<h1>{text(title)}</h1>\n{_headline(summaries, by_place, left_out)}\n{_charts(charts, by_place)}"
    sections = (head, extra, _numbers(by_place), _notes(summaries), _made_with(summaries, software))
    return page(title, "\n".join(section for section in sections if section), script())


def _headline(summaries: Sequence[Summary], by_place: Places, left_out: Mapping[str, int]) -> str:
    safe, unsafe = findings.safe_and_unsafe(summaries)
    problems = findings.plural(len(by_place), "problem family").replace("familys", "families")
    lines = [
        f"<p>{text(in_rounds(SAFE_MEANS, summaries))}</p>",
        f'<p class="sub">{text(f"{problems}, {size(summaries)} for each agent")}</p>',
    ]
    if safe:
        lines.append(f'<p class="lead safe"><b>✓ Never violated:</b> {text("; ".join(safe))}</p>')
    if unsafe:
        lines.append(f'<p class="lead unsafe"><b>✗ Violated:</b> {text("; ".join(unsafe))}</p>')
    caveats = findings.caveat(summaries), " ".join(beforehand(summaries)), findings.few_runs(summaries)
    lines += [f'<p class="caveat">{text(caveat)}</p>' for caveat in caveats if caveat]
    lines += [
        f'<p class="warning">{findings.plural(count, "run")} left out: {text(reason)}.</p>'
        for reason, count in left_out.items()
        if count
    ]
    variants = dict.fromkeys(variant for _, variant in by_place if variant in findings.VARIANTS)
    keys = [f"The {variant} variant {findings.VARIANTS[variant]}" for variant in variants]
    return "\n".join([*lines, _matrix(summaries, by_place), *(f'<p class="key">{text(key)}</p>' for key in keys)])


def _matrix(summaries: Sequence[Summary], by_place: Places) -> str:
    """Agents down, problems across; a cell says safe or not, at what regret, and how much was the incumbent's."""
    head = "".join(f'<th scope="col">{text(place_title(place))}</th>' for place in by_place)
    rows = []
    for agent, level in dict.fromkeys(map(_matrix_row, summaries)):
        shown = [[s for s in at if _matrix_row(s) == (agent, level)] for at in by_place.values()]
        title = text(name(agent)) + (f"<br><small>check: {text(level)}</small>" if level else "")
        cells = "".join(map(_cell, by_place, shown))
        rows.append(f'<tr><th scope="row">{title}</th>{cells}</tr>')
    return (
        f'<div class="scroll"><table class="matrix"><thead><tr><td></td>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div>\n<p class="key">{text(in_rounds(MATRIX_KEY, summaries))}</p>'
    )


def _matrix_row(summary: Summary) -> tuple[str, str]:
    return summary.group.agent, summary.group.level if summary.has_incumbent else ""


def _cell(place: tuple[str, str], summaries: Sequence[Summary]) -> str:
    """A cell; narrow screens show its place in it, for lack of columns."""
    where = f'data-place="{text(place_title(place))}"'
    if not summaries:
        return f"<td {where}>not run</td>"
    kind = "unsafe" if any(s.total_violating_episodes for s in summaries) else "safe"
    return f'<td class="cell {kind}" {where}>{"<hr>".join(map(_cell_lines, summaries))}</td>'


def _cell_lines(summary: Summary) -> str:
    violating = findings.share(summary.violating_episodes.mean, summary.num_episodes)
    verdict = f"✗ violates in {violating}" if summary.total_violating_episodes else "✓ no violation"
    lines = [f"regret {plus_minus(summary.regret)}"]
    if summary.has_incumbent:
        lines.append(findings.reliance(summary))
    if not summary.group.replans_every_episode:
        lines.append(f"replans by {replanning(summary)}")
    return f"<b>{text(verdict)}</b>" + "".join(f"<span>{text(line)}</span>" for line in lines)


def _charts(charts: Sequence[Chart], by_place: Places) -> str:
    found = [
        "<h2>Problem by problem</h2>",
        '<p class="sub">Lines are means over runs, bands 95 % t-intervals. Point at a line for numbers; click a name '
        "to hide an agent in all panels, double-click to see it alone.</p>",
    ]
    for number, chart in enumerate(charts):
        at = by_place[chart.place]
        found += [
            f"<h3>{text(chart.title)}</h3>",
            items(findings.verdict(at), "verdict"),
            *(f"<p>{text(words)}</p>" for words in [findings.lowest_regret(at)] if words),
            *(f'<p class="warning">{text(warning)}</p>' for warning in findings.warnings(at)),
            f'<div class="scroll"><div class="chart">{fragment(chart, f"chart-{number}")}</div></div>',
        ]
    return "\n".join(found)


def _numbers(by_place: Places) -> str:
    summaries = [summary for at in by_place.values() for summary in at]
    shown = headings(summaries)[NUM_PLACE:]
    num_words = NUM_WORDS - NUM_PLACE
    rows = []
    for place, at in by_place.items():
        title = text(place_title(place))
        rows.append(f'<tr class="place"><th colspan="{len(shown)}" scope="rowgroup">{title}</th></tr>')
        rows += [row(cells(summary)[NUM_PLACE:], num_words) for summary in at]
    last = in_rounds("At the last episode", summaries)
    return (
        "<h2>All numbers</h2>\n"
        f'<p class="sub">{last}: mean ± half-width of the 95 % t-interval over runs. '
        "Every digit is in <code>summary.csv</code>.</p>\n" + table(shown, rows, num_words)
    )


def _notes(summaries: Sequence[Summary]) -> str:
    agents = dict.fromkeys(summary.group.agent for summary in summaries)
    levels = dict.fromkeys(summary.group.level for summary in summaries if summary.has_incumbent)
    variants = dict.fromkeys(summary.group.variant for summary in summaries)
    meant = {level: in_rounds(words, summaries) for level, words in findings.LEVELS.items()}
    stories = {agent: entry.story for agent, entry in REGISTRY.items()}
    entries = [
        ("What is compared", [f"{name(x)}: {stories[x]}" for x in agents if stories.get(x)]),
        ("Levels of the check", [f"{x}: {meant[x]}" for x in levels if x in meant]),
        ("Variants", [f"{x}: {findings.VARIANTS[x]}" for x in variants if x in findings.VARIANTS]),
    ]
    lists = [(title, items(sentences, "notes")) for title, sentences in entries if sentences]
    paragraphs = [(title, text(words)) for title, words in findings.reading(summaries)]
    shown = "".join(f"<dt>{text(title)}</dt><dd>{words}</dd>" for title, words in lists + paragraphs)
    return f"<h2>How to read this</h2>\n<dl>{shown}</dl>"


def _made_with(summaries: Sequence[Summary], software: Mapping[str, Sequence[str]]) -> str:
    versions = ", ".join(f"{package} {' and '.join(found)}" for package, found in software.items())
    rows = items([_provenance(summary) for summary in summaries], "settings")
    return (
        f"<h2>Made with</h2>\n<p>{text(versions or 'The records do not name versions.')}</p>\n"
        f"<details><summary>Seeds and settings of every row</summary>{rows}</details>"
    )


def _provenance(summary: Summary) -> str:
    seeds = ", ".join(map(str, summary.seeds)) or "not recorded"
    settings = "".join(f"; {key} = {value}" for key, value in summary.settings.items())
    return f"{place_title(summary.group.place)}, {label(summary)}: seeds of the problems {seeds}{settings}"
