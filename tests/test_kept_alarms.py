"""An alarm and what follows from it: whatever part of it a kill or a loss of power leaves, the incumbent acts."""

import os
import shutil

import numpy as np
import pytest

import episafe as es
from episafe.deployment.journal_folder import LOG, read_head
from episafe.errors import NotKept
from episafe.storage.audit_trail import TRAIL
from episafe.storage.frames import Reader
from test_journal_faults import _quick_disk  # noqa: F401
from test_life import live, promoted_session, rollout, totals


def prefixes(folder, num_before, trail_before):
    """The folder as a loss of power may leave it: cut after each of its frames from `num_before` on, the trail as it
    was before them."""
    for frame in list(Reader(folder / LOG, read_head(folder)["genesis"]))[num_before:]:
        left = folder.with_name(f"{folder.name}-{frame.number}")
        shutil.copytree(folder, left)
        os.truncate(left / LOG, frame.offset)
        (left / TRAIL).write_bytes(trail_before)
        yield left
    yield folder


def after(session, folder, act):
    """Act, and leave the session as a kill does; what `prefixes` needs."""
    session._journal.sync_trail()
    num_before, trail_before = session._journal.log.position[0], (folder / TRAIL).read_bytes()
    act(session)
    session._journal.release()
    return prefixes(folder, num_before, trail_before)


def refused(session):
    """A report outside its range: no frame has it, so that its alarm cannot be computed again."""
    made = session.deploy(np.random.default_rng(1))
    with pytest.raises(es.InvalidEpisode):
        session.learn(totals(7.0), deployment=made.id)


@pytest.mark.parametrize("by_a_person", [False, True], ids=["exploring", "halted"])
def test_the_alarm_of_a_refused_report_is_never_without_what_follows_from_it(tmp_path, by_a_person):
    session = promoted_session(tmp_path / "kept")
    if by_a_person:
        session.halt("a person")
    heeded = []
    for left in after(session, tmp_path / "kept", refused):
        with es.open(left, agent=rollout("v2")) as again:
            is_known = any("alarm" in fault for fault in again.status().faults)
            heeded.append(is_known)
            if is_known:
                assert again.stopped and again.agent.promoted == "incumbent"
                assert again.deploy(np.random.default_rng(1)).acting == "incumbent"
                with pytest.raises(ValueError, match="after an alarm"):
                    again.promote("v2", "the nightly job")
        assert es.audit(left, agent=rollout("v2")).is_whole
    assert heeded.count(True) == (2 if by_a_person else 3) and not heeded[0]


def test_an_alarm_and_what_follows_from_it_are_one_write(tmp_path, monkeypatch):
    session = promoted_session(tmp_path)
    made, write, log = session.deploy(np.random.default_rng(1)), os.write, tmp_path / LOG
    sizes = []
    monkeypatch.setattr(os, "write", lambda file, data: (write(file, data), sizes.append(log.stat().st_size))[0])
    with pytest.raises(es.InvalidEpisode):
        session.learn(totals(7.0), deployment=made.id)
    assert session.agent.promoted == "incumbent" and len(set(sizes)) == 1


def test_a_new_incumbent_does_not_overrule_an_alarm(tmp_path):
    session = promoted_session(tmp_path / "kept")
    *_, left, _, _ = after(session, tmp_path / "kept", refused)  # it has the alarm, and nothing that follows
    other = es.Rollout(0.5, 0.4, {"v2": ["v2"]}, ["other"], utility_max=1.0)
    with es.open(left, agent=other, incumbent_version="2", new_incumbent="somebody") as again:
        assert again.status().faults and again.stopped


def test_a_report_that_voids_all_proofs_halts_also_where_nobody_watches(tmp_path):
    build = lambda: es.Rollout(0.5, 0.4, {"v2": ["v2"]}, ["now"])  # noqa: E731  # no largest utility, so no monitors
    session = es.open(tmp_path / "kept", agent=build())
    assert session.monitors is None
    live(session, 30)

    def report(session):
        session.learn(totals(-3.0), deployment=session.deploy(np.random.default_rng(1)).id)

    stopped = []
    for left in after(session, tmp_path / "kept", report):
        with es.open(left, agent=build()) as again:
            stopped.append("below the least" in again.stopped)
            assert stopped[-1] == bool(again.agent.void)
    assert stopped[-3:] == [True, True, True]  # with its report, the alarm, the halt


def test_a_refused_report_is_an_alarm_also_while_a_person_has_halted_it(tmp_path):
    with promoted_session(tmp_path) as session:
        session.promote("incumbent", "to be sure")
        session.halt("a person")
        refused(session)
        refused(session)  # nobody need be told twice
        assert sum("alarm" in fault for fault in session.status().faults) == 1
        with pytest.raises(ValueError, match="after an alarm"):
            session.promote("v2", "the nightly job")


def test_an_alarm_that_could_not_be_kept_is_to_be_reported_again(tmp_path, monkeypatch):
    session, rng = es.open(tmp_path, agent=rollout("v2")), np.random.default_rng(0)
    made, write = session.deploy(rng), os.write
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(NotKept, match="report this again"):
        session.learn(totals(7.0), deployment=made.id)
    monkeypatch.setattr(os, "write", write)
    assert session.deploy(rng).acting == "incumbent"
    with es.open(tmp_path, agent=rollout("v2")) as again:
        with pytest.raises(es.InvalidEpisode):
            again.learn(totals(7.0), deployment=made.id)
        assert again.stopped
