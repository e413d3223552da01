"""Repair: the longest provable beginning is kept, the rest put beside it; nothing is given twice, no halt is lost."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
import frame_faults
import session_faults
from episafe.cli import app
from episafe.deployment.frame_kinds import Kind
from frame_faults import CHAIN, frames_of, played, tuned
from test_journal import observing, same_record
from test_journal_faults import _quick_disk, contents, put, used  # noqa: F401


def fresh():
    return es.OPSE(CHAIN.task, es.Constants.proposing(), certifier=es.certify.FreshData())


def flip(folder, place, name="journal.log"):
    data = bytearray((folder / name).read_bytes())
    data[place] ^= 1
    (folder / name).write_bytes(bytes(data))


def issued(folder):
    """How many plans and deployments a log knows of."""
    plans = [frame.notes["plan"] for frame in frames_of(folder) if frame.kind == Kind.PLAN]
    return max(plans) + 1, sum(frame.kind == Kind.DEPLOY for frame in frames_of(folder))


def test_every_frame_that_is_damaged_costs_what_stands_behind_it_and_no_more(tmp_path):
    frame_faults.live_journal(tmp_path / "whole")
    whole, frames = (tmp_path / "whole" / "journal.log").read_bytes(), frames_of(tmp_path / "whole")
    plans, deployments = issued(tmp_path / "whole")
    for frame in frames[1:]:
        shutil.copytree(tmp_path / "whole", folder := tmp_path / str(frame.number))
        flip(folder, frame.offset + 70)
        damaged = (folder / "journal.log").read_bytes()
        with pytest.raises(es.DamagedFile):
            es.open(folder, agent=tuned())
        found = es.repair(folder)
        kept = (folder / "journal.log").read_bytes()
        assert found.frames == frame.number and kept.startswith(whole[: frame.offset])
        assert (folder / found.dropped / "journal.log").read_bytes() == damaged[frame.offset :]
        assert found.reports == sum(f.kind == Kind.REPORT for f in frames[frame.number + 1 :])
        assert es.audit(folder).is_whole
        with es.open(folder, agent=tuned()) as session:
            assert session.status().stopped.startswith("halted: repaired: ")
            assert session.book.started >= deployments and session.book.newest + 1 >= plans
            session.resume_exploring("looked at")
            made = session.deploy(np.random.default_rng(0))
            assert made.id >= deployments and made.plan.id >= plans and made.plan.source == "safe"
        assert es.audit(folder).is_whole and es.repair(folder).damage == []


def test_a_first_frame_that_is_damaged_leaves_nothing_to_prove(tmp_path):
    used(tmp_path).close()
    flip(tmp_path, 60)
    before = contents(tmp_path)
    with pytest.raises(es.DamagedFile, match="not even its first frame"):
        es.repair(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("build", [observing, fresh])
def test_what_was_lost_is_never_spent_again(tmp_path, build):
    """Proposals, plans and deployments after the repair have other numbers than any before it."""
    folder, rng = tmp_path / "shop", np.random.default_rng(0)
    session = used(folder, build, 200)
    before = session.agent.certificate
    spent = before.ledger.num_candidates if build is observing else before.num_epochs
    session.close()
    flip(folder, frames_of(folder)[30].offset + 50)
    plans = max(json.loads(line).get("plan", 0) for line in (folder / "audit.jsonl").read_text().splitlines())
    found = es.repair(folder)
    assert found.frames == 30 and found.deployments > 150
    with es.open(folder, agent=build()) as session:
        session.resume_exploring("looked at")
        for _ in range(10):
            made = session.deploy(rng)
            assert made.id >= 200 and made.plan.id > plans
            names = set(getattr(made.plan.policy, "names", ())) - {"incumbent"}
            assert all(int(name.removeprefix("proposal-")) > spent for name in names)
            session.learn(played(made.policy, rng), deployment=made.id)
        after = session.agent.certificate
        assert (after.ledger.num_candidates if build is observing else after.num_epochs) > spent
        with pytest.raises(es.InvalidEpisode, match="deployment 150 was never made"):
            session.learn(played(made.policy, rng), deployment=150)
        session._journal.checkpoint(session.parts)
    with es.open(folder, agent=build()) as session:
        assert session.deploy(rng).id == made.id + 1
    assert es.audit(folder).is_whole


def test_reports_that_were_lost_can_be_made_again(tmp_path):
    rng = np.random.default_rng(0)
    session = used(tmp_path)
    made = [session.deploy(rng) for _ in range(2)]
    for one in made:
        session.learn(played(one.policy, rng), deployment=one.id, episode_id=f"late {one.id}")
    session.close()
    first = next(frame for frame in frames_of(tmp_path) if frame.notes.get("id") == "late 3")
    flip(tmp_path, first.offset + 50)
    found = es.repair(tmp_path)
    assert found.reports == 1 and found.names == ["late 4"] and found.episodes == 3 and found.deployments == 0
    with es.open(tmp_path, agent=tuned()) as session:
        assert session.status().num_missing == 2
        for one in made:
            session.learn(played(one.policy, rng), deployment=one.id, episode_id=f"late {one.id}")
        assert session.status().num_missing == 0 and session.status().reported == 5
    assert es.audit(tmp_path).is_whole


def test_a_halt_that_only_the_trail_knows_stays_a_halt(tmp_path):
    session = used(tmp_path)
    session.halt("the pump is broken")
    session.close()
    halt = next(frame for frame in frames_of(tmp_path) if frame.kind == Kind.HALT)
    with (tmp_path / "journal.log").open("r+b") as file:
        file.truncate(halt.offset)
    found = es.repair(tmp_path)
    assert found.halts == ["the pump is broken"]
    with es.open(tmp_path, agent=tuned()) as session:
        assert "the pump is broken" in session.status().stopped
        assert session.deploy(np.random.default_rng(0)).plan.source == "safe"


@pytest.mark.parametrize("how", ["edited", "deleted", "no text"])
def test_a_trail_alone_is_written_again_from_the_log_and_somebody_must_look(tmp_path, how):
    used(tmp_path).close()
    trail = tmp_path / "audit.jsonl"
    whole = trail.read_bytes()
    if how == "deleted":
        trail.unlink()
    else:
        trail.write_bytes(whole.replace(b'"plan":1', b'"plan":7') if how == "edited" else b"\xff" + whole)
    found = es.repair(tmp_path)
    assert (found.reports, found.plans, found.deployments) == (0, 0 if how != "edited" else found.plans, 0)
    with es.open(tmp_path, agent=tuned()) as session:
        assert session.reported_ids == {"0", "1", "2"} and session.status().stopped.startswith("halted: repaired")
    assert trail.read_bytes().startswith(whole) and es.audit(tmp_path).is_whole


def test_a_checkpoint_that_is_ahead_bears_witness_and_is_put_aside(tmp_path):
    used(tmp_path / "mine", observing).close()
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    with es.open(tmp_path / "copy", agent=observing()) as session:
        for _ in range(40):
            session.deploy(np.random.default_rng(0))
        session._journal.checkpoint(session.parts)
    data = (tmp_path / "copy" / "checkpoint-0.npz").read_bytes()
    put(tmp_path / "mine", data)
    found = es.repair(tmp_path / "mine")
    assert found.deployments == 40 and (tmp_path / "mine" / found.dropped / "checkpoint-0.npz").read_bytes() == data
    with es.open(tmp_path / "mine", agent=observing()) as session:
        assert session.deploy(np.random.default_rng(0)).id == 43 + found.passed and found.passed >= 10**6
        assert session.status().started == 44 and session.status().abandoned == 40


def test_numbers_that_only_the_end_of_the_log_knew_are_not_given_again(tmp_path):
    """A log of a backup beside a newer trail, which has a line a plan: late reports of what is lost were credited to
    whoever acted in the new deployment of that number, and mixtures below b were deployed in 6 of 6 lives."""
    rng, agent = np.random.default_rng(0), partial(es.Rollout, 0.5, 0.2, {"v2": "two"}, "one", utility_max=1.0)
    with es.open(tmp_path, agent=agent()) as session:
        made = session.deploy(rng)
        session.learn(es.Episode.of_totals(0.7, 0.2), deployment=made.id)
        backup = (tmp_path / "journal.log").read_bytes()
        session.halt("somebody looks")
        late = [session.deploy(rng).id for _ in range(30)]
        plans = session.book.newest
    for path in tmp_path.glob("checkpoint-*.npz"):
        path.unlink()
    (tmp_path / "journal.log").write_bytes(backup)
    found = es.repair(tmp_path)
    assert "numbers are not given" in "\n".join(found.lines())
    with es.open(tmp_path, agent=agent()) as session:
        session.resume_exploring("looked at")
        new = [session.deploy(rng).id for _ in range(40)]
        assert not set(new) & set(late) and session.status().started < 100
        assert session.plan().id > plans + 1000  # plans that only the end of the log knew, too
        for number in late:
            with pytest.raises(es.InvalidEpisode):
                session.learn(es.Episode.of_totals(0.7, 0.2), deployment=number)
    assert es.audit(tmp_path).is_whole


def test_reports_that_only_a_checkpoint_knows_of_are_counted_and_named(tmp_path):
    used(tmp_path, observing).close()
    whole, rng = contents(tmp_path), np.random.default_rng(0)
    with es.open(tmp_path, agent=observing()) as session:
        for name in ("late", None):
            made = session.deploy(rng)
            session.learn(played(made.policy, rng), deployment=made.id, episode_id=name)
        session._journal.checkpoint(session.parts)
    for name in ("journal.log", "audit.jsonl"):
        (tmp_path / name).write_bytes(whole[name])
    found = es.repair(tmp_path)
    assert (found.reports, found.names) == (2, ["late"]) and "report again: late" in found.lines()


def test_what_a_later_version_wrote_is_no_damage_to_be_cut_off(tmp_path):
    session = used(tmp_path)
    session._journal.log.append_all([(17, {"says": "what nobody here knows"}, None)])
    session._journal.log.sync()
    session._journal.release()
    whole = contents(tmp_path)
    for use in (partial(es.open, agent=tuned()), es.repair):
        with pytest.raises(es.DamagedFile, match="later version of episafe wrote: update episafe"):
            use(tmp_path)
    assert contents(tmp_path) == whole


def test_a_run_that_was_repaired_ends_as_if_nothing_had_happened(tmp_path):
    expected = es.run(CHAIN, observing(), 300, seed=1)
    es.run(CHAIN, observing(), 60, seed=1, folder=tmp_path)
    for length in (120, 200):
        es.resume(tmp_path, length)
    second = [frame for frame in frames_of(tmp_path) if frame.kind == Kind.BATCH][1]
    flip(tmp_path, second.offset + 400)
    with pytest.raises(es.DamagedFile):
        es.resume(tmp_path, 300)
    found = es.repair(tmp_path)
    assert found.episodes == 60 and "played again" in found.then
    same_record(es.resume(tmp_path, 300), expected)
    assert es.audit(tmp_path).is_whole and any("repaired" in fault for fault in es.audit(tmp_path).faults)


@pytest.mark.parametrize("lost", ["batch", "aim", "aim, and the record"])
def test_a_longer_run_that_was_repaired_is_as_long_again(tmp_path, lost):
    """What it was made longer to is kept: by what was dropped, by the record, by the plans that were made."""
    es.run(CHAIN, observing(), 60, seed=1, folder=tmp_path)
    expected = es.resume(tmp_path, 120)
    kind = Kind.BATCH if lost == "batch" else Kind.AIM
    flip(tmp_path, [frame for frame in frames_of(tmp_path) if frame.kind == kind][-1].offset + 45)
    if lost == "aim, and the record":
        (tmp_path / "run.toml").unlink()
    found = es.repair(tmp_path)
    assert found.episodes == 60 and found.then.endswith("up to 120 episodes in all")
    if lost != "aim, and the record":
        with pytest.raises(ValueError, match=r"the record of 120 episodes, which one of 80 .*--episodes 120"):
            es.resume(tmp_path, 80)
    assert es.repair(tmp_path).damage == []
    same_record(es.resume(tmp_path), expected)
    assert es.audit(tmp_path).is_whole


@pytest.mark.parametrize("end", ["closed", "torn", "lines missing"])
def test_a_folder_that_opens_is_not_changed(tmp_path, end):
    used(tmp_path).close()
    if end == "torn":
        with (tmp_path / "journal.log").open("ab") as file:
            file.write(b"eF2")
    if end == "lines missing":
        (tmp_path / "audit.jsonl").write_bytes(b"")
    before = contents(tmp_path)
    found = es.repair(tmp_path)
    assert found.damage == [] and found.episodes == 3 and contents(tmp_path) == before
    with es.open(tmp_path, agent=tuned()) as session:
        assert session.status().stopped == ""
        with pytest.raises(es.InUse):
            es.repair(tmp_path)


def test_a_repair_that_fails_half_way_is_made_again(tmp_path):
    """Whichever call of the system fails: refused as before, or repaired; a second repair ends it."""
    frame_faults.live_journal(tmp_path / "whole")
    flip(tmp_path / "whole", frames_of(tmp_path / "whole")[9].offset + 70)
    at = 0
    while True:
        at += 1
        shutil.copytree(tmp_path / "whole", folder := tmp_path / str(at))
        with session_faults.failing(at, once=True) as calls:
            try:
                es.repair(folder)
                done = True
            except OSError:
                done = False
        try:
            with es.open(folder, agent=tuned()) as session:
                assert session.status().stopped.startswith("halted: repaired")
        except es.DamagedFile:
            assert not done
            es.repair(folder)
        with es.open(folder, agent=tuned()) as session:
            assert session.status().stopped.startswith("halted: repaired") and session.book.started >= 7
        shutil.rmtree(folder)
        if calls[0] < at:
            break
    assert at > 10


def test_the_command(tmp_path):
    run = partial(CliRunner().invoke, app)
    used(tmp_path / "shop").close()
    whole = run(["repair", str(tmp_path / "shop")])
    assert whole.exit_code == 0 and "nothing to repair" in whole.output
    flip(tmp_path / "shop", frames_of(tmp_path / "shop")[4].offset + 50)
    found = run(["repair", str(tmp_path / "shop")])
    assert found.exit_code == 0 and "resume_exploring" in found.output and "dropped-1" in found.output
    flip(tmp_path / "shop", frames_of(tmp_path / "shop")[2].offset + 50)
    said = json.loads(run(["repair", str(tmp_path / "shop"), "--json"]).output)
    assert said["frames"] == 2 and said["dropped"] == "dropped-2"
    flip(tmp_path / "shop", 60)
    assert run(["repair", str(tmp_path / "shop")]).exit_code == 4
    assert run(["repair", str(tmp_path)]).exit_code == 2
    assert "episafe repair mine" in run(["repair", "--help"]).output


def rollout(*names, slack=0.4):
    return es.Rollout(0.5, slack, {name: [name] for name in names}, ["now"], utility_max=1.0)


def tried(session, rng, num):
    for _ in range(num):
        session.learn(es.Episode.of_totals(0.9), deployment=session.deploy(rng).id)


@pytest.mark.parametrize("slack", [0.4, None])
def test_of_a_rollout_all_trials_end_and_no_share_of_delta_is_spent_twice(tmp_path, slack):
    rng, spent = np.random.default_rng(0), 3 + (slack is None)
    with es.open(tmp_path, agent=rollout("v2", slack=slack)) as session:
        tried(session, rng, 20)
        for name in ("v3", "v4"):
            session.add_candidate(name, [name])
        tried(session, rng, 20)
        assert session.agent.certificate.ledger.num_candidates == spent
    for lap in range(2):  # the second time what the first repair wrote is lost
        flip(tmp_path, frames_of(tmp_path)[25].offset + 30)
        found = es.repair(tmp_path)
        assert lap or [change for change in found.changes if "v3" in change or "v4" in change]
        with es.open(tmp_path, agent=rollout("v2", slack=slack)) as session:
            ledger = session.agent.certificate.ledger
            assert list(session.agent.bounds()) == ["incumbent"] and session.deploy(rng).policy.name == "incumbent"
            session.resume_exploring("looked at")
            session.add_candidate(f"w{lap}", ["w"])
            shares = np.exp(ledger.trials.log_term[ledger.trials.log_term > 0])
            assert ledger.num_candidates > spent and shares[-1] > 14 * spent * (spent + 1) / 0.05
            spent = ledger.num_candidates
            assert slack or session.agent.bounds()["incumbent"] == 0  # its sequence begins anew too
            tried(session, rng, 5)


def test_what_is_learned_before_anybody_resumes_does_not_stop_it_for_ever(tmp_path):
    """The plan that a repair puts in force is never deployed then, and its number is passed over."""
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=rollout("v2")) as session:
        tried(session, rng, 20)
    flip(tmp_path, frames_of(tmp_path)[30].offset + 30)
    es.repair(tmp_path)
    for _ in range(2):
        with es.open(tmp_path, agent=rollout("v2")) as session:
            tried(session, rng, 2)
            if session.book.halted:
                session.resume_exploring("looked at")
            assert session.deploy(rng).plan.id >= 20 and not session.broken
    assert es.audit(tmp_path, agent=rollout("v2")).is_whole


def test_shares_of_delta_that_only_a_checkpoint_knows_of_are_not_spent_twice(tmp_path):
    """Log and trail are cut alike, before two candidates were put on trial."""
    rng, session = np.random.default_rng(0), es.open(tmp_path, agent=rollout("v2"))
    tried(session, rng, 5)
    session._journal.sync_trail()
    sizes = {name: (tmp_path / name).stat().st_size for name in ("journal.log", "audit.jsonl")}
    for name in ("v3", "v4"):
        session.add_candidate(name, [name])
    tried(session, rng, 5)
    session._journal.checkpoint(session.parts)
    session._journal.release()
    for name, size in sizes.items():
        with (tmp_path / name).open("r+b") as file:
            file.truncate(size)
    es.repair(tmp_path)
    with es.open(tmp_path, agent=rollout("v2", "v3", "v4")) as session:
        assert session.agent.certificate.ledger.num_candidates == 3 + 2


def test_a_model_of_level_theorem_learns_nothing_after_what_is_lost(tmp_path):
    rng, arms = np.random.default_rng(0), [[1.0, 0.0], [0.0, 1.0]]
    bandit = es.bandits.LinearBandit([0.9, 0.2], [0.1, 0.8], arms, 0.35, safe_policy=[0, 1], noise=0.2)

    def played_on(session):
        for _ in range(4):
            session.learn([0.0, 1.0], 0.2, 0.8, deployment=session.deploy(rng).id)
        return session.agent.num_learned

    with es.open(tmp_path, es.bandits.OPLBSP(bandit.task, radius="determinant")) as session:
        assert played_on(session) == 4
    deployments = [frame for frame in frames_of(tmp_path) if frame.kind == Kind.DEPLOY]
    flip(tmp_path, deployments[2].offset + 30)  # nothing waits before it
    es.repair(tmp_path)
    with es.open(tmp_path, es.bandits.OPLBSP(bandit.task, radius="determinant")) as session:
        learned = session.agent.num_learned
        session.resume_exploring("looked at")
        assert learned == 2 and played_on(session) == 2


def test_of_a_first_plan_by_a_log_two_candidates_may_be_lost():
    """One by the log, one by all traces: both have spent their shares of δ."""
    problem, spent = es.make("cloud"), []
    for use in (lambda agent: agent.plan(), lambda agent: agent.lose(1, "repaired")):
        agent, rng = es.OPSE(problem.task), np.random.default_rng(2)
        for _ in range(12):
            agent.learn(problem.task.replay(problem.task.safe_policy, problem.draw_trace(rng), rng))
        use(agent)
        spent.append(agent.certificate.replayed.num_candidates)
    assert spent == [2, 2]


def promoted_folder(folder, ending):
    """A log that lost its last frames, and a trail that still says what they said, behind a line that is spoilt."""
    session, rng = es.open(folder, agent=rollout("v2")), np.random.default_rng(31)
    while not session.agent.certificate.ledger.certified[1]:
        session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)
    session.change("a softer contract", threshold=0.49)
    session.promote("v2", "the release of May")
    made = session.deploy(rng)
    if ending == "alarm":
        with pytest.raises(es.InvalidEpisode):
            session.learn(es.Episode.of_totals(7.0), deployment=made.id)
    elif ending == "withdrawn":
        session.withdraw("v2", "it harms people")
    session._journal.sync_trail()
    session._journal.release()
    frames = frames_of(folder)
    last = max(frame.number for frame in frames if frame.kind == Kind.DEPLOY)
    if ending != "kept":
        with (folder / "journal.log").open("r+b") as file:
            file.truncate(frames[last + 1].offset)


@pytest.mark.parametrize("damage", ["changed", "removed"])
@pytest.mark.parametrize("ending", ["withdrawn", "alarm", "kept"])
def test_after_a_repair_nobody_is_promoted(tmp_path, ending, damage):
    promoted_folder(tmp_path, ending)
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"line":5', b'"line":6') if damage == "changed" else b""
    (tmp_path / "audit.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(es.DamagedFile):
        es.open(tmp_path, agent=rollout("v2"))
    found = es.repair(tmp_path)
    again = {"withdrawn": "withdrew v2", "alarm": "promoted incumbent", "kept": "promoted v2"}[ending]
    assert [said.partition(":")[0] for said in found.changes] == [again]  # and not the change, which the log has
    assert es.repair(tmp_path).damage == []
    with es.open(tmp_path, agent=rollout("v2")) as session:
        assert session.stopped.startswith("halted: repaired") and session.agent.promoted == "incumbent"
        assert session.deploy(np.random.default_rng(1)).acting == "incumbent"
        assert ("v2" in session.agent.bounds()) == (ending == "kept")  # of the trail alone: what is proved stays
    assert es.audit(tmp_path, agent=rollout("v2")).is_whole


def test_nobody_acts_in_a_deployment_from_before_a_loss(tmp_path):
    """What ended a trial may be among what is lost, so all trials have ended: nobody goes on with one by its number."""
    session, rng = es.open(tmp_path, agent=observing()), np.random.default_rng(0)
    while not (made := session.deploy(rng)).acting.startswith("proposal"):
        session.learn(played(made.policy, rng), deployment=made.id)
    then = session.deploy(rng, episode_id="then")
    for _ in range(3):
        last = session.deploy(rng)
        session.learn(played(last.policy, rng), deployment=last.id)
    assert session.acting(made.id) is not None
    session._journal.release()
    frames = frames_of(tmp_path)
    flip(tmp_path, frames[-2].offset + 40)
    es.repair(tmp_path)
    with es.open(tmp_path, agent=observing()) as session:
        session.resume_exploring("looked at")
        assert session.acting(made.id) is None and session.acting(then.id) is None
        again = session.deploy(rng, episode_id="then")
        assert again.id > last.id and again.acting == "incumbent"
