"""A staged release with a proof: any policies, mixed with the incumbent by a coin, judged by their totals alone."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.certify.base import AT_LEAST
from episafe.certify.ledger import Ledger
from episafe.certify.race import Race
from episafe.checks import as_index, as_probability
from episafe.errors import InvalidEpisode
from episafe.kernels.mixing import admits
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.replanning import Every
from episafe.problems.policy import Policy
from episafe.problems.rollout_task import RolloutTask
from episafe.problems.task import constraints_of
from episafe.storage.state_reader import Saved, State, under
from episafe.types import HELD, Array, Level, Plan

PLANS_REMEMBERED = 1000  # by an agent without a session; a session knows the rows of every deployment
Rows = tuple[int, ...]  # of the components of a plan, in the ledger


class Rollout(Agent):
    """Tries candidates beside an incumbent, and lets one act alone once its utility is proved to reach the threshold.

    Policies are opaque: functions, networks, addresses of services, names. An episode is whatever has a total utility.
    Every deployed mixture has expected utility at least b, in all episodes together, with probability 1 − delta; given
    the coin, a candidate on trial may itself be below b. `settings()["statement"]` says what that assumes. Where the
    slack is not known the incumbent has a sequence of its own, and acts alone until it is proved to be above b.

    Among several candidates the one that seems nearest to its proof is tried next, at the largest weight that the
    check allows; of those that are certified the one of the highest mean reward acts, the newest where rewards tell
    nothing. Worse ones are dropped (`certify/race.py`), by tests that touch no guarantee.

    Args:
        threshold: b, above least_total.
        slack: ξ > 0, where the incumbent is known to have b + ξ; None where it is only known to have b.
        candidates: policies by name, the likeliest first: candidate j has δ_j = δ/(j(j+1)). More come by
            `add_candidate`.
        incumbent: what acts today.
        delta: the probability with which some deployed mixture may be below b.
        utility_max: the most that an episode's utility can be, if there is such a number: more is refused, and the
            monitors of a session need it.
        names: what people read of the constraints, where there are several.
        least_total: the least that an episode's utility can be. The nearer it is to b, the more of the first episodes a
            candidate gets: ξ/(b + ξ − least_total). An episode that has less halts the session and voids what is
            proved, so it must be enforced or follow from what a utility is.

    Example:
        >>> import episafe as es
        >>> agent = es.Rollout(0.9, 0.05, candidates={"v2": "https://v2"}, incumbent="https://v1", utility_max=1.0)
        >>> session, rng = es.open(None, agent=agent), np.random.default_rng(0)
        >>> deployed = session.deploy(rng)
        >>> deployed.policy.name, deployed.policy.policy
        ('incumbent', 'https://v1')
        >>> session.learn(es.Episode.of_totals(1.0), deployment=deployed.id)
    """

    name: ClassVar[str] = "rollout"
    certified: ClassVar[bool] = True
    problem = "rollout"
    level: Level = "theorem"
    learns_in_order = False  # deployments are counted, and reports come in any order

    def __init__(
        self,
        threshold: Any,
        slack: Any,
        candidates: Mapping[str, Any],
        incumbent: Any,
        delta: float = 0.05,
        utility_max: float | None = None,
        least_total: Any = 0.0,
        names: Sequence[str] = (),
    ) -> None:
        constraints = constraints_of(None, threshold, slack, names, least_total)
        super().__init__(RolloutTask(constraints, incumbent, utility_max), Every())
        self.delta = as_probability("delta", delta)
        self._begin_trials()
        for name, policy in candidates.items():
            self.add_candidate(name, policy)

    def bounds(self) -> dict[str, float]:
        """What is proved of each policy, by its name."""
        return self.race.ledger.bounds()

    def _ledger(self) -> Ledger:
        return self.race.ledger

    @property
    def void(self) -> str:
        """Why nothing is proved any more: an episode had less than the least total."""
        return self.race.ledger.void

    @property
    def num_learned(self) -> int:
        """How many episodes of its plans were reported."""
        return int(self.race.seen[:, 0, 0].sum())

    def expect(self, plan: Plan, deployment: int, component: int | None = None) -> None:
        """Charge who was drawn for a deployment until it is reported; all that may act, where nobody was drawn yet."""
        if plan.id == HELD:
            return
        rows = self._deployed[deployment] = tuple(self.race.ledger.rows_of(plan.policy))
        self.race.ledger.expect(deployment, rows if component is None else rows[component : component + 1])

    def abandon(self, deployment: int) -> None:
        """What is never reported stays at its worst for ever."""
        self._deployed.pop(deployment, None)

    def _weigh(
        self, report: tuple[Any, ...], observed: tuple[Any, ...] | None, plan_id: int | None
    ) -> Callable[[], None]:
        (episode,), deployment = report, self._deployment
        rows = self._planned.get(plan_id) if deployment is None else self._deployed.get(deployment)
        if rows is None:  # of no plan of its own: it says nothing of a candidate
            return lambda: None
        component = 0 if len(rows) == 1 and episode.component is None else as_index("component", episode.component)
        if component >= len(rows):
            raise InvalidEpisode(f"component must be below {len(rows)}, as drawn by plan.policy, got {component}")
        utility, reward = self.task.total("utility", episode), self.task.total("reward", episode)
        return partial(self._credit, deployment, rows, component, utility, reward)

    def _credit(self, deployment: int | None, rows: Rows, component: int, utility: float, reward: float) -> None:
        self.race.credit(deployment, rows, component, utility, reward)
        if deployment is not None:
            del self._deployed[deployment]

    def _propose(self) -> Plan:
        found = self.race.deployment()
        if found.source == "safe":
            return self._incumbent(found.reason)
        if not admits(found.utility_bound, self.task.threshold):
            return self._incumbent("the certificate does not reach the threshold", found.utility_bound)
        return Plan(found.policy, found.source, found.lam, found.utility_bound, self.level, found.reason)

    def _put_in_force(self, plan: Plan) -> None:
        super()._put_in_force(plan)
        self._planned[self._plan.id] = tuple(self.race.ledger.rows_of(plan.policy))
        self._planned.pop(self._plan.id - PLANS_REMEMBERED, None)

    def _due(self) -> bool:
        """Always: every report moves the bounds, and so the weights."""
        return True

    def _information(self) -> Array:
        return np.zeros(0)

    def _check_candidate(self, policy: Any) -> None:
        """Anything may be tried."""

    def _begin_trials(self) -> None:
        self.race = Race(self.task, self.delta)
        self._planned: dict[int | None, Rows] = {}  # recent plans
        self._deployed: dict[int, Rows] = {}  # deployments without a report

    def _begin_trial(self, candidate: Policy) -> None:
        self.race.add(candidate)

    def _withdraw(self, name: str) -> None:
        self.race.withdraw(name)

    def _require_changeable(self, constants: Any) -> None:
        if constants is not None:
            raise ValueError("a rollout has no constants: change its threshold or slack")

    def _change_limit(self) -> None:
        self.race.change(self.task)

    def _learned_state(self, policies: PolicyArrays) -> State:
        rows = {"planned": _as_array(self._planned), "deployed": _as_array(self._deployed)}
        return under("race", self.race.state(policies)) | under("rows", rows)

    def _restore_learned(self, saved: Saved) -> None:
        return None  # its policies are not there yet

    def _restore_plans(self, saved: Saved, policies: list[Policy], plans: list[Any]) -> None:
        super()._restore_plans(saved, policies, plans)
        self.race.restore(saved.under("race"), policies)
        self._planned, self._deployed = (self._restored(saved.under("rows"), name) for name in ("planned", "deployed"))

    def _restored(self, saved: Saved, name: str) -> dict[Any, Rows]:
        found = saved.wholes(name, (None, 3), -1, 2**62)
        if (found[:, :2] < 0).any() or (found[:, 1:] >= len(self.race.ledger.policies)).any():
            saved.refuse(name, "has rows that are not there")
        return {number: tuple(row for row in rows if row >= 0) for number, *rows in found.tolist()}

    def settings(self) -> dict[str, str | int | float]:
        """What is promised, and what that assumes."""
        task = self.task
        incumbent = "b + slack" if task.slack is not None else "at least b"
        totals = AT_LEAST.format(task.least_total) if task.least_total else "total utilities are not negative"
        statement = (
            f"every deployed mixture has expected utility at least b, in all episodes together, with probability "
            f"{1 - self.delta:g}, if each episode, given who acts, is independent of all before it, and those of a "
            f"policy are alike: a policy is frozen, a change is a new candidate, and nothing is remembered from one "
            f"episode to another; the coin is tossed as the weights say, before the episode; whatever comes of it "
            f"counts for who was drawn, time-outs and fallbacks too; {totals}; and the incumbent has "
            f"{incumbent}; reports may be late or lost in a session, which counts deployments, and without one each "
            f"comes once"
        )
        said = {"slack": task.slack, "utility_max": task.utility_max}
        known = {name: "unknown" if value is None else value for name, value in said.items()}
        known |= {"least_total": task.least_total} if task.least_total else {}
        return {"agent": self.label, "level": self.level, "delta": self.delta, **known, "statement": statement}

    def arguments(self) -> dict[str, Any]:
        """What its constructor was given, and the candidates that came later."""
        task = self.task
        candidates = {name: candidate.policy for name, candidate in self.candidates.items()}
        own = {"candidates": candidates, "incumbent": task.incumbent, "delta": self.delta}
        ends = {"utility_max": task.utility_max, "least_total": task.least_total}
        return {"threshold": task.threshold, "slack": task.slack, **own, **ends}


def _as_array(rows: Mapping[Any, Rows]) -> Any:
    """Numbers and their rows, (m, 3); −1 where there is only one."""
    return np.array([(number, *these, -1)[:3] for number, these in rows.items()], dtype=np.int64).reshape(-1, 3)
