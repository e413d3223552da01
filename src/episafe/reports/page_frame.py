"""The frame of the report: one HTML file that loads nothing, and says so to the browser."""

from html import escape

# the browser itself refuses every request, so that the page cannot depend on a network
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

STYLE = """
:root { --ink: #1d1d1f; --soft: #5f6368; --line: #e2e4e8; --safe: #00664b; --safe-bg: #e5f4ef;
  --unsafe: #a33c00; --unsafe-bg: #fdeee3; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 2.2rem 1.4rem 4rem; }
p, ul, dl { max-width: 54rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; margin: 3rem 0 .8rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
.sub, .caveat, figcaption { color: var(--soft); }
.sub { margin: 0 0 1.4rem; }
.lead { font-size: 1.12rem; margin: .35rem 0; max-width: none; display: flex; gap: .8rem; }
.lead b { flex: 0 0 11rem; white-space: nowrap; }
.lead.safe b, .cell.safe b { color: var(--safe); }
.lead.unsafe b, .cell.unsafe b { color: var(--unsafe); }
.caveat { margin: .8rem 0 1.4rem; padding-left: .8rem; border-left: 3px solid var(--accent); }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .79rem; font-variant-numeric: tabular-nums; }
th, td { padding: .36rem .45rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { text-align: left; font-weight: 600; }
thead th { border-bottom: 2px solid #c6cad1; vertical-align: bottom; }
td { white-space: nowrap; }
td.number, th.number { text-align: right; }
tr.place th { background: #f6f7f9; padding-top: .55rem; }
table.matrix { font-size: .86rem; min-width: 40rem; width: 100%; border-spacing: 4px; border-collapse: separate; }
table.matrix th, table.matrix td { border: 0; }
table.matrix td.cell { white-space: normal; border-radius: 5px; padding: .5rem .7rem; min-width: 10.5rem; }
table.matrix th[scope="row"] { white-space: nowrap; width: 1%; padding-right: 1.2rem; }
.key { color: var(--soft); font-size: .86rem; max-width: none; margin-top: .3rem; }
.cell.safe { background: var(--safe-bg); } .cell.unsafe { background: var(--unsafe-bg); }
.cell b { display: block; font-size: .98rem; } .cell span { display: block; color: #44484d; }
.cell hr { border: 0; border-top: 1px solid #c6cad1; margin: .4rem 0; }
.chart { min-width: 900px; }
dd ul { margin: .2rem 0; padding-left: 1.1rem; } details ul { font-size: .86rem; overflow-wrap: anywhere; }
ul.verdict { padding-left: 1.1rem; margin: .3rem 0 .6rem; max-width: 64rem; }
.warning { color: var(--unsafe); margin: .2rem 0; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--accent); }
dt { font-weight: 600; margin-top: .7rem; } dd { margin: 0; }
code { font-size: .92em; }
@media (max-width: 75rem) { table { font-size: .7rem; } th, td { padding: .3rem .28rem; } }
@media (max-width: 40rem) { .lead { display: block; } .lead b { display: block; } main { padding-top: 1.2rem; }
  table.matrix { min-width: 0; } table.matrix thead { display: none; }
  table.matrix :is(table, tbody, tr, th, td) { display: block; width: auto; }
  table.matrix th[scope="row"] { white-space: normal; width: auto; padding: .9rem 0 .3rem; }
  table.matrix td.cell { margin: .25rem 0; min-width: 0; }
  table.matrix td::before { content: attr(data-place) " "; display: block; color: var(--soft); } }
@media print { .scroll { overflow: visible; } h2, h3, .chart { break-inside: avoid; } }
"""


def text(sentence: str) -> str:
    """A sentence as HTML; numbers keep their ± and % on the same line."""
    return escape(sentence).replace(" ± ", "&nbsp;±&nbsp;").replace(" %", "&nbsp;%")


def page(title: str, body: str, script: str) -> str:
    """A whole document; `body` is HTML already, `script` the code it needs."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{STYLE}</style>
<script>{script}</script>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def table(headings: list[str], rows: list[str], num_words: int) -> str:
    """A table that scrolls on narrow screens; the columns after the first `num_words` are numbers."""
    head = "".join(f'<th scope="col"{_number(i >= num_words)}>{text(cell)}</th>' for i, cell in enumerate(headings))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def row(cells: list[str], num_words: int) -> str:
    """A line of such a table."""
    return "<tr>" + "".join(f"<td{_number(i >= num_words)}>{text(cell)}</td>" for i, cell in enumerate(cells)) + "</tr>"


def items(sentences: list[str], css: str) -> str:
    """Sentences as a list; the part before the first colon is emphasised."""
    return f'<ul class="{css}">' + "".join(f"<li>{_emphasised(sentence)}</li>" for sentence in sentences) + "</ul>"


def _emphasised(sentence: str) -> str:
    head, colon, tail = sentence.partition(": ")
    return f"<b>{text(head)}:</b> {text(tail)}" if colon else text(sentence)


def _number(yes: bool) -> str:
    return ' class="number"' if yes else ""
