"""Lives of sessions: promoted, changed, halted, rolled back, killed in between; and what a forger may do to them."""

import json
import multiprocessing
import os
import shutil
import signal

import numpy as np

import episafe as es
import tampering
from episafe.deployment.frame_kinds import EVENTS, Kind
from episafe.deployment.journal_folder import LOG, read_head
from episafe.storage.audit_trail import TRAIL
from episafe.storage.frames import read
from episafe.storage.journal_files import MAGIC, encode

FORK = multiprocessing.get_context("fork")  # a new interpreter would take longer than a life
UTILITY = {"incumbent": 0.95, "v2": 0.9, "v3": 0.85, "v4": 0.3}
KILLS = 3  # of each life, at least
FORGED = ("another promoted", "a better bound", "a lower threshold", "another slack", "no halt", "no withdrawal",
          "promoted earlier", "resumed earlier")  # fmt: skip
WAYS = (*tampering.WAYS, *FORGED)


def rollout(names):
    return es.Rollout(0.5, 0.4, {name: [name] for name in names}, ["now"], utility_max=1.0)


def acts_of(seed):
    """What people do in a life, in order: always all of it at least once, and some of it again."""
    rng = np.random.default_rng(seed)
    again = rng.permutation(["halt", "resume", "rollback", "promote v2", "change", "abandon"]).tolist()
    begun = ["play 60", "promote v2", "add v3", "play 20", "change", "withdraw v3", "play 10", "halt", "play 5"]
    return [*begun, "resume", "add v4", "play 15", "rollback", *again, "play 10", "promote v2", "play 5"]


def perform(session, act, number, rng):
    """One act; ValueError where it is refused, or where nothing is left to do, as a second promotion after a kill."""
    what, _, which = act.partition(" ")
    reason = f"act {number}"
    if what == "play":
        for k in range(int(which)):
            if session.was_reported(f"{number}-{k}"):
                continue
            made = session.deploy(rng, episode_id=f"{number}-{k}")
            session.learn(es.Episode.of_totals(float(rng.random() < UTILITY[made.policy.name])), deployment=made.id)
    elif what == "abandon":
        session.abandon(session.deploy(rng).id)
    elif what == "add" and which not in session.agent.candidates:
        session.add_candidate(which, [which])
    elif what == "change":
        session.change(reason, threshold=float(rng.uniform(0.45, 0.55)))
    elif what in ("promote", "rollback"):
        if session.agent.promoted == (which or "incumbent"):
            raise ValueError("promoted already: nothing is to be written")
        session.promote(which or "incumbent", reason)
    elif what == "withdraw":
        session.withdraw(which, reason)
    elif what == "halt":
        session.halt(reason)
    elif what == "resume" and session.book.halted:
        session.resume_exploring(reason)


def go_on(folder, seed, at, kill_at, said):
    """Go on with a life from act `at`; this process is killed at its write number `kill_at`, 0 for never."""
    rng, acts, usual, writes = np.random.default_rng([seed, at]), acts_of(seed), os.write, [0]

    def write(file, data):
        writes[0] += 1
        if writes[0] == kill_at:
            usual(file, data[: int(rng.integers(len(data) + 1))])  # some of it
            os.kill(os.getpid(), signal.SIGKILL)
        return usual(file, data)

    os.fsync = lambda _: None  # a kill loses nothing that was written
    names = ["v2", *(act.split()[1] for act in acts[:at] if act.startswith("add"))]
    if (folder / "journal.toml").exists():
        known = (frame.notes["name"] for frame in frames_of(folder) if frame.kind == Kind.CANDIDATE)
        names = list(dict.fromkeys([*names, *known]))
    os.write = write
    session = es.open(folder, agent=rollout(names))
    for number in range(at, len(acts)):
        refused = ""
        try:
            perform(session, acts[number], number, rng)
        except ValueError as error:
            refused = str(error)
        os.write = usual
        said.send((number, refused))
        os.write = write
    session.close()


def lived(folder, seed):
    """A whole life in `folder`, killed again and again: how often, and which acts were acknowledged and not refused."""
    rng, at, kills, done = np.random.default_rng([seed, 7]), 0, 0, []
    while at < len(acts_of(seed)):
        kill_at = int(rng.integers(1, 90)) if kills < KILLS or rng.random() < 0.5 else 0
        here, there = FORK.Pipe(duplex=False)
        process = FORK.Process(target=go_on, args=(folder, seed, at, kill_at, there))
        process.start()
        there.close()
        while True:
            try:
                number, refused = here.recv()
            except EOFError:
                break
            at, done = number + 1, [*done, *([] if refused else [number])]
        process.join()
        if process.exitcode not in (0, -signal.SIGKILL):
            raise AssertionError(f"life {seed} ended with {process.exitcode} at act {at}")
        kills += process.exitcode == -signal.SIGKILL
    names = [frame.notes["name"] for frame in frames_of(folder) if frame.kind == Kind.CANDIDATE]
    with es.open(folder, agent=rollout(names)):
        pass  # closed in good order, whatever ended the last process
    return kills, done


def faults_of(folder, seed, done):
    """What is wrong with a life: [] if it is audited whole, all of it recomputed, and nothing acknowledged is lost."""
    found, frames = audited(folder), frames_of(folder)
    wrong = list(found.damage) or ([] if found.recomputed == found.num_plans else ["not all plans came out again"])
    reasons = {frame.notes.get("reason") for frame in frames}
    reported = [frame.notes["id"] for frame in frames if frame.kind == Kind.REPORT]
    if len(reported) != len(set(reported)):
        wrong.append("a report was counted twice")
    for number in done:
        what, _, which = acts_of(seed)[number].partition(" ")
        if what == "play":
            wrong += [f"{number}-{k} is lost" for k in range(int(which)) if f"{number}-{k}" not in reported]
        elif what in ("promote", "rollback", "change", "withdraw", "halt") and f"act {number}" not in reasons:
            wrong.append(f"act {number}, {what}, is lost")
    return wrong


def audited(folder, head=None):
    """The audit of a life."""
    try:
        names = [frame.notes["name"] for frame in frames_of(folder) if frame.kind == Kind.CANDIDATE]
    except (es.DamagedFile, KeyError):
        names = ["v2"]
    return es.audit(folder, agent=rollout(dict.fromkeys(["v2", "v3", "v4", *names])), head=head)


def frames_of(folder):
    return list(read(folder / LOG, read_head(folder)["genesis"]))


def head_of(folder):
    """What its owner keeps elsewhere."""
    return json.loads((folder / TRAIL).read_text().splitlines()[-1])["hash"]


def tamper(way, folder, other, rng):
    """Change a life in one of WAYS; those of FORGED change log and trail alike, with all hashes made anew."""
    if way in tampering.WAYS:
        tampering.tamper(way, folder, other, rng)
        return
    frames = [(frame.kind, dict(frame.notes)) for frame in frames_of(folder)]
    frames = forged(way, frames, rng)
    write_anew(folder, frames)
    for path in folder.glob("checkpoint-*"):
        path.unlink()


def forged(way, frames, rng):
    """Kinds and notes of a life, one thing changed."""
    kind = {"another promoted": Kind.PROMOTE, "a better bound": Kind.PROMOTE, "promoted earlier": Kind.PROMOTE,
            "a lower threshold": Kind.CHANGE, "another slack": Kind.CHANGE, "no halt": Kind.HALT,
            "no withdrawal": Kind.WITHDRAW, "resumed earlier": Kind.RESUME}[way]  # fmt: skip
    places = [n for n, (which, notes) in enumerate(frames) if which == kind and notes.get("name") != "incumbent"
              and notes.get("what") in (None, "settings")]  # fmt: skip
    n = int(rng.choice(places))
    notes = frames[n][1]
    if way == "another promoted":
        notes["name"] = "v4"
    elif way == "a better bound":
        notes["bounds"] = [bound + 0.05 for bound in notes["bounds"]]
    elif way == "a lower threshold":
        notes["thresholds"] = [b - 0.05 for b in notes["thresholds"]]
    elif way == "another slack":
        notes["slacks"] = [slack * 1.1 for slack in notes["slacks"]]
    elif way in ("no halt", "no withdrawal"):
        del frames[n]
    else:  # earlier: before the last few frames
        m = max(1, n - int(rng.integers(2, 8)))
        frames.insert(m, frames.pop(n))
    return frames


def write_anew(folder, frames):
    """Log and trail of these frames, every number and hash made anew, as a forger would."""
    genesis = read_head(folder)["genesis"]
    plans = [line for line in (folder / TRAIL).read_text().splitlines() if '"event":' not in line]
    last, lines, parts = bytes.fromhex(genesis), [], [MAGIC]
    for number, (kind, notes) in enumerate(frames):
        if kind == Kind.PLAN:
            lines.append(chained(plans.pop(0), len(lines), lines, genesis))
            notes = {**notes, "trail": json.loads(lines[-1])["hash"]}
        elif kind in EVENTS:
            besides = "".join(f',"{name}":{json.dumps(value)}' for name, value in notes.items())
            text = f'{{"line":0,"event":"{EVENTS[Kind(kind)]}"{besides},"previous":"","hash":""}}'
            lines.append(chained(text, len(lines), lines, genesis))
        data, last = encode(number, kind, last, notes, None)
        parts.append(data)
    (folder / LOG).write_bytes(b"".join(parts))
    (folder / TRAIL).write_text("".join(f"{line}\n" for line in lines))


def chained(line, number, before, genesis):
    """A line of the trail as number `number`, after those before it."""
    import hashlib
    import re

    previous = json.loads(before[-1])["hash"] if before else genesis
    text = re.sub(r'^\{"line":\d+', f'{{"line":{number}', line.rpartition(',"previous"')[0])
    text = f'{text},"previous":"{previous}"'
    return f'{text},"hash":"{hashlib.sha256(text.encode()).hexdigest()}"}}'


def found_by(way, folder, other, rng, work):
    """How the owner of a folder finds that it was tampered with: "audit", "head" (kept elsewhere), or ""."""
    copy, head = work / "copy", head_of(folder)
    while True:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        tamper(way, copy, other, rng)
        if any((copy / name).read_bytes() != (folder / name).read_bytes() for name in (LOG, TRAIL)):
            break  # a count that stands in plans alone is not changed in a line of an event
    if not audited(copy).is_whole:
        return "audit"
    return "" if audited(copy, head).is_whole else "head"
