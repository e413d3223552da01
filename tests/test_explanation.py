"""`episafe explain`: what is said of a plan is what the journal holds, for mixtures, the incumbent and simulations."""

import io
import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import rich.progress  # noqa: F401  # before a test changes the clock that it takes
from rich.console import Console
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.deployment.explanation import explain, percent
from episafe.experiments import progress
from episafe.reports.explanation_page import check_picture


def rollout():
    return es.Rollout(0.5, 0.2, candidates={"v2": "v2"}, incumbent="v1", utility_max=1.0)


@pytest.fixture
def folder(tmp_path):
    """Ten deployments, nine reported; then a halt, and one more."""
    rng = np.random.default_rng(0)
    with es.open(tmp_path / "shop", rollout(), false_alarm=0) as session:
        for k in range(10):
            made = session.deploy(rng)
            if k < 9:
                session.learn(es.Episode.of_totals(0.9, 1.0), deployment=made.id)
        session.halt("the shop is closed")
        session.deploy(rng)
    return tmp_path / "shop"


def test_the_sum_behind_a_mixture_comes_out(folder):
    first = explain(folder, 0)
    assert [part.name for part in first.parts] == ["v2", "incumbent"]
    total = sum(part.weight * part.proved for part in first.parts)
    assert total == pytest.approx(first.bound) and first.bound >= first.threshold == 0.5
    assert first.parts[1].proved == pytest.approx(0.7) and first.learned == 0
    assert "Why it was allowed" in first.sentences[1] and "proved" in first.sentences[2]
    assert len(first.bars) == 3 and "the threshold" in first.bars[-1]


def test_what_came_of_it_is_counted(folder):
    plans = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    numbers = {line["plan"] for line in plans if "plan" in line}
    explained = [explain(folder, number) for number in numbers]
    assert sum(one.deployments for one in explained) == 11 and sum(one.reports for one in explained) == 9


def test_the_incumbent_is_explained_by_the_reason(folder):
    last = explain(folder)
    assert last.is_incumbent and "the shop is closed" in last.sentences[1] and not last.bars


def test_a_folder_in_use_can_be_asked(tmp_path):
    with es.open(tmp_path / "shop", rollout()) as session:
        session.deploy(np.random.default_rng(0))
        assert explain(tmp_path / "shop").plan == 0


def test_a_simulation_is_explained_too(tmp_path):
    cmdp = es.make("streaming")
    agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task), certifier=es.certify.Observation())
    es.run(cmdp, agent, num_episodes=50, folder=tmp_path / "run")
    said = explain(tmp_path / "run", 0)
    assert said.deployments is None and said.level == "theorem" and len(said.parts) == 2 and not said.bars
    assert "a simulation keeps no names" in said.sentences[0] and check_picture(said) is None  # nothing to draw
    assert "(margin below 1e-09)" in replace(said, bound=said.threshold + 1e-12).sentences[1]


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0 %"), (3.4e-12, "below 0.1 %"), (0.5244, "52.44 %"), (1 - 1e-12, "above 99.9 %"), (1.0, "100 %")],
)
def test_a_share_is_written_as_people_read_it(share, said):
    assert percent(share) == said


def test_an_unknown_plan_is_an_error_that_names_those_there_are(folder):
    with pytest.raises(ValueError, match=r"no plan 999 was deployed: plans -1 to \d+ were deployed"):
        explain(folder, 999)


def test_the_command(folder):
    said = CliRunner().invoke(app, ["explain", str(folder), "--plan", "0"])
    assert said.exit_code == 0 and "a coin decides" in said.stdout and "█" in said.stdout
    found = json.loads(CliRunner().invoke(app, ["explain", str(folder), "--json"]).stdout)
    assert found["bound"] is None and found["source"] == "safe"
    assert CliRunner().invoke(app, ["explain", str(folder), "--plan", "999"]).exit_code == 2


def test_the_page_of_a_plan_has_a_picture_of_its_check(folder, tmp_path):
    page = tmp_path / "plan.html"
    found = CliRunner().invoke(app, ["explain", str(folder), "--plan", "0", "--html", str(page)])
    assert found.exit_code == 0 and "wrote" in found.output
    text = page.read_text()
    assert "Why plan 0 was allowed" in text and "the area is the lower bound" in text and "v2: " in text
    picture = check_picture(explain(folder, 0))
    areas = [float(mark.high[0] * (mark.x[1] - mark.x[0]) / 100) for mark in picture.marks]
    assert sum(areas) == pytest.approx(explain(folder, 0).bound)
    assert check_picture(explain(folder)) is None  # the incumbent because of a halt: nothing was checked


def test_reading_shows_its_progress_only_where_it_takes_long(folder, monkeypatch):
    shares = []
    explain(folder, 0, shares.append)
    assert shares == sorted(shares) and 0 < shares[0] < shares[-1] == 1
    for silent, is_shown in ((1e9, False), (0.0, True)):
        monkeypatch.setattr(progress, "SILENT", silent)
        seen, clock = io.StringIO(), itertools.count()
        monkeypatch.setattr(progress.time, "monotonic", lambda clock=clock: float(next(clock)))
        with progress.late_bar("reading", Console(file=seen, force_terminal=True)) as advance:
            advance(0.5)
        assert ("reading" in seen.getvalue() and "50%" in seen.getvalue()) == is_shown
        assert is_shown or not seen.getvalue()


def test_a_bar_of_80_columns_cuts_its_title_and_never_its_times(monkeypatch):
    seen, clock = io.StringIO(), itertools.count()
    monkeypatch.setattr(progress.time, "monotonic", lambda: 3.0 * next(clock))
    with progress.late_bar("auditing " + 80 * "x", Console(file=seen, force_terminal=True, width=80)) as advance:
        advance(0.05)
        advance(0.6)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", shown) if "left:" in line]
    assert lines and all(len(line) <= 80 and "xxx…" in line for line in lines)
    assert all(re.search(r"\d+% \d:\d\d:\d\d left: \S:\S\S:\S\S", line) for line in lines)


def left_of(monkeypatch, heard, now):
    """What a bar says is left at a time, after shares were done at some."""
    pace = progress.Pace()
    bar = progress._progress(Console(file=io.StringIO()), pace)
    bar.add_task("", total=1.0)
    for moment, share in heard:
        monkeypatch.setattr(progress.time, "monotonic", lambda moment=moment: float(moment))
        pace.hear(share)
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(now))
    return str(bar.columns[-1].render(bar.tasks[0]))


@pytest.mark.parametrize(
    ("heard", "now", "left"),
    [
        ([(60, 0.025), (61, 0.05)], 61, "-:--:--"),  # too little is done
        ([(60, 0.1), (100, 0.5)], 100, "0:00:50"),  # 0.4 in 40 s without what was compiled before
        ([(60, 0.1), (100, 0.5)], 130, "0:00:20"),  # 30 s later, nothing more being done
        ([(60, 0.1), (62, 0.22)], 61 + 60, "-:--:--"),  # a part that takes longer than all before it
        ([(0, 0.1), (100, 0.9)], 150, "-:--:--"),  # it should be over
        ([(0, 0.1), (600, 0.5), (4000, 1.0)], 4000, "0:00:00"),  # it is over
    ],
)
def test_the_time_left_is_by_the_share_done_and_told_only_where_it_can_be_true(monkeypatch, heard, now, left):
    assert left_of(monkeypatch, heard, now) == left


def test_a_finished_bar_has_nothing_left():
    seen = io.StringIO()
    with progress.bar("playing", 10, Console(file=seen, force_terminal=True, width=80)) as advance:
        advance(3)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.getvalue())
    assert re.findall(r"100% .*left: (\S+)", shown)[-1] == "0:00:00"
