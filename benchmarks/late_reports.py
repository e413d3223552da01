"""Sessions whose reports come late, never, or more than once: who violates, and what it costs.

A risky action fails with probability 0.7 and pays; the incumbent fails with probability 0.1; b = 0.5. What is done with
a report depends on its outcome, in the way that flatters the risky action most. Every deployed mixture is judged by its
exact expected utility.

    python benchmarks/late_reports.py            # 200 runs of 300 deployments for each fault
    python benchmarks/late_reports.py 20 100
    python benchmarks/late_reports.py delay      # what it costs if all reports are 20 late, by how long a proof takes
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import numpy as np
import rollouts

import episafe as es
from episafe.certify.account import Account, grid_of_means
from episafe.certify.ledger import Ledger

GOOD, BAD = 1, 2
CANDIDATE = 0.7  # the chance of a success, where only the ledger is looked at
Reports = Callable[[list[tuple[int, int, es.Episode, bool]], int], Iterator[tuple[int | None, int | None, es.Episode]]]


def problem(risky: float = 0.3) -> es.LinearCMDP:
    """Two steps: the action of the first decides with which probability the second is in the good state."""
    P = np.zeros((2, 3, 2, 3))
    P[:, :, 0, GOOD], P[:, :, 0, BAD] = 0.9, 0.1
    P[:, :, 1, GOOD], P[:, :, 1, BAD] = risky, 1 - risky
    reward, utility, safe = np.zeros((2, 3, 2)), np.zeros((2, 3, 2)), np.zeros((2, 3, 2))
    reward[0, :, 1], utility[1, GOOD], safe[..., 0] = 1.0, 1.0, 1.0
    return es.LinearCMDP(P, reward, utility, threshold=0.5, safe_policy=safe, slack=0.4)


def due(delay: Callable[[bool], int | None], repeats: int = 1, by_plan: bool = False) -> Reports:
    """Reports come after `delay(failed)` more deployments, `repeats` times; None: never."""

    def reports(made, now):  # type: ignore[no-untyped-def]
        for number, plan_id, episode, failed in made:
            wait = delay(failed)
            if wait is not None and number + wait == now:
                for _ in range(repeats):
                    yield (None, plan_id, episode) if by_plan else (number, None, episode)

    return reports


def recredited(made, now):  # type: ignore[no-untyped-def]
    """Each episode at once and, where it did not fail, again for the same plan with every later deployment."""
    for number, plan_id, episode, failed in made:
        if number == now:
            yield number, None, episode
        elif not failed and now - number <= 5:
            yield None, plan_id, episode


def doubled(made, now):  # type: ignore[no-untyped-def]
    """Four are under way at a time; what did not fail is reported twice, by its plan, and failures never."""
    for _, plan_id, episode, failed in made[-4:] if now % 4 == 3 else ():
        if not failed:
            yield from [(None, plan_id, episode)] * 2


FAULTS: dict[str, Reports] = {
    "at once": due(lambda failed: 0),
    "all 20 late": due(lambda failed: 20),
    "failures 100 late": due(lambda failed: 100 if failed else 0),
    "failures lost": due(lambda failed: None if failed else 0),
    "each three times": due(lambda failed: 0, repeats=3),
    "each three times, by plan": due(lambda failed: 0, repeats=3, by_plan=True),
    "old plans credited again": recredited,
    "successes twice, by plan": doubled,
}


def play(cmdp: es.LinearCMDP, reports: Reports, num_deployments: int, seed: int) -> tuple[bool, float, int]:
    """Whether any deployed mixture was below b; its mean reward; and when something stood alone, if ever."""
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    session, rng = es.open(None, agent=agent, false_alarm=0), np.random.default_rng(seed)
    made, rewards, below, alone = [], [], False, num_deployments
    value = cache(cmdp.evaluate)
    for k in range(num_deployments):
        deployed = session.deploy(rng)
        parts = deployed.plan.policy.components
        mixed = np.array(deployed.plan.policy.weights) @ [value(one.policy) for one in parts]
        rewards.append(mixed[0])
        below |= bool(mixed[1] < cmdp.task.threshold - 1e-9)
        alone = min(alone, k) if deployed.plan.source == "search" and len(parts) == 1 else alone
        action = int(rng.choice(2, p=deployed.policy.probabilities(0, 0)))
        then = int(rng.choice(3, p=cmdp.P[0, 0, action]))
        second = int(rng.choice(2, p=deployed.policy.probabilities(1, then)))
        episode = es.Episode([0, then, BAD], [action, second], component=deployed.component)
        made.append((k, deployed.plan.id, episode, then == BAD))
        for number, plan_id, report in reports(made[-120:], k):
            with suppress(es.InvalidEpisode):  # a second report of one deployment is refused
                session.learn(report, deployment=number, plan_id=plan_id)
    return below, float(np.mean(rewards)), alone


def proved_after(late: int, seed: int) -> int:
    """Deployments of one candidate until 0.5 is proved of it, which alone is deployed, whatever is proved so far."""
    rng, account = np.random.default_rng(seed), Account(grid_of_means(0.5, 0.9, 1.0), 0.5, 0.9, 0.05, 2)
    ledger = Ledger(es.TablePolicy(np.ones((1, 1, 1))), [account])
    row, seen = ledger.begin(es.TablePolicy(np.ones((1, 1, 1))), np.nan, 0.0), list[float]()
    while not ledger.certified[row]:
        ledger.expect(len(seen), [row])
        seen.append(float(rng.random() < CANDIDATE))
        if len(seen) > late:
            ledger.credit(len(seen) - late - 1, [row], [1.0], seen[-late - 1], 0.0)
    return len(seen)


def delays(num_runs: int = 100) -> None:
    """Deployments until a candidate stands alone, median, at once and with all reports 20 late."""
    print(f"all reports 20 late, {num_runs} runs each: median of deployments until a candidate stands alone")
    rows = {
        f"ledger alone, candidate {CANDIDATE}": [proved_after(late, s) for s in range(num_runs) for late in (0, 20)]
    }
    for name, found in rows.items():
        at_once, late = np.median(found[::2]), np.median(found[1::2])
        print(f"{name:44s} {at_once:6.0f} {late:6.0f}  {late / at_once:.2f} times", flush=True)
    for setting in rollouts.SETTINGS:
        means = {"good": setting.candidate}
        found = [
            [rollouts.play(setting, means, 90_000 + seed, late)[0] for seed in range(num_runs)] for late in (0, 20)
        ]
        at_once, late = np.median(found, axis=1).tolist()
        name = f"rollout, {setting.threshold}, {setting.incumbent}, {setting.candidate} ± {setting.spread}"
        print(f"{name:44s} {at_once:6.0f} {late:6.0f}  {late / at_once:.2f} times", flush=True)


def main() -> None:
    """One row a fault."""
    if sys.argv[1:2] == ["delay"]:
        return delays(*map(int, sys.argv[2:]))
    num_runs, num_deployments = map(int, sys.argv[1:] or (200, 300))
    print(f"{num_runs} runs of {num_deployments} deployments each, delta 0.05")
    print(f"{'reports':28s} {'violating':>10s} {'mean reward':>12s}")
    for name, reports in FAULTS.items():
        found = [play(problem(), reports, num_deployments, seed) for seed in range(num_runs)]
        print(f"{name:28s} {sum(one[0] for one in found):10d} {np.mean([one[1] for one in found]):12.4f}", flush=True)
    print("A good candidate: deployments until it stands alone, median")
    for chance in (0.85, 0.65):
        for name in ("at once", "all 20 late"):
            alone = [play(problem(chance), FAULTS[name], num_deployments, 10_000 + s)[2] for s in range(num_runs)]
            print(f"{chance}, {name:22s} {np.median(alone):10.0f}", flush=True)


if __name__ == "__main__":
    main()
