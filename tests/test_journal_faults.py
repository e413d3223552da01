"""What ordinary life does to a journal: frames lost or moved, files changed while they are open, interruptions."""

import errno
import fcntl
import os
import shutil
from functools import partial

import numpy as np
import pytest

import episafe as es
import frame_faults
import session_faults
from episafe.deployment.journal_folder import read_head
from episafe.runs import kept_run
from episafe.storage import journal_files
from episafe.storage.journal_files import HASH, MAGIC, Log, encode
from frame_faults import CHAIN, frames_of, played, tuned
from test_journal import observing, same_record


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


def used(folder, build=tuned, num_episodes=3):
    """A session that has deployed and learned, still open."""
    session, rng = es.open(folder, agent=build()), np.random.default_rng(0)
    for k in range(num_episodes):
        made = session.deploy(rng)
        session.learn(played(made.policy, rng), deployment=made.id, episode_id=str(k))
    return session


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- frames -----------------------------------------------------------------------------------------------------

JOURNALS = frame_faults.JOURNALS
EVERY = {"run": 3, "life": 29, "killed life": 29}  # of all changes; make faults tries each of them


@pytest.mark.parametrize("write", [frame_faults.as_they_are, frame_faults.chained_anew])
@pytest.mark.parametrize("journal", list(JOURNALS))
def test_no_frame_can_be_removed_repeated_or_swapped_unseen(tmp_path, journal, write):
    found, wrong = frame_faults.tried(*JOURNALS[journal], write, tmp_path, EVERY.get(journal, 9))
    assert wrong == [] and found["refused"] > 0


@pytest.mark.parametrize("journal", list(JOURNALS))
@pytest.mark.parametrize("name", ["journal.log", "audit.jsonl"])
def test_a_byte_cut_off_the_end_never_ends_a_halt(tmp_path, journal, name):
    make, look, build = JOURNALS[journal]
    make(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "seen")
    expected = look(tmp_path / "seen")
    for cut in (1, 2, 40, 100):
        shutil.copytree(tmp_path / "whole", folder := tmp_path / f"{cut}")
        (folder / name).write_bytes((folder / name).read_bytes()[:-cut])
        assert frame_faults.judged(folder, look, build, expected) in ("refused", "told", "found by the audit")


def test_a_foreign_kind_of_frame_is_refused(tmp_path):
    used(tmp_path).close()
    frames, last = frames_of(tmp_path), (tmp_path / "journal.log").read_bytes()[-HASH:]
    log = tmp_path / "journal.log"
    for kind, notes in ((1, {"genesis": read_head(tmp_path)["genesis"]}), (13, {}), (99, {})):
        whole = log.read_bytes()
        log.write_bytes(whole + encode(len(frames), kind, last, notes, None)[0])
        before = contents(tmp_path)
        with pytest.raises(es.DamagedFile, match=r"cannot have happened|a later version of episafe wrote"):
            es.open(tmp_path, agent=tuned())
        assert contents(tmp_path) == before and not es.audit(tmp_path).is_whole
        log.write_bytes(whole)


def test_what_is_removed_is_seen_by_an_audit_that_cannot_build_the_agent(tmp_path, monkeypatch):
    frame_faults.live_journal(tmp_path / "whole")
    monkeypatch.setattr("episafe.deployment.audit._agent", lambda *_: None)
    kinds = [frame.kind for frame in frames_of(tmp_path / "whole")]
    assert es.audit(tmp_path / "whole").is_whole
    for what, order in list(frame_faults.changes(len(kinds)))[: 2 * len(kinds)]:
        shutil.copytree(tmp_path / "whole", folder := tmp_path / what)
        (folder / "journal.log").write_bytes(frame_faults.chained_anew(tmp_path / "whole", order))
        assert not es.audit(folder).is_whole, what


# ---- files that are missing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["journal.log", "audit.jsonl"])
@pytest.mark.parametrize("how", ["deleted", "emptied"])
@pytest.mark.parametrize("kind", ["live", "run"])
def test_a_missing_or_empty_file_is_refused_and_nothing_is_made(tmp_path, name, how, kind):
    used(tmp_path).close() if kind == "live" else es.run(CHAIN, tuned(), 20, folder=tmp_path)
    (tmp_path / name).unlink() if how == "deleted" else (tmp_path / name).write_bytes(b"")
    before = contents(tmp_path)
    if (name, how) == ("audit.jsonl", "emptied"):  # as a loss of power may leave it: the log has all of it
        es.open(tmp_path, agent=tuned()).close() if kind == "live" else es.resume(tmp_path, 30)
        assert any("completed the audit trail" in fault for fault in es.audit(tmp_path).faults)
        return
    with pytest.raises(es.DamagedFile, match=name):
        es.open(tmp_path, agent=tuned()) if kind == "live" else es.resume(tmp_path, 30)
    assert contents(tmp_path) == before


def test_a_journal_that_was_only_half_begun_is_begun_again(tmp_path):
    used(tmp_path / "a").close()
    first = (tmp_path / "a" / "journal.log").read_bytes()[: frames_of(tmp_path / "a")[1].offset]
    for n, data in enumerate((first, first[:20], b"")):
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "journal.log").write_bytes(data)
        (tmp_path / str(n) / "audit.jsonl").write_bytes(b"")
        used(tmp_path / str(n)).close()
        assert es.audit(tmp_path / str(n)).is_whole
    assert read_head(tmp_path / "0")["genesis"] != read_head(tmp_path / "1")["genesis"]


# ---- files that somebody changes while they are open ------------------------------------------------------------


@pytest.mark.parametrize("act", ["deploy", "learn", "abandon", "halt"])
@pytest.mark.parametrize(("name", "change"), session_faults.CHANGES)
def test_a_file_that_changes_while_it_is_open_is_seen_at_the_next_write(tmp_path, name, change, act):
    assert session_faults.is_seen(tmp_path / "shop", name, change, act)


def test_a_log_cut_at_a_frame_while_it_is_open_is_refused_afterwards(tmp_path):
    """Which the log itself cannot show: the trail does. A copy from before has all that was acknowledged."""
    session = used(tmp_path / "shop")
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    num_frames = len(frames_of(tmp_path / "copy"))
    session_faults.cut_at_a_frame(tmp_path / "shop" / "journal.log")
    session.plan()
    session.close()
    with pytest.raises(es.DamagedFile, match=r"journal\.log"):
        es.open(tmp_path / "shop", agent=tuned())
    with es.open(tmp_path / "copy", agent=tuned()) as again:
        assert again.reported_ids == {"0", "1", "2"}
    assert es.repair(tmp_path / "shop").frames == num_frames - 1


def test_two_writers_on_a_file_system_without_locks_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_files, "lock", lambda *_: None)
    rng = np.random.default_rng(0)
    first, second = used(tmp_path), es.open(tmp_path, agent=tuned())
    made = first.deploy(rng)
    other = second.deploy(rng)
    assert other.id == -1 and "somebody else" in other.plan.reason
    first.learn(played(made.policy, rng), deployment=made.id, episode_id="mine")
    with pytest.raises(es.NotKept):
        second.learn(played(other.policy, rng), episode_id="theirs")
    second.close()
    first.close()
    with es.open(tmp_path, agent=tuned()) as session:
        assert session.reported_ids == {"0", "1", "2", "mine"} and session.status().num_missing == 0
    assert es.audit(tmp_path).is_whole


def test_a_file_system_that_has_no_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="cannot be locked") as error:
        es.open(tmp_path, agent=tuned())
    assert not isinstance(error.value, es.InUse)


def test_a_failed_fsync_is_never_believed_later(tmp_path, monkeypatch):
    path, calls = tmp_path / "log", []
    path.write_bytes(MAGIC + encode(0, 1, bytes(32), {}, None)[0])
    log = Log(path)
    log.begin((1, path.stat().st_size, "00" * 32), 0)
    log.cut()
    kept = log.append_all([(4, {}, None)])
    log.sync(kept)
    lost = log.append_all([(4, {}, None)])

    def fail(file):
        calls.append(file)
        if len(calls) == 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            log.sync(lost)
    log.sync(kept)
    with pytest.raises(OSError, match="could not be brought to the disk"):
        log.append_all([(4, {}, None)])
    assert len(calls) == 1  # nobody asks again
    log.close()


def test_after_a_failed_fsync_only_the_incumbent_acts(tmp_path, monkeypatch):
    rng, usual = np.random.default_rng(0), os.fsync
    session = used(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    made = session.deploy(rng)
    monkeypatch.setattr(os, "fsync", usual)
    assert made.id == -1 and "Input/output error" in made.plan.reason
    with pytest.raises(es.NotKept):
        session.learn(played(made.policy, rng), episode_id="late")
    session.close()
    with es.open(tmp_path, agent=tuned()) as again:
        assert again.reported_ids == {"0", "1", "2"}


# ---- interruptions, and calls of the system that fail -----------------------------------------------------------

ACTS = ("halt", "resume_exploring", "promote", "withdraw", "change", "add_candidate", "distrust", "close")
FAULTS = {
    "interrupted": (session_faults.interrupted, 211),
    "interrupted in an act": (partial(session_faults.interrupted, functions=ACTS), 2),
    "one call fails": (partial(session_faults.failing, once=True), 13),
    "all calls fail from there on": (partial(session_faults.failing, once=False), 13),
}


@pytest.mark.parametrize("session", session_faults.SESSIONS)
@pytest.mark.parametrize("name", list(FAULTS))
def test_nothing_acknowledged_is_lost_and_nothing_counted_twice(tmp_path, name, session):
    """Every so many places here, all of them in `make faults`."""
    fault, every = FAULTS[name]
    wrong, places = session_faults.tried(fault, 0, tmp_path / "0", session)
    assert wrong == "" and places > 20
    for at in range(1, places + 1, every):
        assert session_faults.tried(fault, at, tmp_path / f"{at}", session)[0] == "", at


# ---- checkpoints ------------------------------------------------------------------------------------------------


def checkpointed(session):
    """The bytes of a checkpoint that was made just now."""
    session._journal.checkpoint(session.parts)
    paths = session._journal.folder.glob("checkpoint-*")
    return max(paths, key=lambda path: path.stat().st_mtime_ns).read_bytes()


def put(folder, data):
    for path in folder.glob("checkpoint-*"):
        path.unlink()
    (folder / "checkpoint-0.npz").write_bytes(data)


def after(folder, num_episodes=30):
    """What is issued next: numbers of plans and deployments, and candidates so far."""
    rng, found = np.random.default_rng(9), []
    with es.open(folder, agent=observing()) as session:
        for _ in range(num_episodes):
            made = session.deploy(rng)
            found.append((made.id, made.plan.id, getattr(made.plan.policy, "names", ())))
            session.learn(played(made.policy, rng), deployment=made.id)
        return found, session.agent.certificate.ledger.num_candidates, session.status().faults


def test_a_rewound_or_copied_checkpoint_issues_nothing_twice(tmp_path):
    """The log is the truth: numbers go on from what was issued in this folder, and so do the shares of δ."""
    folder, other = tmp_path / "mine", tmp_path / "other"
    session = used(folder, observing, 70)
    older = checkpointed(session)
    session.close()
    shutil.copytree(folder, copy := tmp_path / "copy")
    for place, more in ((folder, 130), (copy, 65)):
        with es.open(place, agent=observing()) as session:
            rng = np.random.default_rng(more)
            for _ in range(more):
                made = session.deploy(rng)
                session.learn(played(made.policy, rng), deployment=made.id)
            behind = checkpointed(session)  # of the copy, last
    session = used(other, observing, 40)
    foreign = checkpointed(session)
    session.close()
    shutil.copytree(folder, tmp_path / "plain")
    expected = after(tmp_path / "plain")
    assert expected[0][0][0] == 200 and expected[1] >= 3 and expected[2] == []
    for name, data, told in (("older", older, ""), ("copy's", behind, "copy"), ("foreign", foreign, "another journal")):
        shutil.copytree(folder, here := tmp_path / name)
        put(here, data)
        issued, candidates, faults = after(here)
        assert (issued, candidates) == expected[:2]
        assert len(faults) == (told != "") and told in "".join(faults)
        assert es.audit(here).is_whole


def test_a_checkpoint_of_a_copy_that_went_on_further_is_refused_and_nothing_changed(tmp_path):
    session = used(tmp_path / "mine", observing, 10)
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    session.close()
    with es.open(tmp_path / "copy", agent=observing()) as session:
        rng = np.random.default_rng(1)
        for _ in range(20):
            session.deploy(rng)
        ahead = checkpointed(session)
    put(tmp_path / "mine", ahead)
    before = contents(tmp_path / "mine")
    with pytest.raises(es.DamagedFile, match="of a copy"):
        es.open(tmp_path / "mine", agent=observing())
    assert contents(tmp_path / "mine") == before


def test_checkpoints_of_other_runs_change_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_run, "CHECKPOINT_EVERY", 0.0)
    expected = es.run(CHAIN, observing(), 200, seed=1)
    for name, seed, length in (("mine", 1, 120), ("same", 1, 60), ("other", 2, 60)):
        es.run(CHAIN, observing(), length, seed=seed, folder=tmp_path / name)
    for name in ("same", "other"):
        shutil.copytree(tmp_path / "mine", folder := tmp_path / f"with the checkpoint of {name}")
        put(folder, (tmp_path / name / "checkpoint-0.npz").read_bytes())
        same_record(es.resume(folder, 200), expected)
        assert any("of another journal" in fault for fault in es.audit(folder).faults)


def test_an_agent_that_was_rewound_under_its_session_decides_no_more(tmp_path):
    rng = np.random.default_rng(0)
    session = used(tmp_path, observing, 10)
    state = session.agent.state()
    made = session.deploy(rng)
    session.agent.restore(state)
    session.learn(played(made.policy, rng))
    again = session.deploy(rng)
    assert again.plan.source == "safe" and "outside of its session" in again.plan.reason
    session.close()


def test_what_the_incumbent_did_for_want_of_a_disk_is_no_report_of_who_was_drawn(tmp_path, monkeypatch):
    """The deployment may be on the disk all the same: opened again, a report by its name would count for the other."""
    rng, usual = np.random.default_rng(0), os.fsync
    session = es.open(tmp_path, agent=es.Rollout(0.5, 0.3, {"v2": "v2"}, "v1", utility_max=1.0))
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    made = session.deploy(rng, episode_id="a")
    monkeypatch.setattr(os, "fsync", usual)
    assert made.id == -1 and made.acting == "incumbent"
    with pytest.raises(es.InvalidEpisode, match="report nothing"):  # and not: report this again
        session.learn(es.Episode.of_totals(1.0), episode_id="a")
