"""Journals of all kinds of frames, and every single frame of them removed, repeated or swapped."""

import shutil
from collections import Counter
from functools import partial
from itertools import combinations

import numpy as np

import episafe as es
from episafe.deployment.journal_folder import read_head
from episafe.storage.frames import read
from episafe.storage.journal_files import MAGIC, encode
from test_monitors import half_as_useful, told

CHAIN = es.make("streaming", seed=3)
SEEN = ("refused", "told", "found by the audit", "harmless", "missing again")
LIED_TO = es.make("streaming", seed=1)
TOLD = told(LIED_TO, safe=half_as_useful(LIED_TO, 0.3))  # whose incumbent is worse than stated: an alarm comes


def tuned():
    return es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task))


def lied_to():
    return es.OPSE(TOLD, es.Constants.paper("streaming").replace(C_u=20.0), es.Doubling(0.3))


def played(policy, rng):
    """An episode of a policy."""
    states, actions = [CHAIN.task.initial_state], []
    for h in range(CHAIN.task.horizon):
        actions.append(policy.act(h, states[-1], rng))
        states.append(int(rng.choice(CHAIN.P.shape[-1], p=CHAIN.P[h, states[-1], actions[-1]])))
    return es.Episode(states, actions)


def frames_of(folder):
    return list(read(folder / "journal.log", read_head(folder)["genesis"]))


def live_journal(folder, closed=True):
    """A live folder with every kind of frame, halted at its end; without `closed` as a killed process leaves it."""
    rng = np.random.default_rng(0)
    with es.open(folder, agent=tuned()) as session:
        made = [session.deploy(rng) for _ in range(3)]
        session.learn(played(made[1].policy, rng), deployment=1, episode_id="one")
        session.learn(played(made[0].policy, rng), deployment=0, episode_id="zero")
        session.abandon(2)
        session.deploy(rng)
        session.halt("to see")
        session.resume_exploring("seen")
        session.learn(played(session.deploy(rng).policy, rng))  # of no plan, as from elsewhere
    _begin_a_write(folder)
    session = es.open(folder, agent=tuned())
    session.learn(played(session.deploy(rng).policy, rng), plan_id=1)
    session.halt("the pump is broken")
    session.learn(played(session.deploy(rng).policy, rng), plan_id=-1)
    if not closed:
        shutil.copytree(folder, killed := folder.with_name(f"{folder.name}-killed"))
    session.close()
    if not closed:
        shutil.rmtree(folder)
        killed.rename(folder)


def released():
    """A staged release: bets are won so fast that two episodes prove a candidate."""
    return es.Rollout(0.1, 0.85, {name: [name] for name in ("v2", "v3", "v4")}, ["now"], 0.5, utility_max=1.0)


def life_journal(folder, closed=True):
    """A live folder with what people do in it: candidates, a promotion, a change, a withdrawal, a repair; halted."""
    rng, agent = np.random.default_rng(0), es.Rollout(0.1, 0.85, {"v2": ["v2"]}, ["now"], 0.5, utility_max=1.0)
    with es.open(folder, agent=agent) as session:
        _tried(session, rng, 4)
        session.promote("v2", "the release of May")
        session.add_candidate("v3", ["v3"])
        _tried(session, rng, 1)
        session.change("stricter", threshold=0.2)
        session.withdraw("v3", "recalled")
        session.abandon(session.deploy(rng).id)
        session.halt("to see")
        _tried(session, rng, 1)  # what was promoted acts
        session.resume_exploring("seen")
        session.promote("incumbent", "back again")
    last = frames_of(folder)[-1]
    with (folder / "journal.log").open("r+b") as file:
        file.seek(last.offset + 30)
        file.write(b"?")
    es.repair(folder)
    session = es.open(folder, agent=released())  # v4 is new
    session.resume_exploring("looked at")
    _tried(session, rng, 2)
    session.halt("the pump is broken")
    if not closed:
        shutil.copytree(folder, killed := folder.with_name(f"{folder.name}-killed"))
    session.close()
    if not closed:
        shutil.rmtree(folder)
        killed.rename(folder)


def _tried(session, rng, num):
    for _ in range(num):
        session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)


def lived(folder):
    """Where such a folder stands: also what is promoted, what is on trial, and of which threshold."""
    with es.open(folder, agent=released()) as session:
        seen, agent = session.status(), session.agent
        counts = (seen.started, seen.reported, seen.missing, seen.abandoned, seen.unannounced)
        return seen.stopped, seen.faults, (*counts, seen.promoted, list(agent.bounds()), agent.task.threshold)


def run_journal(folder):
    """A simulated run in several batches, made longer twice, halted by its monitors."""
    es.run(LIED_TO, lied_to(), 20, folder=folder, monitors=es.Monitors(TOLD))
    es.resume(folder, 40, cmdp=LIED_TO, agent=lied_to())
    _begin_a_write(folder)
    es.resume(folder, 60, cmdp=LIED_TO, agent=lied_to())


def _begin_a_write(folder):
    """What a write that never ended leaves."""
    with (folder / "journal.log").open("ab") as file:
        file.write(b"eF2")


def changes(count):
    """Orders of so many frames, each with one frame removed or repeated, or two swapped; and what was done."""
    whole = list(range(count))
    for i in whole:
        yield f"{i} removed", whole[:i] + whole[i + 1 :]
        yield f"{i} repeated", whole[: i + 1] + whole[i:]
    for i, j in combinations(whole, 2):
        swapped = list(whole)
        swapped[i], swapped[j] = j, i
        yield f"{i} and {j} swapped", swapped


def as_they_are(folder, order):
    """The frames' own bytes in another order."""
    data, frames = (folder / "journal.log").read_bytes(), frames_of(folder)
    ends = [frame.offset for frame in frames[1:]] + [len(data)]
    return MAGIC + b"".join(data[frames[i].offset : ends[i]] for i in order)


def chained_anew(folder, order):
    """The frames in another order, with new numbers and hashes, as a forger would write them."""
    frames, parts, last = frames_of(folder), [MAGIC], bytes.fromhex(read_head(folder)["genesis"])
    for number, i in enumerate(order):
        data, last = encode(number, frames[i].kind, last, frames[i].notes, frames[i].arrays)
        parts.append(data)
    return b"".join(parts)


def opened(folder):
    """Where a live folder stands."""
    with es.open(folder, agent=tuned()) as session:
        seen = session.status()
        return seen.stopped, seen.faults, (seen.started, seen.reported, seen.missing, seen.abandoned, seen.unannounced)


def resumed(folder):
    """Where a run stands, made a little longer."""
    record = es.resume(folder, 65, cmdp=LIED_TO, agent=lied_to())
    halted = "halted: " if record.plan_ids[-1] == -1 else ""
    return halted, es.audit(folder, agent=lied_to()).faults, record.utility_bounds.tobytes()


JOURNALS = {
    "closed": (live_journal, opened, tuned),
    "killed": (partial(live_journal, closed=False), opened, tuned),
    "life": (life_journal, lived, released),
    "killed life": (partial(life_journal, closed=False), lived, released),
    "run": (run_journal, resumed, lied_to),
}  # how it is made, where it stands when it is opened, and how its agent is built


def _bytes_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def judged(folder, look, build, expected):
    """What came of a fault: one of SEEN, or what must not come of it."""
    before = _bytes_of(folder)
    audit = es.audit(folder, agent=build())
    try:
        stopped, faults, counts = look(folder)
    except es.DamagedFile:
        same = _bytes_of(folder) == before
        return ("refused" if same else "refused, and changed") if not audit.is_whole else "refused, and no damage found"
    if not stopped.startswith("halted: "):
        return "explores"
    if not audit.is_whole:
        return "found by the audit"
    if len(faults) > len(expected[1]):
        return "told"
    if (faults, counts) == expected[1:]:
        return "harmless"
    return "missing again" if _is_missing_again(counts, expected[2]) else "unseen"


def _is_missing_again(counts, expected):
    """Whether all that differs is that the last report is gone, and its deployment shown as missing."""
    started, reported, missing, *others = counts
    shown = sum(missing.values()) - sum(expected[2].values())
    return (started, reported, shown, *others) == (expected[0], expected[1] - 1, 1, *expected[3:])


def tried(make, look, build, write, work, every=1):
    """How often which came of each single frame removed, repeated or swapped; and what was done where it must not."""
    whole = work / "whole"
    make(whole)
    shutil.copytree(whole, work / "seen")
    expected, found, wrong = look(work / "seen"), Counter(), []
    for what, order in list(changes(len(frames_of(whole))))[::every]:
        shutil.copytree(whole, folder := work / "one")
        (folder / "journal.log").write_bytes(write(whole, order))
        verdict = judged(folder, look, build, expected)
        shutil.rmtree(folder)
        found[verdict] += 1
        if verdict not in SEEN:
            wrong.append((what, verdict))
    return found, wrong
