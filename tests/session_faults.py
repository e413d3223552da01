"""A short session in which the n-th line is interrupted, or the n-th call of the system fails; and what must hold then.

Whoever uses the session notes what it was told. Afterwards nothing of that may be lost, and nothing be counted twice.
"""

import ast
import errno
import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

import episafe as es
from frame_faults import frames_of, played, released, tuned

NAMES = ("first", "second", "third", "fourth")
CALLS = ("open", "write", "fsync", "ftruncate", "close", "replace", "stat", "fstat", "pread", "chmod")
ROOMS = tuple(str(Path(es.__file__).parent / room) for room in ("deployment", "storage"))


@dataclass
class Told:
    """What somebody was told: reports and deployments that were taken, and the last word on exploring.

    Attributes:
        halted: whether that was a halt; None where it was not acknowledged.
        explored: whether something else than the incumbent was deployed after a halt.
    """

    names: set = field(default_factory=set)
    deployments: list = field(default_factory=list)
    abandoned: int = 0
    halted: bool | None = False
    explored: bool = False


def use(folder, told, held):
    """Open, deploy, report, abandon, halt, go on, close. What fails is not acknowledged, and the next thing is done."""
    rng = np.random.default_rng(0)

    def attempt(call):
        try:
            return call()
        except (OSError, KeyboardInterrupt, es.InvalidEpisode, ValueError):
            return None

    def deploy():
        made = attempt(lambda: session.deploy(rng))
        if made is None:
            return None
        told.explored |= told.halted is True and made.plan.source != "safe"
        told.deployments += [made.id] * (made.id >= 0)
        return made

    def report(name, made):
        if made is not None and made.id >= 0:
            seen = played(made.policy, rng)
            if attempt(lambda: session.learn(seen, deployment=made.id, episode_id=name) or True):
                told.names.add(name)

    def decide(halted, call):
        told.halted = None
        told.halted = halted if attempt(lambda: call() or True) else None

    session = attempt(lambda: es.open(folder, agent=tuned()))
    if session is None:
        return
    held.append(session)
    made = [deploy() for _ in range(3)]
    report("first", made[0])
    report("second", made[1])
    if made[2] is not None and attempt(lambda: session.abandon(made[2].id) or True):
        told.abandoned += 1
    if not session.broken:
        attempt(lambda: session._journal.checkpoint(session.parts))
    decide(True, lambda: session.halt("the pump is broken"))
    report("third", deploy())
    decide(False, lambda: session.resume_exploring("mended"))
    report("fourth", deploy())
    attempt(session.close)


def wrong_after(folder, told):
    """What is wrong, in words, once the fault is over and the folder is opened again; "" if nothing is."""
    rng = np.random.default_rng(1)
    with es.open(folder, agent=tuned()) as session:
        seen = session.status()
        if told.explored:
            return "explored after a halt"
        if not told.names <= session.reported_ids:
            return f"lost {told.names - session.reported_ids}"
        if len(set(told.deployments)) < len(told.deployments) or max(told.deployments, default=-1) >= seen.started:
            return f"deployments {told.deployments} of {seen.started}"
        if told.abandoned > seen.abandoned:
            return "an abandoned deployment is back"
        if told.halted is not None and bool(seen.stopped) != told.halted:
            return f"told halted {told.halted}, and it is {seen.stopped!r}"
        for name in NAMES:  # whoever was not told reports again
            if name not in told.names:
                try:
                    session.learn(played(CHAIN_SAFE, rng), episode_id=name)
                except es.InvalidEpisode as error:
                    if "reported before" not in str(error):
                        return str(error)
        if session.status().reported != len(NAMES):
            return f"{session.status().reported} reports of {len(NAMES)}"
    audit = es.audit(folder)
    return "; ".join(audit.damage)


CHAIN_SAFE = tuned().task.safe_policy


# ---- what people do ---------------------------------------------------------------------------------------------


class Steps(list):
    """What was acknowledged of what people did, in order; an exclamation mark where that is not known."""

    def done(self, call, what):
        try:
            call()
            self.append(what)
        except (OSError, KeyboardInterrupt, ValueError):
            self.append(f"{what}!")


def use_for_a_life(folder, told, held):
    """Open, try, add, promote, change, withdraw, halt, close, with what was acknowledged in `told`."""
    rng = np.random.default_rng(0)

    def tried(num):
        for _ in range(num):
            session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)

    try:
        session = es.open(folder, agent=es.Rollout(0.1, 0.85, {"v2": ["v2"]}, ["now"], 0.5, utility_max=1.0))
    except (OSError, KeyboardInterrupt):
        return
    held.append(session)
    told.done(lambda: tried(4), "tried")
    told.done(lambda: session.add_candidate("v3", ["v3"]), "v3 added")
    told.done(lambda: session.promote("v2", "May"), "v2 promoted")
    told.done(lambda: session.change("stricter", threshold=0.2), "0.2")
    told.done(lambda: session.withdraw("v3", "recalled"), "v3 withdrawn")
    told.done(lambda: session.promote("incumbent", "back"), "incumbent promoted")
    told.done(lambda: session.halt("smoke"), "halted")
    told.done(session.close, "closed")


def wrong_after_a_life(folder, told):
    """What is wrong once the folder is opened again; "" if nothing is."""
    with es.open(folder, agent=released()) as session:
        seen, bounds = session.status(), session.agent.bounds()
        if "tried" in told and seen.reported < 4:
            return f"{seen.reported} reports of 4"
        if (
            "v3 added" in told
            and not {"v3 withdrawn", "v3 withdrawn!"} & {*told}
            and "v3" not in session.book.candidates
        ):
            return "a candidate is gone"
        if "v3 withdrawn" in told and "v3" in bounds:
            return "what was withdrawn is on trial"
        went_back = {"incumbent promoted", "incumbent promoted!"} & {*told}
        if "v2 promoted" in told and not went_back and seen.promoted != "v2":
            return f"{seen.promoted} is promoted"
        if "incumbent promoted" in told and seen.promoted != "incumbent":
            return f"{seen.promoted} is still promoted"
        if "0.2" in told and session.task.threshold != 0.2:
            return f"the threshold is {session.task.threshold}"
        if "halted" in told and not seen.stopped:
            return "a halt is gone"
    return "; ".join(es.audit(folder, agent=released()).damage)


# ---- an alarm that no frame can raise again ---------------------------------------------------------------------


def use_until_an_alarm(folder, told, held):
    """Open, try, promote, and report what is refused for its range, which halts; what was acknowledged is in `told`."""
    rng = np.random.default_rng(0)
    try:
        session = es.open(folder, agent=released())
    except (OSError, KeyboardInterrupt):
        return
    held.append(session)

    def tried():
        for _ in range(4):
            session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)

    def refused():
        try:
            session.learn(es.Episode.of_totals(7.0), deployment=session.deploy(rng).id)
        except es.InvalidEpisode as error:
            if "at most 1" not in str(error):  # nothing was deployed
                raise

    told.done(tried, "tried")
    told.done(lambda: session.promote("v2", "May"), "v2 promoted")
    told.done(refused, "alarm")
    if told[-1] == "alarm!" and session.deploy(rng).acting != "incumbent" and session.book.distrusted:
        told.append("v2 acts")
    told.done(session.close, "closed")


def wrong_after_an_alarm(folder, told):
    """What is wrong once the folder is opened again; "" if nothing is."""
    with es.open(folder, agent=released()) as session:
        seen = session.status()
        known = any(fault.startswith("alarm") for fault in seen.faults)
        if "alarm" in told and not known:
            return "an alarm is gone"
        if known and not (seen.stopped and seen.promoted == "incumbent"):
            return f"an alarm is not heeded: {seen.promoted} acts, stopped {seen.stopped!r}"
        if "v2 acts" in told:
            return "v2 acts after an alarm"
    return "; ".join(es.audit(folder, agent=released()).damage)


# ---- interruptions ----------------------------------------------------------------------------------------------


@contextmanager
def interrupted(at, functions=()):
    """KeyboardInterrupt before the line with number `at`, of those run in ROOMS, or in these functions of a session;
    yields how many there were.

    Not where a `with` block ends: there Python itself leaves a gap for tracers that it has not for real interruptions.
    """
    count, before = [0], {}

    def trace(frame, event, _):
        code = frame.f_code
        if not code.co_filename.startswith(ROOMS):
            return None
        if functions and (code.co_name not in functions or not code.co_filename.endswith("session.py")):
            return None
        if event == "line":
            last, before[id(frame)] = before.get(id(frame)), frame.f_lineno
            if last is None or last not in _bodies(frame.f_code.co_filename).get(frame.f_lineno, ()):
                count[0] += 1
                if count[0] == at:
                    raise KeyboardInterrupt
        elif event == "call":
            before.pop(id(frame), None)
        return trace

    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(None)


@cache
def _bodies(path):
    """The lines of the body of each `with`, by its first line."""
    found = {}
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.With):
            found[node.lineno] = range(node.body[0].lineno, node.end_lineno + 1)
    return found


# ---- files that somebody changes while they are open ------------------------------------------------------------


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def cut_at_a_frame(path):
    os.truncate(path, frames_of(path.parent)[-1].offset)


def emptied(path):
    os.truncate(path, 0)


def replaced(path):
    shutil.copy(path, path.with_name("other"))
    os.replace(path.with_name("other"), path)


def grown(path):
    with path.open("ab") as file:
        file.write(b"x")


CHANGES = [
    *(("journal.log", change) for change in (cut, cut_at_a_frame, emptied, replaced, grown, os.unlink)),
    *(("audit.jsonl", change) for change in (cut, emptied, replaced, grown, os.unlink)),
    *(("journal.toml", change) for change in (cut, replaced, os.unlink)),
]


def is_seen(folder, name, change, act):
    """Whether an open session sees at its next write that a file of it was changed, and acknowledges nothing."""
    rng, session = np.random.default_rng(0), es.open(folder, agent=tuned())
    made = [session.deploy(rng) for _ in range(2)]
    session.learn(played(made[0].policy, rng), deployment=0)
    change(folder / name)
    log = folder / "journal.log"
    before = log.read_bytes() if log.exists() else b""
    acts = {
        "deploy": lambda: session.deploy(rng),
        "learn": lambda: session.learn(played(made[1].policy, rng), deployment=1),
        "abandon": lambda: session.abandon(1),
        "halt": lambda: session.halt("to see"),
    }
    try:
        found = acts[act]()
        refused = act == "deploy" and found.id == -1
    except es.NotKept as error:
        refused = name in str(error)
    plan = session.plan()
    held = plan.source == "safe" and name in plan.reason and name in session.status().stopped
    session.close()
    return refused and held and (log.read_bytes() if log.exists() else b"") == before  # nothing is written any more


# ---- calls of the system ----------------------------------------------------------------------------------------


@contextmanager
def failing(at, once):
    """The call with number `at` fails, or all from there on, a write after half of it; yields how many there were."""
    real, count = {name: getattr(os, name) for name in CALLS}, [0]

    def broken(name, *args, **more):
        count[0] += 1
        if count[0] == at or (count[0] > at > 0 and not once):
            if name == "write":
                real[name](args[0], bytes(args[1])[: len(args[1]) // 2])
            if name == "close":
                real[name](*args)
            raise OSError(errno.EIO, f"{name} fails on purpose")
        return real[name](*args, **more)

    for name in CALLS:
        setattr(os, name, lambda *args, _name=name, **more: broken(_name, *args, **more))
    try:
        yield count
    finally:
        for name, call in real.items():
            setattr(os, name, call)


def _end_of_process(folder):
    """Give back what an interrupted `close` has left open, as the system does when a process ends."""
    for number in map(int, os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else ()):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder}/"):
                os.close(number)
        except OSError:
            continue  # it was that of the list itself


SESSIONS = {
    "episodes": (Told, use, wrong_after),
    "a life": (Steps, use_for_a_life, wrong_after_a_life),
    "an alarm": (Steps, use_until_an_alarm, wrong_after_an_alarm),
}


def tried(fault, at, folder, session="episodes"):
    """What is wrong after a fault at one place of a short session, or at none for 0; and how many places there are."""
    (make, use, wrong_after), held = SESSIONS[session], []
    told = make()
    with fault(at) as count:
        use(folder, told, held)
    for session in held:
        session.close()
    _end_of_process(folder)
    try:
        return wrong_after(folder, told), count[0]
    except (es.DamagedFile, OSError) as error:
        return str(error), count[0]
