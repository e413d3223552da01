"""How fast OPLB-SP is on this machine: rounds per second on each kind of action set, planning always and rarely."""

import time
from dataclasses import asdict, dataclass
from statistics import median

from episafe import bandits
from episafe.learning.replanning import parse_replan
from episafe.runs.record import Record

ENVIRONMENTS = ("finite", "ball", "ellipsoid", "contexts")
REPLANS = ("every", "doubling:0.3")


@dataclass(frozen=True)
class BanditSpeed:
    """OPLB-SP with the determinant radius on one bandit (finite: d = 5, n = 50)."""

    env: str
    replan: str
    num_rounds: int
    rounds_per_second: float
    plans: int
    violation: float


def bandit_speeds(quick: bool) -> list[dict[str, object]]:
    """One row an environment and replanning rule, as plain values; medians of repeats after one that compiles."""
    return [asdict(_speed(env, replan, quick)) for env in ENVIRONMENTS for replan in REPLANS]


def _speed(env: str, replan: str, quick: bool) -> BanditSpeed:
    bandit = bandits.make(env)
    num_rounds = 2_000 if quick else 20_000 if replan == "every" else 100_000

    def once(length: int, seed: int) -> tuple[float, Record]:
        learner = bandits.OPLBSP(bandit.task, num_rounds, radius="determinant", replan=parse_replan(replan))
        start = time.perf_counter()
        record = bandits.run(bandit, learner, length, seed)
        return time.perf_counter() - start, record

    once(2, 0)  # compiles, or loads what is compiled
    runs = [once(num_rounds, seed) for seed in range(1 if quick else 5)]
    return BanditSpeed(
        env=env,
        replan=replan,
        num_rounds=num_rounds,
        rounds_per_second=num_rounds / median(taken for taken, _ in runs),
        plans=int(runs[0][1].plan_ids[-1]) + 1,
        violation=float(max(record.violation()[-1] for _, record in runs)),
    )
