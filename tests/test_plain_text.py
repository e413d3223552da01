"""What terminals, spreadsheets and renderers are shown, and do not obey."""

import csv
import io
import json
import math
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app, console, errors
from episafe.experiments import progress
from episafe.plain_text import REORDERING, csv_cell, markdown_cell, printable
from episafe.reports import audit_page
from episafe.reports.tables import csv_text
from episafe.terminal import Terminal, show

EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f\u202e[bold]x"


def harmless(text):
    return not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in text) and "\u202e" not in text


@given(st.text())
def test_no_control_character_is_left_and_nothing_else_is_changed(text):
    shown = printable(text)
    assert harmless(shown)
    if harmless(text) and not set(text) & REORDERING:
        assert shown == text


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--env", EVIL),
        ("run", "--episodes", "5", "--agent", EVIL),
        ("resume", EVIL),
        ("audit", f"/tmp/{EVIL}"),
        ("report", EVIL),
        ("check", f"{EVIL}:problem"),
        ("calibrate", EVIL),
        ("preflight", "--env", EVIL),
    ],
)
def test_the_command_line_shows_control_characters_and_sends_none(words):
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in (1, 2, 3, 4)
    assert harmless(done.output) and "\\x1b[2J" in done.output


def test_the_consoles_show_names_in_tables_lines_and_progress(capsys):
    from rich.table import Table

    table = Table("name")
    table.add_row(EVIL.replace("[bold]", ""))
    for one in (console, errors):
        one.print(table)
        one.print(EVIL.replace("[bold]", ""))
        with progress.bar(EVIL, 1, one) as advance:
            advance(1)
    said = capsys.readouterr()
    assert harmless(said.out) and harmless(said.err) and said.out.count("\\x1b") >= 2


def test_a_name_that_is_too_long_for_a_table_is_broken_and_not_cut(capsys):
    from rich.table import Table

    table = Table("name", "agent")
    table.add_row(90 * "x", 90 * "y")
    show({}, False, [table])
    said = capsys.readouterr().out
    assert (said.count("x"), said.count("y"), said.count("…")) == (90, 90, 0)


def test_an_error_that_nobody_expected_is_shown_plainly(capsys):
    import sys

    hook = sys.excepthook
    try:
        CliRunner().invoke(app, ["list"])
        sys.excepthook(RuntimeError, RuntimeError(EVIL), None)
    finally:
        sys.excepthook = hook
    said = capsys.readouterr().err
    assert harmless(said) and "RuntimeError: \\x1b[2J" in said


@pytest.mark.parametrize("text", ["=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_words_in_a_csv_are_no_formulas(text):
    (row,) = csv.DictReader(io.StringIO(csv_text([{"notes": text, "count": -3, "mean": -0.5}])))
    assert row["notes"][0] not in "=+-@\t\r" and row["count"] == "-3" and row["mean"] == "-0.5"


def test_a_csv_survives_quotes_commas_and_lines():
    told = 'a, "b"\nc'
    (row,) = csv.DictReader(io.StringIO(csv_text([{"notes": told, "other": EVIL}])))
    assert row["notes"] == told and harmless(row["other"])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_in_a_csv_are_plain_decimals_of_the_same_bits(value):
    text = csv_cell(value)
    assert set(text) <= set("-.0123456789")
    assert math.copysign(1, float(text)) == math.copysign(1, value) and float(text) == value


def test_small_numbers_are_not_written_as_powers_of_ten():
    assert csv_cell(1e-5) == csv_cell(np.float64(1e-5)) == "0.00001"
    assert csv_cell(float("nan")) == "nan" and csv_cell(7) == "7"


def test_markdown_cells_hold_no_pipes_lines_or_markup_of_their_own():
    assert markdown_cell("a|b\nc\r\n| d `x` <script>") == "a\\|b c \\| d \\`x\\` &lt;script>"
    assert markdown_cell("\\|") == "\\\\\\|"
    assert harmless(markdown_cell(EVIL))


def live_folder(folder):
    """A session that halted without words: nobody may, but a file can say so."""
    cmdp, rng = es.make("streaming", 0), np.random.default_rng(0)
    with es.open(folder, agent=es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))) as session:
        session.deploy(rng)
        session.halt("by hand")
    return es.audit(folder)


@pytest.mark.parametrize("shown", [audit_page.as_html, audit_page.as_text])
def test_the_page_of_an_audit_survives_a_null_reason_and_is_of_one_line_each(tmp_path, shown):
    found = live_folder(tmp_path / "live")
    said, lines = found.as_dict(), [json.loads(line) for line in found.lines]
    assert "by hand" in shown(said, found.lines)  # a live session has no weights: it is no mixture
    for name in ("reason", "time", "bound", "margin", "lam", "weights", "source"):
        for line in lines:
            line[name] = None
        page = shown(said | {"faults": [None, EVIL + "\nWHOLE."]}, [json.dumps(line) for line in lines])
        assert "without a reason" in page
        if shown is audit_page.as_text:
            assert harmless(page) and "\nWHOLE." not in page


def test_the_command_audits_a_live_session(tmp_path):
    live_folder(tmp_path / "live")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "live"), "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert "by hand" in (tmp_path / "page.html").read_text()


def test_a_long_line_is_broken_between_words_for_a_person_and_whole_for_a_program():
    line = "  [green]ok[/] " + "words and more words, " * 9 + "a/path/without/a/blank" * 5
    seen = []
    for is_terminal in (True, False):
        file = io.StringIO()
        Terminal(file=file, force_terminal=is_terminal, width=80, no_color=True, color_system=None).prose(line)
        seen.append(file.getvalue().rstrip("\n").split("\n"))
    for_a_person, for_a_program = seen
    assert len(for_a_program) == 1 and " ".join(row.strip() for row in for_a_person) == for_a_program[0].strip()
    assert max(map(len, for_a_person[:-1])) <= 80 and all(row.startswith("    ") for row in for_a_person[1:])
    assert for_a_person[-1].strip() == "a/path/without/a/blank" * 5
