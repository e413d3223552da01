"""OPSE-LCMDP, Algorithm 2 of the paper: optimistic-pessimistic softmax exploration."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.agents.plan_arrays import digest
from episafe.certify import Certifier, Model, strongest
from episafe.certify.base import AT_LEAST, INCUMBENT, ReportedEpisode
from episafe.checks import as_whole
from episafe.errors import InvalidEpisode
from episafe.kernels.mixing import admits_all
from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import Bisection, LamSearch
from episafe.learning.planner import Decision, Every, Replanning, SoftmaxPlanner
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.released_planner import planner_of, variant_label
from episafe.learning.several_planner import SeveralPlanner, WeightedPlanner
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.sampled_problem import AnyTask, known_slacks
from episafe.storage.state_reader import Saved, State, under
from episafe.types import SAFE, SOURCES, Episode, Level, Plan, Variant

PLANS_REMEMBERED = 1000  # an episode of an older plan is learned from, and counts for no certificate


class OPSE(Agent):
    """Improves on the incumbent, and deploys only what is known to reach the threshold.

    `es.OPSE(task)` is the recommended agent: whatever it deploys is proved, by the strongest certifier that the problem
    allows (`es.certify.strongest`), with probability 0.95. `es.OPSE(task, constants)` is the paper's: it explores with
    the composite softmax policy of the smallest λ whose pessimistic utility reaches the threshold.

    Algorithm 2 itself is `episafe.kernels.decision.decide`. With another certifier the planner only proposes: its
    constants then touch the regret and never the guarantee, which is the certifier's.

    Args:
        task: what the learner is told.
        constants: scales, κ and search limits; with `Model()` their level is the level of every plan. By default those
            of a planner that only proposes.
        replan: when to plan again; None for the rule that goes with the constants, which is Every() for the paper's.
            With `Model()` only: other certifiers ask in their own time.
        search: how λ is looked for: `Bisection()`, the paper's, `WarmStart()` or, for large d, `Sections()`.
        certifier: what a proposed policy must pass, e.g. `es.certify.Observation(delta=0.05)`. By default `Model()`,
            the paper's, where constants are given, and else the strongest that the problem allows.
        num_safe_episodes: episodes of the incumbent, logged ones included, before anything else. The paper uses none;
            `theorem_bounds.incumbent_phase` many close a gap in its regret proof (docs/theory.md). Safety needs none.
        variant: "text" for the rules of the paper, "released" for those of its code (see learning/released_planner.py),
            which made the published figures; with `Model()` only.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("tabular", seed=0)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"))
        >>> agent.plan().source  # nothing is known yet
        'safe'
        >>> es.OPSE(cmdp.task).certifier
        Observation(delta=0.05)
    """

    name: ClassVar[str] = "opse"
    certified: ClassVar[bool] = True
    learner: SoftmaxPlanner
    _restore_learned = Agent._restore_learner

    def __init__(
        self,
        task: AnyTask,
        constants: Constants | None = None,
        replan: Replanning | None = None,
        *,
        search: LamSearch = Bisection(),
        certifier: Certifier | None = None,
        num_safe_episodes: int = 0,
        variant: Variant = "text",
    ) -> None:
        recommended, constants = constants is None, constants or Constants.proposing()
        super().__init__(task, constants.replan if replan is None else replan, variant_label(self.name, variant))
        if certifier is None:
            certifier = strongest(task) if recommended else Model()
        self.constants, self.search, self.variant = constants, search, variant
        several = SeveralPlanner if task.is_listed else WeightedPlanner
        planner = planner_of(variant) if task.num_constraints == 1 else several
        self.learner = planner(task, constants, pessimistic=True, search=search)
        self.num_safe_episodes = as_whole("num_safe_episodes", num_safe_episodes, 0)
        if isinstance(certifier, type) or not hasattr(certifier, "begin"):
            raise TypeError(f"certifier must be one such as es.certify.Observation(delta=0.05), got {certifier!r}")
        self.certifier: Certifier = certifier
        self.certificate: Any = certifier.begin(task)
        self._issued: dict[int, Plan] = {}
        self._reports_utilities: bool | None = None
        if self.certificate is None:
            self._require_own_check()
            self.level = self._level_of_constants()
            return
        self._require_left_out(replan)
        self.level = getattr(certifier, "level", "heuristic")
        self.uses_traces = getattr(certifier, "uses_traces", False)
        self.label = f"{self.name}-{certifier.name}"

    def _require_own_check(self) -> None:
        """Refuse what needs a certifier."""
        if self.task.num_constraints > 1 and not self.task.is_listed:
            raise TypeError(
                "with several constraints the planner's own check needs listed states: give a certifier, such as "
                "es.certify.Observation(delta=0.05), or list the states (episafe.problems.rules.listed, es.LinearCMDP)"
            )
        if self.constants.only_proposes:
            raise ValueError(
                "Constants.proposing() has C_u = 0, so that its own check proves nothing: give it a certifier, such as "
                "es.certify.Observation(delta=0.05), or take other constants, such as Constants.tuned(task)"
            )

    def _require_left_out(self, replan: Replanning | None) -> None:
        """Refuse what a certifier decides itself."""
        said = f"{self.certifier!r}"
        if replan is not None and replan != Every():
            raise ValueError(f"{said} decides itself when to ask for a plan: leave out replan={replan!r}")
        if self.num_safe_episodes:
            raise ValueError(f"{said} begins with the incumbent by itself: leave out num_safe_episodes")
        if self.variant != "text":
            raise ValueError(f"{said} goes with the rules of the text: leave out variant={self.variant!r}")

    @property
    def planner(self) -> SoftmaxPlanner:
        """What it learns and plans by."""
        return self.learner

    @property
    def procedure(self) -> str:
        """How it works beside its constants, in words; what a calibration is bound to."""
        said = f"{type(self).__name__}, {self.certifier!r}, {self.replan!r}, {self.search}"
        return f"{said}, num_safe_episodes={self.num_safe_episodes}" if self.num_safe_episodes else said

    @property
    def level_so_far(self) -> Level:
        """That of the constants, or "heuristic" where more was learned than they were calibrated for."""
        return self._level_after(0)

    @property
    def level_ahead(self) -> Level:
        """The same with one episode more."""
        return self._level_after(1)

    def _level_after(self, num_more: int) -> Level:
        """The level up to so many episodes more; a calibration is about runs of a length, without logs."""
        told = self.constants.calibrated_for
        if self.level != "calibrated" or told is None:
            return self.level
        outside = self.logs or self.num_learned + num_more > told.num_episodes
        return "heuristic" if outside else "calibrated"

    def _level_of_constants(self) -> Level:
        if self.task.unknown or self.variant != "text":
            return "heuristic"  # nobody has derived C_θ with the rest, nor constants for other rules
        if self.constants.level != "calibrated":
            return self.constants.level
        told = self.constants.calibrated_for
        ours = digest([], self.task.numbers([self.task.safe_policy])), self.procedure
        return "calibrated" if told is not None and (told.task, told.procedure) == ours else "heuristic"

    def _issue(self, plan: Plan) -> None:
        if plan.id not in self._issued:
            self._issued[plan.id] = plan
            self._issued.pop(plan.id - PLANS_REMEMBERED, None)
            if hasattr(self.certificate, "issued"):
                self.certificate.issued(plan.id)

    def consider_candidate(self) -> bool:
        """Propose a policy to the certificate if it is time to; whether that was so."""
        assert self.certificate is not None
        if not self.certificate.wants_candidate():
            return False
        if hasattr(self.certificate, "propose"):  # it knows of more than the planner
            self.certificate.propose(self.planner)
        else:
            self.certificate.consider(self.planner.propose(self.certificate.aim()))
        return True

    def _propose(self) -> Plan:
        if self.num_safe_episodes and self.num_learned < self.num_safe_episodes:
            return self._incumbent(f"one of the first {self.num_safe_episodes} episodes")
        if self.certificate is None:
            return self.as_plan(self.planner.decide())
        self.consider_candidate()
        return self.as_certified(self.certificate.deployment())

    def as_plan(self, decision: Decision, policy: Policy | None = None) -> Plan:
        """The plan that a decision stands for; without a policy, the one that the planner has just evaluated."""
        if decision.source == SAFE:
            return self._incumbent("no λ up to lam_max is known to be safe yet", decision.utility_bound)
        policy = policy or self.planner.policy(decision.lam)
        return Plan(policy, SOURCES[decision.source], decision.lam, decision.utility_bound, self.level_ahead)

    @property
    def rechecks(self) -> bool:
        """Whether the planner's own bound is the certificate, and its one λ is all that it depends on."""
        return self.certificate is None and self.task.num_constraints == 1

    def bound_anew(self, lam: float) -> float:
        """The planner's bound of π^λ."""
        self.planner.reach(self.planner.num_learned + 1)
        return self.planner.bound_now(lam)

    def lose(self, num_plans: int, reason: str, num_candidates: int = 0) -> None:
        """Go on from the incumbent after plans that are lost; each of them may have put a proposal on trial."""
        if self.certificate is not None:
            if not hasattr(self.certificate, "lose"):
                raise NotImplementedError(f"{self.certifier!r} cannot go on after a loss: give its certificate `lose`")
            known = 0 if self._plan is None else self._plan.id + 1
            self.certificate.lose(num_candidates + max(num_plans - known, 0))
        super().lose(num_plans, reason)

    def _as_candidate(self, policy: Any) -> Any:
        if not hasattr(self.certificate, "add"):
            return super()._as_candidate(policy)
        if not hasattr(policy, "probabilities"):
            raise TypeError(
                f"a candidate needs probabilities here, got {policy!r}: give an es.TablePolicy, an object with "
                "probabilities(h, state), task.as_policy(function) or a model by episafe.adapters; es.Rollout tries all"
            )
        if isinstance(getattr(policy, "policy", policy), MixturePolicy):  # itself, or under a name
            raise TypeError("a candidate acts by itself, and a mixture by one of its components: try each of these")
        return self.task.as_candidate(policy)

    def _begin_trials(self) -> None:
        self.certificate = self.certifier.begin(self.task)

    def _require_changeable(self, constants: Any) -> None:
        if not hasattr(self.certificate, "change"):
            super()._require_changeable(constants)
        if constants is not None:
            self.planner.changed(self.task, constants)

    def _own_constants(self) -> Constants:
        return self.constants

    def _rebuild(self, task: Any, constants: Constants) -> None:
        self.constants, self.learner = constants, self.planner.changed(task, constants)

    def _charge(self, plan: Plan, deployment: int, component: int | None) -> None:
        """By shares all may have acted."""
        if plan.id in self._issued and hasattr(self.certificate, "expect"):
            self.certificate.expect(plan.policy, deployment, plan.id)

    def _weigh(
        self, report: tuple[Any, ...], observed: tuple[Any, ...] | None, plan_id: int | None
    ) -> Callable[[], None]:
        if plan_id not in self._issued:
            return self._weigh_log(report, observed, plan_id)
        (episode,), (states, actions) = report, observed or (None, None)
        reports = episode.reports_utility
        if self._reports_utilities not in (None, reports):  # to leave out some would bias
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
        utility, reward = self.task.total("utility", episode), self.task.total("reward", episode)
        outcome = ReportedEpisode(
            states, actions, utility, reward, component or 0, self._deployment, episode.trace, self._named,
            plan_id, episode,
        )  # fmt: skip
        if hasattr(self.certificate, "judge"):
            weighed = self.certificate.judge(policy, outcome)
        else:  # one of somebody else, which counts no deployments
            weighed = self.certificate.weigh(policy, states, actions, utility, reward)
        self._reports_utilities = reports
        return partial(self._take_in, weighed)

    def _take_in(self, weighed: Any) -> None:
        """Let the certificate learn; what was promoted and is proved no more acts by itself no more."""
        self.certificate.take_in(weighed)
        if self.promoted != INCUMBENT and not admits_all(self.bounds().get(self.promoted, np.nan), self.task.limits):
            self._promote(INCUMBENT)

    def _weigh_log(
        self, report: tuple[Any, ...], observed: tuple[Any, ...] | None, plan_id: int | None
    ) -> Callable[[], None]:
        (episode,) = report
        if episode.trace is None or not hasattr(self.certificate, "learn_log"):
            super()._weigh(report, observed, plan_id)
        elif observed is not None and (fault := self.task.replay_fault(episode)):
            raise InvalidEpisode(f"the episode is not what move makes of its trace, {fault}: correct one of them")
        return partial(self._learn_log, episode)

    def _learn_log(self, episode: Episode) -> None:
        """An episode of no plan that counts: its trace teaches, and below the least total it ends every proof."""
        certificate = self.certificate
        if episode.reports_utility and hasattr(certificate, "ledger"):
            certificate.ledger.credit(None, (), (), self.task.total("utility", episode), 0.0)
        if episode.trace is not None and hasattr(certificate, "learn_log"):
            certificate.learn_log(episode.trace, self._deployment is not None)

    def _learned_state(self, policies: PolicyArrays) -> State:
        if self.certificate is None:
            return self.planner.state()
        if not hasattr(self.certificate, "state"):
            raise TypeError(f"{self.certifier!r} cannot be stored: give its certificate the methods state and restore")
        reports = -1 if self._reports_utilities is None else int(self._reports_utilities)
        issued = self._plan is not None and self._plan.id in self._issued
        own = under("reports", {"with_utilities": reports, "current_is_issued": issued})
        certified: State = self.certificate.state(policies)
        return self.planner.state() | own | certified

    def recent_plans(self) -> list[Plan]:
        """Those that may still be reported and count for the certificate; the last is the one in force."""
        newest: list[Plan] = super().recent_plans()
        return [plan for plan in self._issued.values() if plan.id != newest[0].id] + newest

    def _restore_plans(self, saved: Saved, policies: list[Policy], plans: list[Any]) -> None:
        super()._restore_plans(saved, policies, plans)
        if self.certificate is None:
            return
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
            claimed = said["statement"] if self.level == self.constants.level else ""
            return said | {"level": self.level, "statement": claimed, "num_safe_episodes": self.num_safe_episodes}
        own: dict[str, str | int | float] = {"level": self.level}
        slacks = zip(self.task.constraints, known_slacks(self.task).tolist(), strict=True)
        own |= {f"slack{one.of}": slack for one, slack in slacks}
        if getattr(self.certifier, "needs_linear_kernel", False):
            own["norm_bound"] = self.task.norm_bound
        certified = self.certifier.settings()
        for one in self.task.constraints:
            if one.least_total and hasattr(self.certificate, "void"):
                own[f"least_total{one.of}"] = one.least_total
                certified["statement"] = f"{certified['statement']}; {AT_LEAST.format(one.least_total)}{one.of}"
        if self.task.num_constraints > 1:
            names = ", ".join(self.task.constraint_names)
            certified["statement"] = f"{certified['statement']}; all this of each of the constraints {names}"
        return said | own | certified

    def arguments(self) -> dict[str, Any]:
        """Those of the planner; and the certifier or, with the paper's own, the rule and the first episodes."""
        names = ("replan", "num_safe_episodes", "variant") if self.certificate is None else ("certifier",)
        return self.planner.arguments() | {name: getattr(self, name) for name in names}
