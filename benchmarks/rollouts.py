"""Rollouts of opaque policies: episodes until a candidate stands alone, with and without worse rivals, and coverage.

Utilities are Beta with the mean and standard deviation given. δ = 0.05, so that a first candidate has δ/2. Medians are
compared with those that exact wealth was first measured to have (76, 291, 348, 654, 1209).

    python benchmarks/rollouts.py            # 200 runs a setting: some minutes
    python benchmarks/rollouts.py 20
"""

import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

import episafe as es

RIVALS, SHORTFALL = 9, 0.1  # so many more candidates, with so much of b less than b
LONGEST = 20_000  # episodes
totals = es.Episode.of_totals


class Setting(NamedTuple):
    """Threshold, means of incumbent and candidate, standard deviation, and the median to compare with."""

    threshold: float
    incumbent: float
    candidate: float
    spread: float
    median: int


SETTINGS = (
    Setting(0.5, 0.7, 0.6, 0.2, 76),
    Setting(0.8, 0.9, 0.85, 0.1, 291),
    Setting(0.9, 0.99, 0.95, 0.1, 348),
    Setting(0.9, 0.95, 0.93, 0.1, 654),
    Setting(0.95, 0.98, 0.97, 0.05, 1209),
)


def shape(mean: float, spread: float) -> tuple[float, float]:
    """The parameters of the Beta law."""
    total = mean * (1 - mean) / spread**2 - 1
    return mean * total, (1 - mean) * total


def play(
    setting: Setting, means: Mapping[str, float], seed: int, late: int = 0, in_session: bool = False
) -> tuple[int, str, bool]:
    """Episodes until somebody stands alone, who it is, and whether any deployed mixture was below b.

    Reports come `late` deployments late. In time, an agent alone does as one in a session does, and episodes of the
    incumbent, whose utility is known and which has no reward, leave the plan as it is: so it is not told of them.
    """
    known = setting.incumbent - setting.threshold
    agent = es.Rollout(setting.threshold, known, {name: (name,) for name in means}, "now", utility_max=1.0)
    rng, below, due = np.random.default_rng(seed), False, list[tuple[float, int]]()
    session = es.open(None, agent=agent, false_alarm=0) if late or in_session else None
    values = {"incumbent": setting.incumbent, **means}
    for k in range(LONGEST):
        if session is None:
            plan = agent.plan()
            component, acting = plan.policy.draw(rng)
        else:
            deployed = session.deploy(rng)
            plan, acting = deployed.plan, deployed.policy
        if plan.source == "search":
            policy = plan.policy
            mixed = sum(weight * values[name] for weight, name in zip(policy.weights, policy.names, strict=True))
            below |= bool(mixed < setting.threshold - 1e-9)
            if len(policy.names) == 1:
                return k, policy.names[0], below
        name = acting.name
        utility = setting.incumbent if name == "incumbent" else rng.beta(*shape(means[name], setting.spread))
        if session is None:
            if name != "incumbent":
                agent.learn(totals(utility, component=component), plan_id=plan.id)
            continue
        due.append((utility, deployed.id))
        if len(due) > late:
            total, number = due.pop(0)
            session.learn(totals(total), deployment=number)
    return LONGEST, "", below


def candidates(setting: Setting, place: int, num_rivals: int) -> dict[str, float]:
    """The good one in its place among the others."""
    means = {f"rival-{i}": (1 - SHORTFALL) * setting.threshold for i in range(num_rivals)}
    names = [*list(means)[:place], "good", *list(means)[place:]]
    return {name: means.get(name, setting.candidate) for name in names}


# ---- coverage: a candidate just below b, and reports that are late or lost by what came of them

B, KNOWN, CANDIDATE = 0.5, 0.9, 0.48
FAULTS: dict[str, Callable[[float, np.random.Generator], int | None]] = {  # after so many deployments; None: never
    "at once": lambda utility, rng: 0,
    "failures late": lambda utility, rng: 40 if utility == 0 else 0,
    "failures lost": lambda utility, rng: None if utility == 0 and rng.random() < 0.8 else 0,
    "failures first": lambda utility, rng: 0 if utility == 0 else 20,
}


def violates(fault: str, seed: int, num_deployments: int, counted: bool = True) -> bool:
    """Whether any deployed mixture is below b. Without counting, reports are taken in as they come."""
    agent, rng = es.Rollout(B, KNOWN - B, {"v2": "v2"}, "v1", utility_max=1.0), np.random.default_rng(seed)
    session, due = es.open(None, agent=agent, false_alarm=0), {}
    for k in range(num_deployments):
        if counted:
            deployed = session.deploy(rng)
            plan, component, acting = deployed.plan, deployed.component, deployed.policy
        else:
            plan = agent.plan()
            component, acting = plan.policy.draw(rng)
        weights = dict(zip(plan.policy.names, plan.policy.weights, strict=True)) if plan.source == "search" else {}
        if KNOWN - weights.get("v2", 0.0) * (KNOWN - CANDIDATE) < B - 1e-9:
            return True
        utility = float(rng.random() < (CANDIDATE if acting.name == "v2" else KNOWN))
        late = FAULTS[fault](utility, rng)
        if late is not None:
            due.setdefault(k + late, []).append((k, plan.id, totals(utility, component=component)))
        for number, plan_id, report in due.pop(k, ()):
            if counted:
                session.learn(report, deployment=number)
            else:
                agent.learn(report, plan_id=plan_id)
    return False


def coverage(num_runs: int, num_deployments: int) -> None:
    """One row a fault."""
    print(f"\nb = {B}, incumbent {KNOWN}, candidate {CANDIDATE}: runs of {num_deployments} deployments that violate")
    print(f"{'reports':20s}{'session':>12s}{'not counted':>14s}   of {num_runs}, at most {0.05 * num_runs:g} expected")
    for fault in FAULTS:
        found = [
            sum(violates(fault, s, num_deployments, counted) for s in range(num_runs)) for counted in (True, False)
        ]
        print(f"{fault:20s}{found[0]:12d}{found[1]:14d}", flush=True)


def main() -> None:
    """One row a setting."""
    num_runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(
        f"{num_runs} runs each; median episodes until the good candidate stands alone (times the figure compared with)"
    )
    print(f"{'b, incumbent, candidate':28s}{'figure':>7s}{'alone':>13s}", end="")
    print(
        "".join(f"{f'one of ten, {place + 1}.':>19s}" for place in (0, 4, 9)) + f"{'another won':>13s}{'below b':>9s}"
    )
    for number, setting in enumerate(SETTINGS):
        cells, wrong, below = [], 0, 0
        for place, rivals in ((0, 0), (0, RIVALS), (4, RIVALS), (9, RIVALS)):
            means = candidates(setting, place, rivals)
            found = [play(setting, means, 10_000 * number + seed) for seed in range(num_runs)]
            wrong += sum(who != "good" for _, who, _ in found)
            below += sum(one[2] for one in found)
            median = np.median([length for length, _, _ in found])
            cells.append(f"{median:.0f} ({median / setting.median:.2f})")
        said = f"{setting.threshold}, {setting.incumbent}, {setting.candidate} ± {setting.spread}"
        print(f"{said:28s}{setting.median:7d}{cells[0]:>13s}", "".join(f"{cell:>19s}" for cell in cells[1:]), end="")
        print(f"{wrong:12d}{below:9d}", flush=True)
    coverage(5 * num_runs, 150)


if __name__ == "__main__":
    main()
