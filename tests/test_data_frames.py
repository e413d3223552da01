"""Records as data frames, and tables for papers: the numbers are those of the records."""

import builtins
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import episafe as es
from episafe.plain_text import latex_cell
from episafe.reports.metrics import summarise
from episafe.reports.report import write_report
from episafe.reports.tables import to_latex
from episafe.runs.record import Record
from episafe.testing import small_problems


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four records, two of them deeper down, and one that was not finished."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        cmdp = es.make("streaming", seed)
        es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("streaming")), 40, seed).save(folder / f"b-{seed}")
        es.run(cmdp, es.Fixed(cmdp.task, "uniform"), 30, seed).save(folder / "a" / f"deep-{seed}")
    (folder / "unfinished").mkdir()
    (folder / "unfinished" / "run.toml").write_text("")
    return folder


def test_a_record_is_a_frame_of_its_episodes(folder):
    record = es.Record.load(folder / "b-1")
    frame = record.to_frame()
    names = ["episode", "plan_id", "source", "acting", "lam", "reward_value", "utility_value", "utility_bound"]
    assert list(frame.columns) == names
    assert list(frame.episode) == list(range(1, 41))
    np.testing.assert_array_equal(frame.utility_value, record.utility_values)
    np.testing.assert_array_equal(frame.acting, record.acting)
    assert (record.optimum - frame.reward_value).cumsum().iloc[-1] == pytest.approx(record.regret()[-1], abs=1e-12)


def test_totals_are_in_the_frame_where_only_they_are_known():
    cmdp = small_problems()["functions"]
    record = es.run(cmdp, es.Fixed(cmdp.task, "incumbent"), 5)
    frame = record.to_frame()
    np.testing.assert_array_equal(frame.reward_total, record.reward_totals)
    np.testing.assert_array_equal(frame.utility_total, record.utility_totals)
    assert frame.reward_value.isna().all()


def test_several_constraints_have_columns_of_their_own(tmp_path):
    cmdp = es.make("tabular", num_constraints=2)
    record = es.run(cmdp, es.Fixed(cmdp.task, "uniform"), 5)
    first, second = record.constraint_names
    frame = record.to_frame()
    np.testing.assert_array_equal(frame[f"utility_value_{second}"], record.utility_values[:, 1])
    record.save(tmp_path / "one")
    row = es.results(tmp_path).iloc[0]
    assert row[f"threshold_{first}"] == record.threshold[0] and row.violation == record.violation()[-1].sum()


def test_records_are_found_wherever_they_lie_in_the_order_of_their_paths(folder):
    records = es.load_records(folder)
    assert [(record.settings["agent"], record.settings["seed"]) for record in records] == [
        ("uniform", 0), ("uniform", 1), ("opse", 0), ("opse", 1),
    ]  # fmt: skip
    np.testing.assert_array_equal(records[3].lams, es.Record.load(folder / "b-1").lams)


def test_results_have_a_row_a_run_with_settings_and_finals(folder):
    frame = es.results(folder)
    assert list(frame.path) == ["a/deep-0", "a/deep-1", "b-0", "b-1"]
    record, row = es.Record.load(folder / "b-0"), frame[frame.path == "b-0"].iloc[0]
    assert (row.regret, row.violation, row.episodes) == (record.regret()[-1], record.violation()[-1], 40)
    assert (row.violating_episodes, row.incumbent_deployments) == (0, record.safe_deployments()[-1])
    assert row.smallest_utility == record.utility_values.min() and row.C_u == record.settings["C_u"]
    assert np.isnan(frame.C_u[0])  # the uniform policy has no constants


def test_parquet_holds_every_row_and_bit(folder, tmp_path):
    frame = es.results(folder)
    frame.to_parquet(tmp_path / "runs.parquet")
    again = pd.read_parquet(tmp_path / "runs.parquet")
    pd.testing.assert_frame_equal(again, frame, check_dtype=False, check_column_type=False)
    np.testing.assert_array_equal(again.regret, frame.regret)


@pytest.mark.parametrize(("place", "error"), [("nowhere", FileNotFoundError), ("unfinished", ValueError)])
def test_nothing_to_load_is_said(folder, place, error):
    with pytest.raises(error, match=place):
        es.load_records(folder / place)


def test_without_pandas_the_error_says_what_to_install(folder, monkeypatch):
    real = builtins.__import__

    def without(name, *more):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"pip install episafe\[frames\]"):
        es.results(folder)
    assert len(es.load_records(folder)) == 4  # which needs none


def test_the_latex_table_has_the_numbers_of_the_markdown_one(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "runs")
    (tmp_path / "runs" / "a").rename(tmp_path / "records")
    for seed in (0, 1):
        (tmp_path / "runs" / f"b-{seed}").rename(tmp_path / "records" / f"b-{seed}")
    write_report(tmp_path, latex=True)
    table = (tmp_path / "summary.tex").read_text().splitlines()
    rows = [line for line in table if " & " in line]
    assert len(rows) == 3 and all(line.endswith(r" \\") and line.count("&") == rows[0].count("&") for line in rows)
    assert sum(line in (r"\toprule", r"\midrule", r"\bottomrule") for line in table) == 3
    cells = (tmp_path / "summary.md").read_text().split("|")
    regret = next(cell.strip() for cell in cells if " ± " in cell)
    assert regret.replace("±", r"$\pm$") in "".join(rows)


def test_a_table_for_a_paper_is_narrow_and_says_what_its_numbers_are():
    def one(seed, utility, episodes, env="ring"):
        settings = {"env": env, "agent": "opse", "replan": "Every()", "level": "heuristic", "seed": seed}
        values, nan = np.full(episodes, 1.0), np.full(episodes, np.nan)
        sources = np.array(["safe"] * (episodes // 4) + ["search"] * (episodes - episodes // 4))
        return Record(values, values * utility, sources, nan, nan, np.arange(episodes), 2.0, 1.0, settings)

    safe, unsafe = ([one(seed, utility, 8) for seed in range(20)] for utility in (1.5, 0.5))
    table = to_latex(summarise(safe))
    rows = [line for line in table.splitlines() if " & " in line]
    assert rows[0] == r"Environment & Agent & Runs & Regret & Violating runs & Incumbent acted \\"
    assert (
        rows[1] == r"ring & OPSE-LCMDP (heuristic) & 20 & 8 $\pm$ 0 & 0 ($\leq$ 16.8 \%) & 25 \% \\"
    )  # 1 − 0.025^(1/20)
    assert r"\caption{Regret: mean over runs $\pm$ half of its 95 \% t-interval after 8 episodes." in table
    assert r" & 20 (83.2--100.0 \%) & " in to_latex(summarise(unsafe))
    noted = to_latex(summarise([*safe, one(0, 1.5, 9)]))
    assert "\n% ring, OPSE-LCMDP (heuristic): " in noted and "\n% " not in table
    ragged = to_latex(summarise([*safe, one(0, 1.5, 4, "lake")]))
    assert r"Runs & Episodes & Regret" in ragged and "after" not in ragged


def test_a_cell_of_a_paper_obeys_nothing():
    assert latex_cell("50 % of a_b \\input{x} ^2~ ±") == (
        r"50 \% of a\_b \textbackslash{}input\{x\} \textasciicircum{}2\textasciitilde{} $\pm$"
    )


def test_the_citation_names_this_version():
    root = Path(__file__).parents[1]
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    assert f"version: {version}\n" in (root / "CITATION.cff").read_text()
