"""Folders of other versions: of every released format one is kept, and what another version proposed is no damage."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.deployment import session as session_module
from episafe.deployment import session_start
from episafe.learning.planner import SoftmaxPlanner
from episafe.reports import audit_page
from episafe.reports.report import write_report
from episafe.runs import kept_run
from stored import by_tuples
from test_audit import CHAIN
from test_session import frames, observing, played, tuned

FORMATS = Path(__file__).with_name("formats")
FOLDERS = sorted(path.parent.relative_to(FORMATS).as_posix() for path in FORMATS.glob("*/*/journal.toml"))
OTHERS = {"episafe_version": "0.0.9", "numpy_version": "1.0", "numba_version": "0.1", "python_version": "3.2"}


@pytest.fixture
def by_others(monkeypatch):
    """What is begun is begun by other versions."""
    monkeypatch.setattr(session_start, "versions", lambda: OTHERS)
    return monkeypatch


def eager():
    return es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task).replace(C_r=0.1, C_u=0.02))


def bolder(planner, decide=SoftmaxPlanner.decide):
    """Another search: it goes on from the λ that it would have deployed."""
    found = decide(planner)
    return (
        found
        if found.source == 0
        else found._replace(lam=found.lam + 1, utility_bound=planner.utility_bound(found.lam + 1))
    )


def text_of(audit):
    return audit_page.as_text(audit.as_dict(), audit.lines)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_every_released_format_can_be_audited(name, tmp_path):
    folder = shutil.copytree(FORMATS / name, tmp_path / "copy")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    found = es.audit(folder)
    assert found.damage == [] and found.doubts == [] and found.format == int(name[0])
    assert found.checked == found.num_plans > 0
    assert (found.recomputed is None) == (found.format == 1)
    assert es.audit(folder, head=found.head).head_at == len(found.lines) - 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    trail = folder / "audit.jsonl"
    trail.write_text(trail.read_text().replace('"learned":2', '"learned":3', 1))
    assert "does not follow from the one before it" in es.audit(folder).damage[0]


def test_of_format_1_the_chain_is_verified_and_the_page_says_what_that_is_worth(tmp_path):
    folder = shutil.copytree(FORMATS / "1" / "live", tmp_path / "copy")
    done = CliRunner().invoke(app, ["audit", str(folder)])
    assert done.exit_code == 1 and "The chain of lines is whole" in done.output
    assert "NO certificate was recomputed, and NOTHING was read but the trail" in done.output
    with pytest.raises(
        es.DamagedFile, match="format 1, and this version of episafe goes on with 2: begin a new folder"
    ):
        es.open(folder, agent=tuned())
    lines = (folder / "audit.jsonl").read_text().splitlines(keepends=True)
    (folder / "audit.jsonl").write_text("".join(lines[:-1]))
    assert es.audit(folder).is_whole  # as it says
    assert not es.audit(folder, head=json.loads(lines[-1])["hash"]).is_whole
    (folder / "journal.toml").write_text((folder / "journal.toml").read_text().replace("format = 1", "format = 0"))
    with pytest.raises(es.DamagedFile, match="has format 0"):
        es.audit(folder)


def test_the_record_of_a_finished_run_of_format_1_is_reported(tmp_path):
    folder = shutil.copytree(FORMATS / "1" / "run", tmp_path / "copy")
    page = write_report(folder).read_text()
    assert len(es.Record.load(folder).sources) > 0 and "Its journal has format 1" in page
    with pytest.raises(
        es.DamagedFile, match=r"begin a new folder\. .*es\.Record\.load and `episafe report` the record"
    ):
        es.resume(folder)
    (folder / "run.toml").unlink()
    with pytest.raises(es.DamagedFile, match="has format 1"):
        write_report(folder)


@pytest.mark.parametrize("folder", ["live", "run"])
def test_another_versions_heuristic_is_no_damage(folder, monkeypatch):
    """The planner was changed, and proposes another λ: what was deployed passed the check all the same."""
    monkeypatch.setattr(SoftmaxPlanner, "decide", bolder)
    found = es.audit(FORMATS / "2" / folder)
    learned = sum('"source":"search"' in line or '"source":"zero"' in line for line in found.lines)
    assert found.damage == [] and found.doubts == [] and found.otherwise
    assert found.confirmed == learned > 0 and found.recomputed < found.num_plans == found.checked
    text = text_of(found)
    assert "WHOLE, BY WHAT WAS RECORDED" in text and "DAMAGED" not in text and "is no damage" in text


def test_other_settings_of_another_version_are_no_damage(monkeypatch):
    settings = es.OPSE.settings
    monkeypatch.setattr(es.OPSE, "settings", lambda agent: settings(agent) | {"norm_bound": 1.0})
    found = es.audit(FORMATS / "2" / "live")
    assert found.damage == [] and found.confirmed == 4 and "names another agent" in found.otherwise


def test_mixtures_of_another_version_are_held_against_the_threshold(monkeypatch):
    """Their bounds need the policies that were mixed, which a journal does not keep."""
    propose = SoftmaxPlanner.propose
    monkeypatch.setattr(SoftmaxPlanner, "propose", lambda planner, aim: propose(planner, aim)._replace(lam=7.0))
    found = es.audit(FORMATS / "2" / "observing")
    assert found.damage == [] and found.otherwise and found.confirmed is None
    assert found.checked == found.num_plans and "takes the policies themselves" in text_of(found)


def test_what_another_version_would_not_deploy_is_in_doubt(monkeypatch):
    """Its formula was mended: bonuses are larger, and the old bounds too high."""
    use = SoftmaxPlanner.use

    def wider(planner, constants):
        use(planner, constants)
        planner.scales = planner.scales._replace(utility_bonus=10 * planner.scales.utility_bonus)

    monkeypatch.setattr(SoftmaxPlanner, "use", wider)
    done = CliRunner().invoke(app, ["audit", str(FORMATS / "2" / "live")])
    assert done.exit_code == 1 and "IN DOUBT" in done.output and "below the threshold 2.4" in done.output
    assert es.audit(FORMATS / "2" / "live").is_whole


def test_the_same_versions_must_make_the_same_plans(tmp_path, monkeypatch):
    es.run(CHAIN, eager(), 10, folder=tmp_path)
    monkeypatch.setattr(SoftmaxPlanner, "decide", bolder)
    assert "when it is made again" in es.audit(tmp_path).damage[0]


def test_bounds_computed_anew_by_the_same_version_are_those_that_were_recorded(monkeypatch):
    seen = []
    bound_anew = es.OPSE.bound_anew
    monkeypatch.setattr(es.OPSE, "bound_anew", lambda agent, lam: seen.append(bound_anew(agent, lam)) or seen[-1])
    monkeypatch.setattr("episafe.deployment.audit._make_again", refuse)
    for folder in ("live", "run"):
        found = es.audit(FORMATS / "2" / folder)
        said = [json.loads(line) for line in found.lines]
        assert seen == [line["bound"] for line in said if line.get("source") in ("zero", "search")] != []
        seen.clear()


def refuse(*_):
    raise es.DamagedFile("another version")


def lying(monkeypatch, **lies):
    """A session that writes other figures of some plans than they have, in log and trail alike."""
    figures = session_module.figures

    def told(agent, plan):
        said = figures(agent, plan)
        return said | lies if plan.id == lies["plan"] else said

    monkeypatch.setattr(session_module, "figures", told)


def halted_session(folder, agent):
    rng = np.random.default_rng(0)
    with es.open(folder, agent=agent) as session:
        for _ in range(3):
            made = session.deploy(rng)
            session.learn(played(made, rng), deployment=made.id)
        session.halt("the pump is broken")
        session.deploy(rng)


@pytest.mark.parametrize(
    "lie", [{"log_dets": [9.0] * 4}, {"bounds": [3.0]}, {"source": "search"}, {"reason": "halted"}]
)
def test_false_figures_of_the_incumbent_that_is_held_are_found(tmp_path, monkeypatch, lie):
    halted_session(tmp_path / "true", tuned())
    assert es.audit(tmp_path / "true").is_whole
    with monkeypatch.context() as patched:
        lying(patched, plan=-1, **lie)
        halted_session(tmp_path / "false", tuned())
    assert not es.audit(tmp_path / "false").is_whole


def test_a_plan_below_the_threshold_is_found_though_nobody_can_build_the_agent(tmp_path, monkeypatch):
    def begin(folder):
        cmdp, rng = by_tuples(), np.random.default_rng(0)
        agent = es.OPSE(
            cmdp.task, es.Constants.tuned(cmdp.task).replace(C_r=0.01, C_u=1e-6, C_dagger=0.0, B_dagger=0.0)
        )
        with es.open(folder, agent=agent) as session:
            for _ in range(12):
                made = session.deploy(rng)
                states, actions = [cmdp.task.initial_state], []
                for h in range(3):
                    actions.append(made.policy.act(h, states[-1], rng))
                    states.append(cmdp.sample(h, states[-1], actions[-1], rng))
                session.learn(es.Episode(states, actions), deployment=made.id)

    begin(tmp_path / "true")
    found = es.audit(tmp_path / "true")
    assert found.is_whole and found.recomputed is None and found.checked == found.num_plans > 1
    learned = next(line for line in map(json.loads, found.lines) if line.get("source", "safe") != "safe")
    with monkeypatch.context() as patched:
        lying(patched, plan=learned["plan"], bounds=[1.2])
        begin(tmp_path / "false")
    (damage,) = es.audit(tmp_path / "false").damage
    assert f"plan {learned['plan']}" in damage and "did not pass the check: its bound is 1.2" in damage


def test_false_weights_of_a_simulated_mixture_are_found(tmp_path, monkeypatch):
    es.run(CHAIN, observing(), 20, folder=tmp_path / "true")
    assert es.audit(tmp_path / "true").is_whole
    arrays = kept_run.batch_arrays

    def swapped(*given):
        made = arrays(*given)
        return made | {"weights": made["weights"][:, ::-1].copy()}

    with monkeypatch.context() as patched:
        patched.setattr(kept_run, "batch_arrays", swapped)
        es.run(CHAIN, observing(), 20, folder=tmp_path / "false")
    assert any("weights of the plan" in damage for damage in es.audit(tmp_path / "false").damage)


def test_the_versions_that_go_on_with_a_folder_are_recorded(tmp_path, by_others):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as session:
        session.deploy(rng)
    by_others.undo()
    for _ in range(2):
        with es.open(tmp_path, agent=tuned()) as session:
            session.deploy(rng)
    found = es.audit(tmp_path)
    assert found.damage == [] and found.versions == OTHERS and len(found.later_versions) == 1
    assert [frame.notes["what"] for frame in frames(tmp_path) if frame.kind == 14] == ["versions"]
    assert "Written by episafe 0.0.9" in text_of(found) and "Then by episafe" in text_of(found)


def test_a_folder_whose_plans_another_version_makes_otherwise_is_not_gone_on_with_and_can_be_audited(
    tmp_path, by_others
):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=eager()) as session:
        for _ in range(6):
            made = session.deploy(rng)
            session.learn(played(made, rng), deployment=made.id)
    by_others.undo()
    by_others.setattr(SoftmaxPlanner, "decide", bolder)
    with pytest.raises(
        es.DamagedFile, match=r"written by other versions \(episafe 0\.0\.9, now .*`episafe audit` holds"
    ):
        es.open(tmp_path, agent=eager())
    assert es.audit(tmp_path).damage == [] and es.audit(tmp_path).confirmed > 0


def test_bounds_are_computed_anew_with_reports_that_are_late_or_of_no_plan(tmp_path, by_others):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=eager()) as session:
        for _ in range(3):
            made = [session.deploy(rng) for _ in range(4)]
            for one in reversed(made[1:]):
                session.learn(played(one, rng), deployment=one.id)
            session.learn(played(made[0], rng))
    by_others.undo()
    by_others.setattr("episafe.deployment.audit._make_again", refuse)
    found = es.audit(tmp_path)
    said = [line["source"] for line in map(json.loads, found.lines) if "event" not in line]
    assert found.confirmed == len(said) - said.count("safe") > 0 and found.doubts == []
