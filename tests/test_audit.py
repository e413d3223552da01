"""The audit: every tampered trail is found, an untouched one passes, and the page says what was found."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
import tampering
from episafe.cli import app

CHAIN = es.make("streaming", seed=3)


def make(folder, seed):
    agent = es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task))
    es.run(CHAIN, agent, 40, seed=seed, folder=folder)


def test_every_tampered_trail_is_found(tmp_path):
    found, missed = tampering.detected(90, make, tmp_path, es.audit)
    assert missed == [] and found == 90


def test_a_trail_written_anew_with_its_journal_is_caught_by_a_head_kept_elsewhere(tmp_path):
    make(tmp_path / "a", 0)
    head = es.audit(tmp_path / "a").head
    assert es.audit(tmp_path / "a", head=head).head_at == len(es.audit(tmp_path / "a").lines) - 1
    es.resume(tmp_path / "a", 80)
    assert es.audit(tmp_path / "a", head=head).is_whole
    make(tmp_path / "b", 1)
    assert es.audit(tmp_path / "b").is_whole
    assert "kept elsewhere" in es.audit(tmp_path / "b", head=head).damage[0]


def test_an_agent_of_something_else_is_no_damage_of_the_folder(tmp_path):
    make(tmp_path, 0)
    tabular = es.make("tabular", seed=0).task
    for other in (es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task).replace(C_u=9.0)), es.OPSE(tabular)):
        found = es.audit(tmp_path, agent=other)
        assert found.is_whole and found.recomputed is None and found.checked == found.num_plans
        assert "the agent that was handed over is not the one" in found.otherwise
    (tmp_path / "audit.jsonl").write_text("\n".join([*found.lines[1:], ""]))
    assert not es.audit(tmp_path, agent=es.OPSE(tabular)).is_whole


def test_it_says_how_much_of_the_journal_is_done(tmp_path):
    make(tmp_path, 0)
    shares = []
    assert es.audit(tmp_path, on_progress=shares.append).is_whole
    assert shares == sorted(shares) and 0 <= shares[0] < shares[-1] == 1.0


def test_a_changed_episode_or_setting_is_found(tmp_path):
    """The certificates no longer come out, or the files no longer belong together."""
    make(tmp_path, 0)
    head = tmp_path / "journal.toml"
    text = head.read_text()
    for changed in (text.replace("seed = 0", "seed = 1"), re.sub(r'"C_u\\": [\d.]+', '"C_u\\\\": 9.0', text)):
        assert changed != text
        head.write_text(changed)
        assert not es.audit(tmp_path).is_whole
    head.write_text(text)
    problem = (tmp_path / "problem.npz").read_bytes()
    (tmp_path / "problem.npz").write_bytes(problem[:-1] + bytes([problem[-1] ^ 1]))
    assert "problem.npz" in es.audit(tmp_path).damage[0]


def test_the_lines_say_what_the_issue_of_a_plan_needs(tmp_path):
    make(tmp_path, 0)
    *lines, last = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert last["event"] == "close" and last["learned"] == 40
    needed = {"episode", "source", "lam", "bound", "threshold", "margin", "constants", "level", "delta", "learned"}
    assert all(needed | {"log_dets", "state", "previous", "hash"} <= line.keys() for line in lines)
    record = es.Record.load(tmp_path)
    assert len(lines) == record.plan_ids[-1] + 1
    for line in lines:
        k = line["episode"]
        assert line["bound"] == record.utility_bounds[k] and line["source"] == record.sources[k]
        assert line["lam"] == record.lams[k] or (line["lam"] is None and np.isnan(record.lams[k]))
    assert len({line["state"] for line in lines}) == len(lines)


def test_the_commands(tmp_path):
    run, folder = CliRunner(), str(tmp_path / "mine")
    assert run.invoke(app, ["run", "--env", "streaming", "--episodes", "50", "--out", folder]).exit_code == 0
    again = run.invoke(app, ["run", "--env", "streaming", "--episodes", "50", "--out", folder])
    assert again.exit_code == 2
    assert run.invoke(app, ["resume", folder, "--episodes", "80", "--json"]).exit_code == 0
    assert len(es.Record.load(folder).sources) == 80
    page = tmp_path / "page.html"
    good = run.invoke(app, ["audit", folder, "--html", str(page)])
    assert good.exit_code == 0 and "WHOLE" in good.output and "What this cannot show" in page.read_text()
    for words in (["--html", "journal.toml"], ["--html", "audit.jsonl"], ["--episodes", "journal.log"]):
        over = run.invoke(app, ["audit", folder, words[0], str(tmp_path / "mine" / words[1])])
        assert over.exit_code == 2 and "which it would destroy" in " ".join(over.output.split())
    head = json.loads(run.invoke(app, ["audit", folder, "--json"]).output)["head"]
    assert run.invoke(app, ["audit", folder, "--head", head]).exit_code == 0
    assert run.invoke(app, ["audit", folder, "--head", "0" * 64]).exit_code == 4
    trail = tmp_path / "mine" / "audit.jsonl"
    trail.write_text("".join(trail.read_text().splitlines(keepends=True)[:-1]))
    bad = run.invoke(app, ["audit", folder])
    assert bad.exit_code == 4 and "cut short" in bad.output
    assert run.invoke(app, ["audit", str(tmp_path)]).exit_code == 2


@pytest.mark.slow
def test_every_one_of_a_thousand_tampered_trails_is_found(tmp_path):
    found, missed = tampering.detected(1000, make, tmp_path, es.audit)
    assert missed == [] and found == 1000


def test_a_record_is_held_against_its_log(tmp_path):
    make(tmp_path, 0)
    record = es.Record.load(tmp_path)
    replace(record, utility_values=record.utility_values + 1).save(tmp_path)
    assert "utility_values are not what journal.log says" in es.audit(tmp_path).damage[0]
    replace(record, plan_ids=record.plan_ids[:30], **first(30, record)).save(tmp_path)
    assert es.audit(tmp_path).is_whole  # as when a run that was made longer is stopped


def first(count, record):
    return {name: getattr(record, name)[:count] for name in record.columns() if name != "plan_ids"}
