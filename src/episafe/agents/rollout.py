"""A staged release with a proof: any policies, mixed with the incumbent by a coin, judged by their totals alone."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.certify.base import AT_LEAST
from episafe.certify.candidate_trials import CandidateTrials
from episafe.checks import as_index, as_probability
from episafe.errors import InvalidEpisode
from episafe.learning.planner import Every
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import Policy
from episafe.problems.rollout_task import RolloutTask
from episafe.problems.task import constraints_of
from episafe.storage.state_reader import Saved, State, under
from episafe.types import HELD, Amount, Array, Level, Plan

PLANS_REMEMBERED = 1000  # by an agent without a session; a session knows the rows of every deployment
Rows = tuple[int, ...]  # of the components of a plan, in the ledger


class Rollout(Agent):
    """Tries candidates beside an incumbent, and lets one act alone once its utility is proved to reach the threshold.

    Policies are opaque: functions, networks, addresses of services, names. An episode is whatever has a total utility.
    Every deployed mixture has expected utility at least b, in all episodes together, with probability 1 − delta; given
    the coin, a candidate on trial may itself be below b. `settings()["statement"]` says what that assumes. Where the
    slack is not known the incumbent has a sequence of its own, and acts alone until it is proved to be above b.

    Among several candidates the one whose trial is worth most is tried next, by its reward and the gain that it brings
    nearer, at the largest weight that the check allows; of those that are certified the one of the highest mean reward
    acts, the newest where rewards tell nothing. Worse ones are dropped (`certify/candidate_trials.py`), by tests that
    touch no guarantee.

    Args:
        threshold: b, above least_total.
        slack: ξ > 0, where the incumbent is known to have b + ξ; None where it is only known to have b.
        candidates: policies by name, the likeliest first: candidate j of n has δ_j = (δ/2)(1/(j(j+1)) + 1/(n + 1)).
            More come by `add_candidate`: after the first plan they have δ/(j(j+1)).
        incumbent: what acts today. A folder cannot see whether a name or an address still stands for the same one:
            give it a version, `es.open(…, incumbent_version=…)`.
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
    needs_names = True  # by its plan alone, a report may be of one where the coin fell otherwise

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
        if not isinstance(candidates, Mapping):
            raise TypeError(f'candidates are policies by their names, {{"v2": …}}, got {candidates!r}')
        for name, policy in candidates.items():
            self.add_candidate(name, policy)

    def bounds(self) -> dict[str, Amount]:
        """What is proved of each policy, by its name; (m,) where there are several constraints."""
        return self.certificate.ledger.bounds()

    @property
    def void(self) -> str:
        """Why nothing is proved any more: an episode had less than the least total."""
        return str(self.certificate.ledger.void)

    @property
    def num_learned(self) -> int:
        """How many episodes of its plans were reported."""
        return int(self.certificate.seen[:, -1, 0].sum())

    def _charge(self, plan: Plan, deployment: int, component: int | None) -> None:
        """Charge who was drawn until it is reported; all that may act, where nobody was drawn yet."""
        if plan.id == HELD:
            return
        rows = self._deployed[deployment] = tuple(self.certificate.ledger.rows_of(plan.policy))
        self.certificate.ledger.expect(deployment, rows if component is None else rows[component : component + 1])

    def lose(self, num_plans: int, reason: str, num_candidates: int = 0) -> None:
        """Go on from the incumbent after plans that are lost: nobody knows what came of them, so all trials end."""
        self.certificate.lose(num_candidates)
        super().lose(num_plans, reason)

    def abandon(self, deployment: int) -> None:
        """What is never reported stays at its worst for ever."""
        self._deployed.pop(deployment, None)

    def _weigh(
        self, report: tuple[Any, ...], observed: tuple[Any, ...] | None, plan_id: int | None
    ) -> Callable[[], None]:
        (episode,), deployment = report, self._deployment
        rows = self._planned.get(plan_id) if deployment is None else self._deployed.get(deployment)
        utility, reward = self.task.total("utility", episode), self.task.total("reward", episode)
        if rows is None:  # of no plan of its own: it says nothing of a candidate, but maybe of the least total
            return partial(self.certificate.ledger.credit, None, (), (), utility, reward)
        component = 0 if len(rows) == 1 and episode.component is None else as_index("component", episode.component)
        if component >= len(rows):
            raise InvalidEpisode(f"component must be below {len(rows)}, as drawn by plan.policy, got {component}")
        return partial(self._credit, deployment, rows, component, utility, reward)

    def _credit(self, deployment: int | None, rows: Rows, component: int, utility: Amount, reward: float) -> None:
        self.certificate.credit(deployment, rows, component, utility, reward)
        if deployment is not None:
            del self._deployed[deployment]

    def _propose(self) -> Plan:
        return self.as_certified(self.certificate.deployment())

    def _put_in_force(self, plan: Plan) -> None:
        super()._put_in_force(plan)
        self._planned[self._plan.id] = tuple(self.certificate.ledger.rows_of(plan.policy))
        self._planned.pop(self._plan.id - PLANS_REMEMBERED, None)

    def _due(self) -> bool:
        """Always: every report moves the bounds, and so the weights."""
        return True

    def _information(self) -> Array:
        return np.zeros(0)

    def begin_candidate(self, name: str) -> None:
        """Put a candidate on trial that the agent was given; those before the first plan share δ."""
        super().begin_candidate(name)
        if not self._planned:
            self.certificate.ledger.share_delta()

    def _as_candidate(self, policy: Any) -> Any:
        """Anything may be tried."""
        return policy

    def _begin_trials(self) -> None:
        self.certificate = CandidateTrials(self.task, self.delta)
        self._planned: dict[int | None, Rows] = {}  # recent plans
        self._deployed: dict[int, Rows] = {}  # deployments without a report

    def _require_changeable(self, constants: Any) -> None:
        if constants is not None:
            raise ValueError("a rollout has no constants: change its threshold or slack")

    def _learned_state(self, policies: PolicyArrays) -> State:
        rows = {name: self._as_array(getattr(self, f"_{name}")) for name in ("planned", "deployed")}
        return under("race", self.certificate.state(policies)) | under("rows", rows)

    def _restore_learned(self, saved: Saved) -> None:
        return None  # its policies are not there yet

    def _restore_plans(self, saved: Saved, policies: list[Policy], plans: list[Any]) -> None:
        super()._restore_plans(saved, policies, plans)
        self.certificate.restore(saved.under("race"), policies)
        self._planned, self._deployed = (self._restored(saved.under("rows"), name) for name in ("planned", "deployed"))

    def _restored(self, saved: Saved, name: str) -> dict[Any, Rows]:
        found = saved.wholes(name, (None, self._most_rows + 1), -1, 2**62)
        if (found[:, :2] < 0).any() or (found[:, 1:] >= len(self.certificate.ledger.policies)).any():
            saved.refuse(name, "has rows that are not there")
        return {number: tuple(row for row in rows if row >= 0) for number, *rows in found.tolist()}

    @property
    def _most_rows(self) -> int:
        """Policies in a mixture: one more than there are constraints."""
        return 1 + int(self.task.num_constraints)

    def _as_array(self, rows: Mapping[Any, Rows]) -> Any:
        """Numbers and their rows, as many columns as there can be; −1 where there are fewer."""
        width = self._most_rows + 1
        filled = [(number, *these, *[-1] * self._most_rows)[:width] for number, these in rows.items()]
        return np.array(filled, dtype=np.int64).reshape(-1, width)

    def settings(self) -> dict[str, str | int | float]:
        """What is promised, and what that assumes."""
        task, several = self.task, self.task.num_constraints > 1
        incumbent = "b + slack" if all(one.slack is not None for one in task.constraints) else "at least b"
        least = {f"least_total{one.of}": one.least_total for one in task.constraints if one.least_total}
        totals = " and ".join(AT_LEAST.format(x) for x in least.values()) or "total utilities are not negative"
        each = " of each constraint" if several else ""
        statement = (
            f"every deployed mixture has expected utility at least b{each}, in all episodes together, with probability "
            f"{1 - self.delta:g}, if each episode, given who acts, is independent of all before it, and those of a "
            f"policy are alike: a policy is frozen, a change is a new candidate, and nothing is remembered from one "
            f"episode to another; the coin is tossed as the weights say, before the episode; whatever comes of it "
            f"counts for who was drawn, time-outs and fallbacks too; {totals}; and the incumbent has "
            f"{incumbent}; reports may be late or lost in a session, which counts deployments, and without one each "
            f"comes once"
        )
        said = {f"slack{one.of}": one.slack for one in task.constraints} | {"utility_max": task.utility_max}
        known = {name: "unknown" if value is None else value for name, value in said.items()}
        return {"agent": self.label, "level": self.level, "delta": self.delta, **known, **least, "statement": statement}

    def arguments(self) -> dict[str, Any]:
        """What its constructor was given, and the candidates that came later."""
        task, several = self.task, self.task.num_constraints > 1
        candidates = {name: candidate.policy for name, candidate in self.candidates.items()}
        each = {
            name: [getattr(one, name) for one in task.constraints] for name in ("threshold", "slack", "least_total")
        }
        limits = each if several else {name: one for name, (one,) in each.items()}
        names = {"names": task.constraint_names} if several else {}
        own = {"candidates": candidates, "incumbent": task.incumbent, "delta": self.delta}
        return {**limits, **names, **own, "utility_max": task.utility_max}
