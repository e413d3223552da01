"""Lives of one session that several threads use, killed in between, held against what was acknowledged and is true.

Three workers deploy and report, late, in any order, twice or never; a person halts, resumes, promotes, changes,
withdraws and adds candidates. What came of a deployment is a function of its number and of who acted, so that the
outcomes of all deployments are known afterwards, also of those whose process was killed.
"""

import json
import math
import os
import random
import signal
import threading
import time

import numpy as np

import episafe as es
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal_folder import LOG, read_head
from episafe.errors import Infeasible, InvalidEpisode, NotKept
from episafe.storage.frames import read
from killed_lives import FORK

DELTA, WORKERS = 0.3, 3
UTILITY = {"incumbent": 0.85, "good": 0.75, "bad": 0.3, "late": 0.7}
BETS = np.array([0.98, *(0.9 * 2.0 ** (-0.75 * k) for k in range(13))])  # as docs/theory-certificates.md has them


def rollout(names):
    return es.Rollout(0.5, 0.3, {name: [name] for name in names}, ["now"], utility_max=1.0, delta=DELTA)


def came_of(seed, deployment, name):
    """The total utility of a deployment."""
    return float(random.Random(f"{seed} {deployment} {name}").random() < UTILITY[name])


def live(folder, seed, part, names, told):
    """So many seconds of a life; what was acknowledged is written to `told` before anything else is done."""
    session = es.open(folder, rollout(names), sync="each" if seed % 3 else "plans", false_alarm=0.01 * (seed % 2))
    say = lambda *what: os.write(told, f"{json.dumps(what)}\n".encode())  # noqa: E731
    say("open", bool(session.book.halted))
    ends = time.monotonic() + 0.2 + random.Random(f"{seed} {part}").random()
    work = [
        threading.Thread(target=_work, args=(session, say, f"{seed} {part} {k}", seed, ends)) for k in range(WORKERS)
    ]
    work.append(threading.Thread(target=_order, args=(session, say, f"{seed} {part} person", ends)))
    for thread in work:
        thread.start()
    if seed % 2:
        time.sleep(0.1)
        session.close()  # while they are at work
    for thread in work:
        thread.join()
    session.close()


def _work(session, say, name, seed, ends):
    luck, rng, held = random.Random(name), np.random.default_rng(random.Random(name).randrange(2**32)), []
    for n in range(10_000):
        called = f"{name} {n}" if luck.random() < 0.5 else None
        made = session.deploy(rng, episode_id=called)
        if made.id < 0 or time.monotonic() > ends:
            return
        say("deployed", made.id, made.policy.name, made.plan.id)
        held.append((made.id, made.policy.name))
        luck.shuffle(held)
        try:
            while held and luck.random() < 0.55:
                number, who = held.pop()
                if luck.random() < 0.1:  # never reported, or given up
                    if luck.random() < 0.5:
                        session.abandon(number)
                        say("abandoned", number)
                    continue
                session.learn(es.Episode.of_totals(came_of(seed, number, who)), deployment=number)
                say("reported", number)
                if luck.random() < 0.1:
                    session.learn(es.Episode.of_totals(1.0), deployment=number)
                    say("twice", number)
        except InvalidEpisode:
            continue
        except NotKept:
            return


def _order(session, say, name, ends):
    luck = random.Random(name)
    acts = {
        "halt": lambda: session.halt("quiet"),
        "resume": lambda: session.resume_exploring("go on"),
        "promote": lambda: session.promote(luck.choice(list(session.agent.bounds())), "the best"),
        "change": lambda: session.change("as of today", threshold=round(luck.uniform(0.4, 0.7), 3)),
        "withdraw": lambda: session.withdraw("bad", "it is"),
        "add": lambda: session.add_candidate("late", ["late"]),
    }
    while time.monotonic() < ends:
        time.sleep(0.02 * luck.random())
        act = luck.choice([*acts, "resume", "resume", "change"])
        try:
            say("asked", act)
            acts[act]()
            say("done", act)
        except (ValueError, Infeasible):
            say("refused", act)
        except NotKept:
            return


def lived(folder, seed, num_parts=3):
    """A life in so many parts, most of them killed; what is wrong, in words, and how many deployments there were."""
    names, told, wrong, luck = ["good", "bad"], folder.parent / f"{folder.name} told", [], random.Random(seed)
    for part in range(num_parts):
        written = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        process = FORK.Process(target=live, args=(folder, seed, part, names, written))
        process.start()
        os.close(written)
        process.join(luck.uniform(0.1, 1.2) if luck.random() < 0.7 else 60)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        if not (folder / "journal.toml").exists():
            continue
        frames = list(read(folder / LOG, read_head(folder)["genesis"]))
        names = [
            *names,
            *(["late"] if any(f.kind == Kind.CANDIDATE and f.notes["name"] == "late" for f in frames) else []),
        ]
        names = list(dict.fromkeys(names))
        wrong += _wrong(folder, seed, names, [json.loads(line) for line in told.read_text().splitlines()])
    return wrong, sum(frame.kind == Kind.DEPLOY for frame in read(folder / LOG, read_head(folder)["genesis"]))


def _wrong(folder, seed, names, told):
    with es.open(folder, rollout(names), false_alarm=0.01 * (seed % 2)) as session:
        halted, bounds = bool(session.book.halted), session.agent.bounds()
    frames, wrong = list(read(folder / LOG, read_head(folder)["genesis"])), []
    acted, began, plan, num_first, reported, abandoned, in_log = {}, {}, None, 0, [], [], False
    for frame in frames:
        notes = frame.notes
        if frame.kind == Kind.PLAN:
            num_first = len(began) if plan is None else num_first
            plan = notes["names"] or ["incumbent"]
        elif frame.kind == Kind.DEPLOY:
            acted[notes["id"]] = plan[notes["component"] or 0]
        elif frame.kind == Kind.REPORT:
            reported.append(notes["deployment"])
        elif frame.kind == Kind.ABANDON:
            abandoned.append(notes["deployment"])
        elif frame.kind == Kind.CANDIDATE:
            began[notes["name"]] = len(acted), len(began) + 1
        elif frame.kind in (Kind.HALT, Kind.RESUME):
            in_log = frame.kind == Kind.HALT
    if len(set(reported)) < len(reported) or set(reported) & set(abandoned) or any(one[0] == "twice" for one in told):
        wrong.append("a deployment was reported twice")
    kept = {"deployed": acted.items(), "reported": reported, "abandoned": abandoned}
    for what, number, *who in (one for one in told if one[0] in kept):
        if ((number, who[0]) if who else number) not in kept[what]:
            wrong.append(f"{what} {number} was acknowledged and is lost")
    last = [one for one in told if one[1] in ("halt", "resume") and one[0] != "refused"][-1:]
    if halted < in_log or (last == [["done", "halt"]] and not halted):
        wrong.append("a halt is lost")
    for name, bound in bounds.items():
        first, j = began.get(name, (0, 0))
        outcomes = [came_of(seed, number, name) for number, who in acted.items() if who == name and number >= first]
        share = 1 / (j * (j + 1)) if j else 0
        share = (share + 1 / (num_first + 1)) / 2 if j <= num_first else share  # those before the first plan
        if j and bound > 0 and not _proved(bound * (1 - 1e-9), outcomes, DELTA * share):
            wrong.append(f"{bound} of {name} is not proved by what came of its {len(outcomes)} deployments")
    return wrong + es.audit(folder).damage[:1]


def _proved(mean, outcomes, delta):
    """Whether the wealth of any prefix, the mean over bets of Π(1 + λ(X/m − 1)), reaches 1/δ."""
    logs = np.cumsum(np.log1p(np.outer(np.array(outcomes) / mean - 1, BETS)), axis=0)
    return len(outcomes) > 0 and np.log(np.exp(logs).mean(axis=1)).max() >= math.log(1 / delta)
