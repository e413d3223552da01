"""Sessions: deployments are registered before anybody acts, reported once, and kept by one journal."""

import dataclasses
import json
import shutil
import threading
import time

import numpy as np
import pytest

import episafe as es
from episafe.deployment import open_session
from episafe.deployment import session as session_module
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.session_start import catch_up
from episafe.storage.frames import read
from test_journal import CHAIN, observing, same_record, tuned
from test_monitors import half_as_useful, told


def frames(folder):
    import hashlib

    genesis = hashlib.sha256((folder / "journal.toml").read_bytes()).hexdigest()
    return list(read(folder / "journal.log", genesis))


def played(deployment, rng, cmdp=CHAIN):
    states, actions = [cmdp.task.initial_state], []
    for h in range(cmdp.task.horizon):
        actions.append(deployment.policy.act(h, states[-1], rng))
        states.append(int(rng.choice(cmdp.P.shape[-1], p=cmdp.P[h, states[-1], actions[-1]])))
    return es.Episode(states, actions)


@pytest.mark.parametrize("kept", [True, False])
def test_a_deployment_is_registered_with_its_coin_and_reported_once(tmp_path, kept):
    rng = np.random.default_rng(0)
    with es.open(tmp_path if kept else None, agent=observing()) as session:
        made = [session.deploy(rng) for _ in range(30)]
        assert [one.id for one in made] == list(range(30)) and made[7].plan.deployment == 7
        for one in reversed(made):
            session.learn(played(one, rng), deployment=one.id)
        with pytest.raises(es.InvalidEpisode, match="deployment 3 was never made, or was reported"):
            session.learn(played(made[3], rng), deployment=3)
        late = session.deploy(rng)
        session.abandon(late.id)
        with pytest.raises(es.InvalidEpisode, match="abandoned before"):
            session.learn(played(late, rng), deployment=late.id)
        status = session.status()
        assert (status.started, status.reported, status.abandoned, status.num_missing) == (31, 30, 1, 0)
    if kept:
        coins = [frame.notes["component"] for frame in frames(tmp_path) if frame.kind == Kind.DEPLOY]
        assert coins == [one.component for one in [*made, late]]
        assert es.audit(tmp_path).is_whole


def test_the_component_of_a_report_is_the_one_that_was_drawn(tmp_path):
    rng = np.random.default_rng(3)
    with es.open(tmp_path, agent=observing()) as session:
        made = session.deploy(rng)
        while made.plan.source == "safe":
            session.learn(played(made, rng), deployment=made.id)
            made = session.deploy(rng)
        wrong = es.Episode(*vars(played(made, rng)).values())
        with pytest.raises(es.InvalidEpisode, match="component"):
            session.learn(es.Episode(wrong.states, wrong.actions, component=1 - made.component), deployment=made.id)
        session.learn(played(made, rng), deployment=made.id)
        assert session.status().num_missing == 0


def test_plan_ids_and_deployments_must_agree(tmp_path):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as session:
        made = session.deploy(rng)
        with pytest.raises(es.InvalidEpisode, match="is of plan 0, not of plan 5"):
            session.learn(played(made, rng), deployment=made.id, plan_id=5)


def test_a_session_in_memory_follows_the_same_plans_as_one_that_is_kept(tmp_path):
    plans = []
    for folder in (None, tmp_path):
        rng = np.random.default_rng(1)
        with es.open(folder, agent=tuned()) as session:
            for _ in range(40):
                made = session.deploy(rng)
                session.learn(played(made, rng), deployment=made.id)
            plan = session.plan()
            plans.append((plan.id, plan.source, plan.lam, plan.utility_bound, plan.deployment))
    assert plans[0] == plans[1]


def test_a_halt_is_a_line_of_the_trail_and_survives_a_copy(tmp_path):
    with es.open(tmp_path / "a", agent=tuned()) as session:
        session.plan()
        session.halt("the pump is broken")
        assert session.plan().reason == "halted: the pump is broken"
        session.resume_exploring("mended by Ada")
        session.halt("and the valve")
    said = [json.loads(line) for line in (tmp_path / "a" / "audit.jsonl").read_text().splitlines()]
    events = [(line["event"], line["reason"]) for line in said if "reason" in line and "event" in line]
    assert events == [("halt", "the pump is broken"), ("resume", "mended by Ada"), ("halt", "and the valve")]
    assert [line["event"] for line in said if "event" in line][-1] == "close"
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with es.open(tmp_path / "b", agent=tuned()) as session:
        assert session.plan().reason == "halted: and the valve"
    audit = es.audit(tmp_path / "b")
    assert audit.is_whole and audit.recomputed == 1 + 2


def test_a_cut_halt_is_found_by_the_trail(tmp_path):
    with es.open(tmp_path, agent=tuned()) as session:
        session.plan()
        session.halt("the pump is broken")
        shutil.copytree(tmp_path, tmp_path.parent / "cut")
    folder = tmp_path.parent / "cut"
    halt = next(frame for frame in frames(folder) if frame.kind == Kind.HALT)
    with (folder / "journal.log").open("r+b") as file:
        file.truncate(halt.offset)
    with pytest.raises(es.DamagedFile, match=r"audit\.jsonl: line 1 is not what journal\.log says"):
        es.open(folder, agent=tuned())
    assert not es.audit(folder).is_whole


def test_a_run_may_have_a_folder_and_monitors(tmp_path):
    cmdp = es.make("tabular", seed=0)
    build = lambda: es.OPSE(cmdp.task, es.Constants.paper("tabular"))  # noqa: E731
    alone = es.run(cmdp, build(), 300, seed=1, monitors=es.Monitors(cmdp.task))
    es.run(cmdp, build(), 100, seed=1, monitors=es.Monitors(cmdp.task), folder=tmp_path)
    both = es.resume(tmp_path, 300)
    same_record(both, alone)
    assert both.settings["alarms"] == alone.settings["alarms"] and es.audit(tmp_path).is_whole


def test_a_run_that_monitors_halt_is_taken_up_halted(tmp_path):
    cmdp = es.make("streaming", seed=1)
    task = told(cmdp, safe=half_as_useful(cmdp, 0.3))
    constants = es.Constants.paper("streaming").replace(C_u=20.0)
    build = lambda: es.OPSE(task, constants, es.Doubling(0.3))  # noqa: E731
    alone = es.run(cmdp, build(), 1000, monitors=es.Monitors(task))
    halted = int(np.flatnonzero(alone.plan_ids == -1)[0])
    assert alone.settings["alarms"].startswith(f"incumbent after {halted}") and set(alone.plan_ids[halted:]) == {-1}
    es.run(cmdp, build(), halted + 5, monitors=es.Monitors(task), folder=tmp_path)
    same_record(es.resume(tmp_path, 1000, cmdp=cmdp, agent=build()), alone)
    audit = es.audit(tmp_path, agent=build())
    assert audit.damage == [] and sum(json.loads(line).get("event") == "halt" for line in audit.lines) == 1


def test_opening_costs_what_came_since_the_checkpoint(tmp_path, monkeypatch):
    """Frames before the checkpoint are not read: they may even be unreadable, until somebody audits."""
    monkeypatch.setattr(session_module, "CHECKPOINT_EVERY", 0.0)
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned(), sync="plans") as session:
        for k in range(200):
            made = session.deploy(rng)
            session.learn(played(made, rng), deployment=made.id, episode_id=k)
    early = frames(tmp_path)[20]
    with (tmp_path / "journal.log").open("r+b") as file:
        file.seek(early.offset + 60)
        byte = file.read(1)
        file.seek(early.offset + 60)
        file.write(bytes([byte[0] ^ 1]))
    with es.open(tmp_path, agent=tuned()) as session:
        assert session.status().reported == 200 and "17" in session.reported_ids
        with pytest.raises(es.InvalidEpisode, match="reported before"):
            session.learn(played(session.deploy(rng), rng), episode_id=17)
    assert not es.audit(tmp_path).is_whole


def test_opening_after_a_kill_keeps_what_was_lived_through_again(tmp_path, monkeypatch):
    """A process that is killed before its first checkpoint, again and again, would take longer each time."""
    monkeypatch.setattr(open_session, "CHECKPOINT_AFTER", 30)
    rng = np.random.default_rng(0)
    seen = []
    monkeypatch.setattr(
        open_session, "catch_up", lambda *known, **more: seen.append(catch_up(*known, **more)) or seen[-1]
    )
    for life in range(3):
        session = es.open(tmp_path, agent=tuned())
        assert session.status().reported == 20 * life
        for _ in range(20):
            made = session.deploy(rng)
            session.learn(played(made, rng), deployment=made.id)
        session._journal.release()  # as a kill does
    assert [len(frames) >= 30 for frames in seen] == [False, True, True] and len(seen[2]) < len(seen[1]) + 30
    assert es.audit(tmp_path).is_whole


def test_threads_share_the_disk(tmp_path, monkeypatch):
    """Sixteen threads that wait for a slow disk do not wait for each other's turns."""
    import os

    real = os.fsync

    def slow(file):
        time.sleep(0.01)
        real(file)

    with es.open(tmp_path, agent=tuned(), false_alarm=0.0) as session:
        monkeypatch.setattr(os, "fsync", slow)
        begun = time.perf_counter()
        rngs = [np.random.default_rng(i) for i in range(16)]

        def work(rng):
            for _ in range(5):
                made = session.deploy(rng)
                session.learn(played(made, rng), deployment=made.id)

        threads = [threading.Thread(target=work, args=(rng,)) for rng in rngs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begun
        monkeypatch.setattr(os, "fsync", real)
        assert session.status().reported == 80
    assert took < 0.5 * 160 * 0.01  # one after another they would wait 160 times
    assert es.audit(tmp_path).is_whole


@pytest.mark.parametrize("name", ["finite", "ball", "contexts"])
def test_simulated_bandit_folders_are_resumed_and_audited(tmp_path, name):
    bandit = es.bandits.make(name, seed=1)
    build = lambda: es.bandits.OPLBSP(bandit.task, num_rounds=3000)  # noqa: E731
    alone = es.bandits.run(bandit, build(), 3000, seed=2)
    es.bandits.run(bandit, build(), 1300, seed=2, folder=tmp_path)
    same_record(es.resume(tmp_path, 3000, cmdp=bandit, agent=build()), alone)
    audit = es.audit(tmp_path, agent=build())
    assert audit.damage == [] and audit.episodes == 3000 and audit.recomputed == audit.num_plans


class Incumbent(es.OPSE):
    """A subclass that overrides what a compiled loop would ignore."""

    def _propose(self):
        return self._incumbent("I say so")


def test_a_subclass_does_what_it_says():
    agent = Incumbent(CHAIN.task, es.Constants.tuned(CHAIN.task))
    record = es.run(CHAIN, agent, 2000)
    assert set(record.sources) == {"safe"} and len(np.unique(record.utility_values)) == 1


def test_records_say_who_acted():
    record = es.run(CHAIN, observing(), 2000)
    names = set(record.acting)
    assert "incumbent" in names and any(name.startswith("proposal-") for name in names)
    alone = record.weights[:, 0] == 1
    assert (record.acting[alone & (record.sources == "safe")] == "incumbent").all()
    assert record.weights.shape == (2000, 2)
    plain = es.run(CHAIN, tuned(), 200)
    assert (
        plain.acting == np.where(plain.sources == "safe", "incumbent", [f"proposal-{i}" for i in plain.plan_ids])
    ).all()
    fixed = es.run(CHAIN, es.Fixed(CHAIN.task, "uniform"), 5)
    assert list(fixed.acting) == ["uniform"] * 5


def forced(monkeypatch, kind, after):
    """Monitors that raise a halting alarm after so many episodes."""
    settle = kind._settle

    def forcing(self, facts, outcome):
        found = settle(self, facts, outcome)
        if int(self.seen.counts[0]) == after:
            self.alarms.append(es.Alarm("bound", "forced", after))
            found = [*found, self.alarms[-1]]
        return found

    monkeypatch.setattr(kind, "_settle", forcing)


def full_once(monkeypatch):
    """The next write of a file fails, and no later one."""
    import os

    real = os.write

    def full(file, data):
        monkeypatch.setattr(os, "write", real)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)


def test_a_halt_that_is_not_kept_says_so_and_is_obeyed(tmp_path, monkeypatch):
    with es.open(tmp_path, agent=tuned()) as session:
        session.plan()
        full_once(monkeypatch)
        with pytest.raises(es.NotKept, match="No space left"):
            session.halt("the pump is broken")
        assert session.plan().source == "safe" and session.book.halted == "the pump is broken"
        with pytest.raises(es.NotKept, match="halt it again"):
            session.halt("still")
    with es.open(tmp_path, agent=tuned()) as session:  # which is why it had to be said
        assert session.status().stopped == ""
    assert es.audit(tmp_path).is_whole


@pytest.mark.parametrize("what", ["resume_exploring", "abandon", "deploy"])
def test_a_disk_that_is_full_once_leaves_a_folder_that_opens(tmp_path, monkeypatch, what):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as session:
        session.deploy(rng)
        if what == "resume_exploring":
            session.halt("to see")
        full_once(monkeypatch)
        if what == "deploy":
            assert session.deploy(rng).plan.reason.startswith("the journal cannot be written")
        else:
            with pytest.raises(es.NotKept):
                session.resume_exploring("seen") if what == "resume_exploring" else session.abandon(0)
        assert session.plan().id == -1
    with es.open(tmp_path, agent=tuned()) as session:
        assert (session.status().stopped == "halted: to see") == (what == "resume_exploring")
        assert session.status().num_missing >= 1
    assert es.audit(tmp_path).is_whole


def test_an_interruption_after_an_alarm_leaves_nothing_exploring(tmp_path, monkeypatch):
    forced(monkeypatch, es.Monitors, 3)
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as session:
        monkeypatch.setattr(session, "_fault", lambda reason, **said: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            for _ in range(3):
                made = session.deploy(rng)
                session.learn(played(made, rng), deployment=made.id)
        assert session.plan().id == -1 and session.book.halted == "forced"
    with es.open(tmp_path, agent=tuned()) as session:
        assert session.status().stopped == "halted: forced"


def test_a_halt_by_a_person_covers_alarms_until_a_person_ends_it(tmp_path, monkeypatch):
    forced(monkeypatch, es.Monitors, 3)
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as session:
        session.halt("maintenance")
        for _ in range(4):
            made = session.deploy(rng)
            session.learn(played(made, rng), deployment=made.id)
        session.resume_exploring("done")
        assert session.plan().id >= 0
    for path in tmp_path.glob("checkpoint*"):
        path.unlink()
    with es.open(tmp_path, agent=tuned()) as session:
        assert session.status().stopped == ""


@pytest.mark.parametrize("problem", ["opse", "observation", "contexts"])
@pytest.mark.parametrize("first", [29, 30, 31, 60])
def test_a_halted_run_goes_on_from_checkpoints_with_the_same_record(tmp_path, monkeypatch, problem, first):
    from episafe.runs import kept_run

    monkeypatch.setattr(kept_run, "SYNC_EVERY", 0.0)
    monkeypatch.setattr(kept_run, "CHECKPOINT_EVERY", 0.0)
    if problem == "contexts":
        world = es.bandits.make("contexts", seed=1)
        build, run, kind = lambda: es.bandits.OPLBSP(world.task, radius=0.3), es.bandits.run, es.bandits.Monitors
    else:
        world, build, run, kind = CHAIN, tuned if problem == "opse" else observing, es.run, es.Monitors
    forced(monkeypatch, kind, 30)
    agent = build()
    whole = run(world, agent, 150, seed=1, monitors=kind(agent.task))
    agent = build()
    run(world, agent, first, seed=1, monitors=kind(agent.task), folder=tmp_path)
    for length in (90, 150):
        found = es.resume(tmp_path, length, cmdp=world, agent=build())
    same_record(found, whole)
    assert set(whole.plan_ids[30:]) == {-1} and es.audit(tmp_path, agent=build()).damage == []


class Lasting(es.certify.Observation):
    """A certifier whose mixtures stay in force for some episodes."""

    def begin(self, task):
        made = super().begin(task)
        made.is_due = lambda: made.num_episodes % 10 == 0
        return made


def test_a_mixture_that_lasts_over_a_batch_keeps_its_weights(tmp_path):
    build = lambda: es.OPSE(CHAIN.task, es.Constants.proposing(), certifier=Lasting())  # noqa: E731
    whole = es.run(CHAIN, build(), 180, seed=1, monitors=es.Monitors(CHAIN.task))
    es.run(CHAIN, build(), 15, seed=1, monitors=es.Monitors(CHAIN.task), folder=tmp_path)
    for length in (35, 180):
        found = es.resume(tmp_path, length, cmdp=CHAIN, agent=build())
    same_record(found, whole)


def test_mistakes_of_a_caller_break_nothing(tmp_path):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=observing()) as session:
        made = session.deploy(rng)
        for wrong in ("x", 1.5, -1, [0]):
            with pytest.raises(es.InvalidEpisode):
                session.plan(round=wrong)
            with pytest.raises(es.InvalidEpisode):
                session.learn(played(made, rng), deployment=wrong)
        with pytest.raises(TypeError, match="numpy Generator"):
            session.deploy(0)
        session.learn(played(made, rng), deployment=np.int64(made.id))
        assert session.status().stopped == "" and session.status().num_missing == 0


def test_reports_by_plan_leave_deployments_with_a_coin_to_their_ids():
    rng = np.random.default_rng(0)
    with es.open(None, agent=tuned()) as session:
        mine, other = session.deploy(rng), session.plan()
        session.learn(played(mine, rng), plan_id=other.id)
        session.learn(played(mine, rng), deployment=mine.id)
        assert session.status().num_missing == 0


def test_monitors_that_have_raised_an_alarm_begin_no_folder(tmp_path, monkeypatch):
    forced(monkeypatch, es.Monitors, 3)
    agent = tuned()
    monitors = es.Monitors(agent.task)
    es.run(CHAIN, agent, 10, monitors=monitors)
    with pytest.raises(ValueError, match="give new ones"):
        es.run(CHAIN, es.OPSE(agent.task, es.Constants.tuned(agent.task)), 10, monitors=monitors, folder=tmp_path)


def test_an_audit_knows_what_a_checkpoint_saw_and_every_column_of_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "CHECKPOINT_EVERY", 0.0)
    rng = np.random.default_rng(0)
    with es.open(tmp_path / "live", agent=tuned()) as session:
        for _ in range(6):
            made = session.deploy(rng)
            session.learn(played(made, rng), deployment=made.id)
    reports = [frame for frame in frames(tmp_path / "live") if frame.kind == Kind.REPORT]
    with (tmp_path / "live" / "journal.log").open("r+b") as file:
        file.truncate(reports[-2].offset)
    assert any("checkpoint" in damage for damage in es.audit(tmp_path / "live").damage)
    es.run(CHAIN, observing(), 300, folder=tmp_path / "run")
    record = es.Record.load(tmp_path / "run")
    for name in ("components", "weights", "acting_numbers"):
        column = getattr(record, name).copy()
        column[7] = 1 - column[7]
        dataclasses.replace(record, **{name: column}).save(tmp_path / "run")
        assert any(name in damage for damage in es.audit(tmp_path / "run").damage)
    record.save(tmp_path / "run")
    assert es.audit(tmp_path / "run").is_whole
