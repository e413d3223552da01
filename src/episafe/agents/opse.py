"""OPSE-LCMDP, Algorithm 2 of the paper: optimistic-pessimistic softmax exploration."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.certify import Certifier, Model
from episafe.certify.base import Deployment
from episafe.errors import InvalidEpisode
from episafe.kernels.mixing import admits
from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import Bisection, LamSearch
from episafe.learning.planner import Decision, SoftmaxPlanner, propose
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.replanning import Every, Replanning
from episafe.problems.policy import MixturePolicy, Policy, as_policy
from episafe.problems.sampled_problem import AnyTask, known_slack
from episafe.storage.state_reader import Saved, State, under
from episafe.types import SAFE, SOURCES, Episode, IntArray, Plan

PLANS_REMEMBERED = 1000  # an episode of an older plan is learned from, and counts for no certificate


class OPSE(Agent):
    """Explores with the composite softmax policy of the smallest λ whose pessimistic utility reaches the threshold.

    Algorithm 2 itself is `episafe.kernels.decision.decide`. With another certifier the planner only proposes: its
    constants then touch the regret and never the guarantee, which is the certifier's.

    Args:
        task: what the learner is told.
        constants: scales, κ and search limits; with `Model()` their level is the level of every plan.
        replan: when to plan again; None for the rule that goes with the constants, which is Every() for the paper's.
            With `Model()` only: other certifiers ask in their own time.
        search: how λ is looked for: `Bisection()`, the paper's, `WarmStart()` or, for large d, `Sections()`.
        certifier: what a proposed policy must pass, e.g. `es.certify.Observation(delta=0.05)`.
        num_safe_episodes: episodes of the incumbent, logged ones included, before anything else. The paper uses none;
            `bounds.incumbent_phase` many close a gap in its regret proof (docs/theory.md). Safety needs none.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("tabular", seed=0)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"))
        >>> agent.plan().source  # nothing is known yet
        'safe'
    """

    name: ClassVar[str] = "opse"
    certified: ClassVar[bool] = True
    learner: SoftmaxPlanner
    _restore_learned = Agent._restore_learner

    def __init__(
        self,
        task: AnyTask,
        constants: Constants,
        replan: Replanning | None = None,
        *,
        search: LamSearch = Bisection(),
        certifier: Certifier = Model(),
        num_safe_episodes: int = 0,
    ) -> None:
        super().__init__(task, constants.replan if replan is None else replan)
        self.constants, self.search = constants, search
        self.level = "heuristic" if task.unknown else constants.level  # nobody has derived C_θ with the rest
        self.learner = SoftmaxPlanner(task, constants, pessimistic=True, search=search)
        if isinstance(num_safe_episodes, bool) or not isinstance(num_safe_episodes, int) or num_safe_episodes < 0:
            raise ValueError(f"num_safe_episodes must be a whole number >= 0, got {num_safe_episodes!r}")
        self.num_safe_episodes = num_safe_episodes
        if isinstance(certifier, type) or not hasattr(certifier, "begin"):
            raise TypeError(f"certifier must be one such as es.certify.Observation(delta=0.05), got {certifier!r}")
        self.certifier = certifier
        self.certificate = certifier.begin(task)
        self._issued: dict[int, Plan] = {}
        self._reports_utilities: bool | None = None
        if self.certificate is not None:
            self.level = getattr(certifier, "level", "heuristic")
            self.label = f"{self.name}-{certifier.name}"
            if replan is not None and replan != Every():
                raise ValueError(f"{certifier!r} decides itself when to ask for a plan: leave out replan={replan!r}")
            if num_safe_episodes:
                raise ValueError(f"{certifier!r} begins with the incumbent by itself: leave out num_safe_episodes")

    @property
    def planner(self) -> SoftmaxPlanner:
        """What it learns and plans by."""
        return self.learner

    def plan(self, round: int | None = None) -> Plan:
        """The plan for the next episode: the last one, unless it is time for a new one. Deterministic."""
        plan: Plan = super().plan(round)
        if self.certificate is not None and plan.id not in self._issued:
            self._issued[plan.id] = plan
            self._issued.pop(plan.id - PLANS_REMEMBERED, None)
        return plan

    def consider_candidate(self) -> bool:
        """Propose a policy to the certificate if it is time to; whether that was so."""
        assert self.certificate is not None
        if not self.certificate.wants_candidate():
            return False
        self.certificate.consider(propose(self.planner, self.certificate.aim()))
        return True

    def _propose(self) -> Plan:
        learned = self.planner.num_learned
        if learned < self.num_safe_episodes:
            return self._incumbent(f"one of the first {self.num_safe_episodes} episodes")
        if self.certificate is None:
            self.planner.reach(learned + 1)
            return self.as_plan(self.planner.decide())
        self.consider_candidate()
        return self.as_certified(self.certificate.deployment())

    def as_plan(self, decision: Decision, policy: Policy | None = None) -> Plan:
        """The plan that a decision stands for; without a policy, the one that the planner has just evaluated."""
        if decision.source == SAFE:
            return self._incumbent("no λ up to lam_max is known to be safe yet", decision.utility_bound)
        policy = policy or self.planner.policy(decision.lam)
        return Plan(policy, SOURCES[decision.source], decision.lam, decision.utility_bound, self.level)

    def as_certified(self, found: Deployment) -> Plan:
        """The plan that a certificate allows; the check is made here once more."""
        if found.source != "safe" and not admits(found.utility_bound, self.task.threshold):
            return self._incumbent("the certificate does not reach the threshold", found.utility_bound)
        policy = as_policy(found.policy)  # a certifier of somebody else may deploy any
        return Plan(policy, found.source, found.lam, found.utility_bound, self.level, found.reason)

    def _due(self) -> bool:
        return super()._due() if self.certificate is None else self.certificate.is_due()

    def _weigh(self, report: tuple[Any, ...], observed: tuple[Any, ...], plan_id: int | None) -> Callable[[], None]:
        if self.certificate is None or plan_id not in self._issued:
            return super()._weigh(report, observed, plan_id)
        (episode,), (states, actions) = report, observed
        if self._reports_utilities not in (None, episode.utilities is not None):  # to leave out some would bias
            raise InvalidEpisode(
                "some episodes came with utilities and some without: report them with every episode, or with none if "
                "the task's are true"
            )
        policy, component = self._issued[plan_id].policy, episode.component
        known = isinstance(component, int | np.integer) and not isinstance(component, bool)
        if isinstance(policy, MixturePolicy) and not (known and component in range(len(policy.components))):
            raise InvalidEpisode(
                f"plan {plan_id} is a mixture of {len(policy.components)} policies: say which one acted, as drawn by "
                f"plan.policy.draw(rng), got component={episode.component!r}"
            )
        utility, reward = self._totals(episode, states, actions)
        weighed = self.certificate.weigh(policy, states, actions, utility, reward)
        self._reports_utilities = episode.utilities is not None
        return partial(self.certificate.take_in, weighed)

    def _totals(self, episode: Episode, states: Any, actions: IntArray) -> tuple[float, float]:
        """Total utility and reward of an episode: as observed where it says so, else as the task knows them."""
        utility = reward = 0.0
        for h, action in enumerate(actions.tolist()):
            known = episode.utilities is None, episode.rewards is None
            utility += float(self.task.utility_at(h, states[h])[action] if known[0] else episode.utilities[h])
            reward += float(self.task.reward_at(h, states[h])[action] if known[1] else episode.rewards[h])
        return utility, reward

    def _learned_state(self, policies: PolicyArrays) -> State:
        if self.certificate is None:
            return self.planner.state()
        if not hasattr(self.certificate, "state"):
            raise TypeError(f"{self.certifier!r} cannot be stored: give its certificate the methods state and restore")
        reports = -1 if self._reports_utilities is None else int(self._reports_utilities)
        issued = self._plan is not None and self._plan.id in self._issued
        own = under("reports", {"with_utilities": reports, "current_is_issued": issued})
        return self.planner.state() | own | self.certificate.state(policies)

    def recent_plans(self) -> list[Plan]:
        """Those that may still be reported and count for the certificate; the last is the one in force."""
        newest: list[Plan] = super().recent_plans()
        return [plan for plan in self._issued.values() if plan.id != newest[0].id] + newest

    def _restore_plans(self, saved: Saved, policies: list[Policy], plans: list[Any]) -> None:
        super()._restore_plans(saved, policies, plans)
        if self.certificate is None:
            return
        self.certificate = self.certifier.begin(self.task)
        assert self.certificate is not None
        self.certificate.restore(saved.under("certificate"), policies)
        reports = saved.under("reports")
        said = reports.whole("with_utilities", -1, 2)
        self._reports_utilities = None if said < 0 else bool(said)
        current_is_issued = bool(reports.flags("current_is_issued", ()))
        if len(plans) > PLANS_REMEMBERED + 1 or (current_is_issued and not plans):
            saved.refuse("plans.id", f"has {len(plans)} plans")
        self._issued = {p.id: p for p in plans if current_is_issued or p is not self._plan}

    def settings(self) -> dict[str, str | int | float]:
        """Those of the planner, the incumbent's first episodes and, but for the paper's own, the certifier."""
        said = super().settings()
        if self.certificate is None:
            return said | {"num_safe_episodes": self.num_safe_episodes}
        own: dict[str, str | int | float] = {"level": self.level, "slack": known_slack(self.task)}
        return said | own | self.certifier.settings()

    def arguments(self) -> dict[str, Any]:
        """Those of the planner; and the certifier or, with the paper's own, the rule and the first episodes."""
        names = ("replan", "num_safe_episodes") if self.certificate is None else ("certifier",)
        return self.planner.arguments() | {name: getattr(self, name) for name in names}
