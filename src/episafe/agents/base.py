"""The one interface of every agent, of episodes and of rounds: plan, learn. What differs is said by the task.

The base owns which plan is in force, when to plan again, the last resort, and how all of it is kept.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from episafe.agents import agent_state, changes
from episafe.agents.changes import Begun, Change
from episafe.certify.base import INCUMBENT, Deployable, require_free_name
from episafe.certify.ordered_reports import OrderedReports
from episafe.errors import InvalidEpisode
from episafe.kernels.mixing import admits_all
from episafe.learning.planner import Every, Replanning
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.regression import AnyRegression
from episafe.problems.policy import Component, MixturePolicy, Policy, as_policy
from episafe.storage.atomic_files import as_output, write_arrays
from episafe.storage.state_reader import Saved, State
from episafe.types import HELD, Amount, Array, Level, Plan, every_constraint

STORABLE = "give it the methods _learned_state and _restore_learned (see agents/triple_q.py)"
TASKS = {"mdp": "an es.Task or es.SampledTask", "bandit": "an es.bandits.BanditTask", "rollout": "a RolloutTask"}
Problem = Literal["mdp", "bandit", "rollout"]
Held = tuple[int, tuple[Any, ...], int | None]  # a report that waits for its turn: its deployment, itself, its plan


class Agent(ABC):
    """Plans, and learns from reports. An agent says what to propose, and by what it learns.

    Any failure inside a certified agent's planning deploys the incumbent, with `failed` and the reason in the plan.

    Args:
        task: what the learner is told.
        replan: when to plan again.
        label: what records call it; by default its name.

    Attributes:
        learner: what it learns by, where it does not write `_observe` and `_information` itself: an object with
            `observe` (`observe_signals`, where the task does not tell them), `information`, `num_learned`,
            `check_length`, `state`, `restored`, `settings` and `arguments`: a `SoftmaxPlanner`, a `RegressionLearner`.
        confidence: K, δ and the multiplier that its bonuses are made of, where they are published ones.
        certificate: what proves policies on trial, of a certifier or of a rollout; None where the model itself does.
        round: that the plan in force was, or the next one is, made for; 0 unless arms change.
        candidates: the policies that it was given to try, by their names.
        promoted: the name of what acts when nothing else may: a policy that is proved, or the incumbent.
        changes: of threshold, slack and constants since it was built, in their order.
    """

    name: ClassVar[str]
    certified: ClassVar[bool]  # whether every plan is the incumbent or passed the check
    problem: ClassVar[Problem] = "mdp"  # what it plays: episodes, single rounds, or whatever has a total
    uses_traces: bool = False  # whether its episodes must say what chance brought
    level: Level = "heuristic"
    learner: Any = None
    confidence: Any = None
    certificate: Any = None
    round: int = 0
    _first_id = 0

    def __init__(self, task: Any, replan: Replanning, label: str = "") -> None:
        if getattr(task, "kind", "") != self.problem:
            hint = ": pass its .task" if hasattr(task, "task") else ""
            raise TypeError(f"{self.name} is built from {TASKS[self.problem]}, got {type(task).__name__}{hint}")
        if isinstance(replan, type) or not hasattr(replan, "due"):
            raise TypeError(f"replan must be a rule such as es.Every() or es.Doubling(0.3), got {replan!r}")
        self.task, self.replan, self.label = task, replan, label or self.name
        self._plan: Any = None
        self._learned = False  # anything since the plan in force was made
        self._outdated = False  # whether a person has since changed what may be deployed
        self._deployment: int | None = None  # that the report is of which is being learned, where a session counts
        self._named = True  # whether it is sure which deployment that is
        self._reports: OrderedReports[Held] = OrderedReports()  # those that wait for their turn, where order matters
        self.information_then: Array = np.zeros(0)
        self.num_runs = 0  # by `run`, which draws other random numbers in each
        self.candidates: dict[str, Policy] = {}
        self.promoted = INCUMBENT
        self.changes: list[Change] = []
        self._begun: Begun | None = None  # as it was built, once it is changed
        self.logs: list[str] = []  # SHA-256 of those learned: one that is learned twice would count twice

    def plan(self, round: int | None = None) -> Any:
        """The plan for what comes next: the last one, unless it is time for a new one. Deterministic.

        Args:
            round: k, counted from 0, where the arms change with the round; by default the number of observations,
                which is k unless feedback is late.
        """
        k = self._as_round(round)
        if self._plan is None or self._is_stale(k):
            self.round = k
            self._put_in_force(self._attempt())
        if self.certificate is not None:
            self._issue(self._plan)
        return self._plan

    @property
    def learns_in_order(self) -> bool:
        """Whether a session must hand on reports in the order of deployments.

        A model of level theorem holds for data whose number and order do not depend on their noise: so it learns from
        the deployments before the oldest one that is not reported, and from no others. Other certificates count them.
        """
        return self.certificate is None and self.level == "theorem"

    @property
    def void(self) -> str:
        """Why nothing that was certified holds any more, where an episode has shown it; "" if all is well."""
        return str(getattr(self.certificate, "void", ""))

    @property
    def refuted(self) -> str:
        """Why what replays of traces have certified holds no more, where an episode has shown it; "" if all is well."""
        return str(getattr(self.certificate, "refuted", ""))

    @property
    def counts_deployments(self) -> bool:
        """Whether what is proved depends on which deployment a report is of."""
        return self.certificate is not None or self.level == "theorem"

    @property
    def needs_names(self) -> bool:
        """Whether a report must say which deployment it is of, where several of a plan are under way."""
        return self.learns_in_order or bool(getattr(self.certificate, "needs_names", False))

    def add_candidate(self, name: str, policy: Any) -> None:
        """Put a policy on trial under a name of its own; what is proved of it is proved from later deployments.

        The name stands for the policy as it is: one that changes is a new candidate. Where several threads use a
        session, call `session.add_candidate`. A journal knows candidates by their names alone: an agent that goes on
        with it is given all of them again, under the same names, before it is opened.
        """
        tried = self._as_candidate(policy)
        require_free_name(name, tried, {**self.candidates, INCUMBENT: self.task.safe_policy})
        self.candidates = {**self.candidates, name: Component(tried, name, self.task.read)}
        self.begin_candidate(name)

    def hold_candidates(self) -> None:
        """Take the candidates of an agent that was not used yet off trial, until `begin_candidate` is told of each."""
        if self.candidates:
            self._begin_trials()

    def drop_candidate(self, name: str) -> None:
        """Forget a candidate that is not on trial."""
        self.candidates = {other: policy for other, policy in self.candidates.items() if other != name}

    def begin_candidate(self, name: str) -> None:
        """Put a candidate on trial that the agent was given; the next plan knows of it, also where it is replayed."""
        self.certificate.add(self.candidates[name])
        self._plan_anew()

    def bounds(self) -> dict[str, Any]:
        """What is proved of each policy on trial, by its name; nothing where only whole plans are proved."""
        return self.certificate.bounds() if hasattr(self.certificate, "bounds") else {}

    def promote(self, name: str) -> None:
        """Let a certified policy act when nothing else may, or the incumbent again. No δ is spent or refunded."""
        self.require_promotable(name)
        self._promote(name)
        self._plan_anew()

    def _promote(self, name: str) -> None:
        if hasattr(self.certificate, "ledger"):
            self.certificate.ledger.pin(name)
        self.promoted = name

    def withdraw(self, name: str) -> None:
        """End the trial of a policy: what was proved of it counts no more, and its δ_j stays spent."""
        self.require_withdrawable(name)
        if self.promoted == name:
            self._promote(INCUMBENT)
        self.certificate.withdraw(name)
        self._plan_anew()

    policy_named = changes.policy_named
    require_promotable, require_withdrawable = changes.require_promotable, changes.require_withdrawable
    as_change, change = changes.checked, changes.made

    def _plan_anew(self) -> None:
        """Deploy the plan in force no more, whatever the replanning rule and the certificate say."""
        self._outdated = self._outdated or self._plan is not None

    def expect(self, plan: Any, deployment: int, component: int | None = None) -> None:
        """A session has deployed a plan, and will say by this number what came of it, if it is ever told.

        Args:
            plan: what was decided.
            deployment: its number.
            component: which policy of a mixture acts; None where the session tossed no coin, and the report will say.
        """
        if self.certificate is not None:
            self._charge(plan, deployment, component)
        elif self.learns_in_order:
            self._reports.expect(deployment)

    def abandon(self, deployment: int) -> None:
        """A session will never be told what came of a deployment. A model of level theorem learns nothing after it."""
        self._reports.abandon(deployment)
        if hasattr(self.certificate, "abandon"):
            self.certificate.abandon(deployment)

    def hear(self, deployment: int | None, *report: Any, plan_id: int | None = None, named: bool = True) -> None:
        """`learn` for a session, which counts: what came of the deployment with this number; None for no deployment.

        Args:
            deployment: its number.
            report: as for `learn`.
            plan_id: of its plan.
            named: whether it is sure that it is this one, and not another of the same plan.
        """
        self._named = named
        if deployment is None or not self.learns_in_order:
            self._hear(deployment, report, plan_id)
            return
        self.task.check_report(*report)
        for held in self._reports.take(deployment, (deployment, report, plan_id)):
            self._hear(*held)

    def _hear(self, deployment: int | None, report: tuple[Any, ...], plan_id: int | None) -> None:
        self._deployment = deployment
        try:
            self.learn(*report, plan_id=plan_id)
        finally:
            self._deployment = None

    def learn(self, *report: Any, plan_id: int | None = None) -> None:
        """Take in a report, of whatever policy: an `es.Episode`, or the action, reward and utility of a round.

        Rounds may come as a batch: actions (m, d), rewards (m,), utilities (m,). What does not fit the task changes
        nothing. An agent by itself counts no deployments: what it promises then assumes that each is reported, once,
        and that neither whether nor when depends on noise that has not arrived. A session (`es.open`) counts them.
        """
        if len(report) > self.task.report_length:  # plan_id, given by its place
            *report, plan_id = report  # type: ignore[assignment]
        observed, signals = self.task.read_report(*report)
        if plan_id is not None and (self._plan is None or plan_id not in range(self._plan.id + 1)):
            raise InvalidEpisode(f"plan_id {plan_id!r} was not issued by this agent")
        take_in = self._weigh(tuple(report), observed, plan_id) if self.certificate is not None else None
        if take_in is None:
            self._require_steps(observed)
        if observed is not None:  # totals alone teach no planner
            self._observe(*observed)
            if signals is not None:
                self._observe_signals(observed, signals)
        if take_in is not None:
            take_in()
        self._learned = True

    def check(self, *report: Any) -> None:
        """Refuse a report of no plan, as of a log, where `learn` would, and learn nothing."""
        self.task.check_report(*report)
        observed, _ = self.task.read_report(*report)
        if self.certificate is not None:
            self._weigh(report, observed, None)  # nothing is changed before what it returns is called
        else:
            self._require_steps(observed)

    def check_length(self, num_episodes: int) -> None:
        """Refuse to learn from so many episodes more, where its guarantee does not hold for them."""
        if self.learner is not None:
            self.learner.check_length(num_episodes)

    def succeed(self, plan_id: int) -> None:
        """Plan at once, as the successor of an agent whose last plan had this number: numbers are not used twice."""
        self._first_id = plan_id + 1
        self.plan()

    def fall_back(self, reason: str, round: int | None = None) -> Any:
        """Put the incumbent in force as the next plan, as if planning had failed for this reason."""
        self.round = self._as_round(round)
        self._put_in_force(self._incumbent(reason, failed=True))
        return self.plan(round)

    def lose(self, num_plans: int, reason: str, num_candidates: int = 0) -> None:
        """Go on from the incumbent, where `num_plans` plans were made and what came of the last of them is lost.

        Their numbers are not given again, and what a certificate has spent on them stays spent; so does what it spent
        on up to `num_candidates` that somebody added meanwhile. A model of level theorem learns nothing after them.
        """
        self._reports.end()
        self._promote(INCUMBENT)
        self._plan = replace(self._incumbent(reason), id=num_plans - 1)
        self._put_in_force(self._incumbent(reason))

    def incumbent_plan(self, reason: str, round: int | None = None) -> Any:
        """What is deployed when nothing else may be, as a plan that is not put in force, number −1: the incumbent, or
        what was promoted, where that can be had."""
        k = self._as_round(round)
        try:
            return replace(self._instead(k, reason), id=HELD)
        except Exception:  # of a certificate that was interrupted half way: the incumbent is safe
            return self.told_plan(reason, round)

    def told_plan(self, reason: str, round: int | None = None) -> Any:
        """The incumbent that the task tells, whatever was promoted, as a plan that is not put in force, number −1."""
        return replace(self._as_told(self._as_round(round), reason), id=HELD)

    @property
    def plan_in_force(self) -> Any:
        """The last plan that was made."""
        assert self._plan is not None
        return self._plan

    def recent_plans(self) -> list[Any]:
        """Those that may still be reported, where they count for a certificate; the last is the one in force."""
        return [] if self._plan is None else [self._plan]

    @property
    def num_learned(self) -> int:
        """How many episodes or observations were learned from, logged ones included."""
        return int(self._own_learner().num_learned)

    @property
    def rechecks(self) -> bool:
        """Whether `bound_anew` knows the bound of whatever was deployed, by its λ alone."""
        return False

    def bound_anew(self, lam: float) -> float:
        """The bound of the policy of λ from all that was learned, whatever proposed λ; where it `rechecks`."""
        raise NotImplementedError(f"{type(self).__name__} needs the policy itself to bound its utility")

    @property
    def level_so_far(self) -> Level:
        """What the bounds of all its plans so far are worth, at least."""
        return self.level

    @property
    def level_ahead(self) -> Level:
        """What the bound of the next plan is worth."""
        return self.level

    @property
    def is_used(self) -> bool:
        """Whether it has planned or learned anything."""
        return self._plan is not None or self._learned

    @property
    def is_stored(self) -> bool:
        """Whether `state` is known to hold all of it: its own class, and not one that it inherits from, says how."""
        return "_learned_state" in vars(type(self))

    def adopt(self, plan: Any, information_then: Array, round: int = 0) -> None:
        """Go on from a plan that a compiled loop made for this agent, and that was learned from since."""
        self._plan, self.round, self._learned = plan, round, True
        self.information_then = information_then.copy()

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say of this agent, as plain values."""
        replan = Every() if self.task.changes else self.replan
        said = {} if self.learner is None else self.learner.settings()
        terms = {} if self.confidence is None else self.confidence.said()
        return {"agent": self.label, "replan": repr(replan), "level": self.level, **said, **terms}

    def arguments(self) -> dict[str, Any]:
        """What its constructor was given, beyond the task: as the learner says it, or under the same name here."""
        said = {} if self.learner is None else self.learner.arguments()
        said |= {} if self.confidence is None else self.confidence.said()
        _, *names = inspect.signature(type(self)).parameters
        return {name: said[name] if name in said else getattr(self, name) for name in names}

    def fingerprint(self) -> str:
        """SHA-256 over the settings and what the task tells, as it was built; of functions, what they say of the
        initial state."""
        return agent_state.fingerprint(self)

    def fingerprint_but_incumbent(self) -> str:
        """The same without the incumbent: what stays the same where a person has replaced that, and nothing else."""
        return agent_state.fingerprint(self, but_incumbent=True)

    def save(self, path: str | Path) -> None:
        """Write the `state` to one .npz file, atomically, without pickle."""
        write_arrays(as_output(path), self.state(), {})

    state, restore = agent_state.stored, agent_state.restore

    def _as_round(self, round: int | None) -> int:
        """The round to plan for; 0 where every round is like the others."""
        if round is not None and (isinstance(round, bool) or not isinstance(round, int | np.integer) or round < 0):
            raise ValueError(f"round must be a whole number >= 0, got {round!r}: rounds are counted from 0")
        if not self.task.changes:
            return 0
        return self.num_learned if round is None else int(round)

    def _is_stale(self, round: int) -> bool:
        """Whether the plan in force is no plan for this round."""
        if self._outdated or (self.task.changes and round != self.round):
            return True
        return self._learned and (self.task.changes or self._due())

    def _put_in_force(self, plan: Any) -> None:
        number = self._first_id if self._plan is None else self._plan.id + 1
        self._plan = replace(plan, id=number, utility_bound=self._of_each(plan.utility_bound))
        self.information_then, self._learned, self._outdated = self._information().copy(), False, False

    def _attempt(self) -> Any:
        try:
            return self._propose()
        except Exception as error:  # the last resort: whatever went wrong, the incumbent is safe
            if not self.certified:
                raise
            return self._incumbent(f"planning failed: {type(error).__name__}: {error}", failed=True)

    def _incumbent(self, reason: str, utility_bound: Amount = np.nan, failed: bool = False) -> Plan:
        """The incumbent, or what was promoted, as a plan to be put in force."""
        return self._instead(self.round, reason, utility_bound, failed)

    def _instead(self, round: int, reason: str, utility_bound: Amount = np.nan, failed: bool = False) -> Plan:
        """What acts when nothing else may: what was promoted, while its bound reaches the threshold; the incumbent."""
        proved = None if self.promoted == INCUMBENT else self.bounds().get(self.promoted)
        if proved is not None and admits_all(proved, self.task.limits):
            policy = MixturePolicy([self.policy_named(self.promoted)], [1.0], [self.promoted])
            return Plan(policy, "search", np.nan, proved, self.level_ahead, reason, failed=failed)
        return self._as_told(round, reason, utility_bound, failed)

    def _as_told(self, round: int, reason: str, utility_bound: Amount = np.nan, failed: bool = False) -> Plan:
        """The incumbent that the task tells, as a plan."""
        facts = ("safe", np.nan, self._of_each(utility_bound), self.level_ahead, reason, 0, failed)
        return self.task.incumbent_plan(round, *facts)

    def as_certified(self, found: Deployable) -> Plan:
        """The plan that a certificate allows; the check is made here once more."""
        if found.source != "safe" and not admits_all(found.utility_bound, self.task.limits):
            return self._incumbent("the certificate does not reach the threshold", found.utility_bound)
        if found.source == "safe" and self.promoted != INCUMBENT:
            return self._incumbent(found.reason)
        policy = as_policy(found.policy)  # a certifier of somebody else may deploy any
        return Plan(policy, found.source, found.lam, found.utility_bound, self.level, found.reason)

    def _of_each(self, bound: Amount) -> Amount:
        """A bound as plans have it: one for each constraint, where there are several."""
        return bound if self.task.num_constraints == 1 else every_constraint(bound, self.task.num_constraints)

    @abstractmethod
    def _propose(self) -> Any:
        """A plan from all that was learned; of round `self.round`, where the arms change."""

    def _observe(self, *observed: Any) -> None:
        """Take in a checked report: states (H+1,) and actions (H,); or actions (m, d), rewards and utilities (m,)."""
        self._own_learner().observe(*observed)

    def _observe_signals(self, observed: tuple[Any, ...], signals: Array) -> None:
        """Take in the rewards and utilities (H, 2) of an observed episode, where the task does not tell them."""
        if self.learner is not None:
            self.learner.observe_signals(*observed, signals)

    def _information(self) -> Array:
        """How much is known, for the replanning rule."""
        return self._own_learner().information

    def _weigh(
        self, report: tuple[Any, ...], observed: tuple[Any, ...] | None, plan_id: int | None
    ) -> Callable[[], None]:
        """What a report says of the policy that was deployed, for agents with a certificate; may refuse it.

        Nothing is changed before what this returns is called, once the report is observed.
        """
        self._require_steps(observed)
        return lambda: None

    def _require_steps(self, observed: tuple[Any, ...] | None) -> None:
        """Refuse an episode that teaches and certifies nothing."""
        if observed is None and self._deployment is None:  # a session has counted it, and may show it to monitors
            raise InvalidEpisode(
                "the episode has its totals alone, and they certify nothing here: report states and actions, or use a "
                "certifier that learns from totals, such as es.certify.Observation, and say which plan was deployed"
            )

    def _issue(self, plan: Any) -> None:
        """Tell the certificate of a plan that is handed out, where it must know."""
        return

    def _charge(self, plan: Any, deployment: int, component: int | None) -> None:
        """Tell the certificate of a deployment, of which nothing is known yet."""
        return

    def _as_candidate(self, policy: Any) -> Any:
        """A policy as it is put on trial; one that cannot be is refused."""
        raise TypeError(
            f"{self.label} tries no policies of others: use es.OPSE(…, certifier=es.certify.Observation()), or "
            "es.Rollout, which needs no model"
        )

    def _begin_trials(self) -> None:
        """Begin as if no candidate had been put on trial."""
        return

    def _require_changeable(self, constants: Any) -> None:
        """Refuse a change where what was proved would not survive it."""
        raise ValueError(
            f"what {self.label} has proved rests on its threshold and constants, and would not survive a change: begin "
            "a new folder, and let it learn the episodes of this one, es.learn_log; or use es.certify.Observation()"
        )

    def _own_constants(self) -> Any:
        """The constants that it plans by, where it has some."""
        return None

    def _rebuild(self, task: Any, constants: Any) -> None:
        """Go on with this task and these constants; nothing may be changed in place."""
        return

    def _due(self) -> bool:
        """Whether to plan again, now that something was learned."""
        if self.certificate is not None:
            return bool(self.certificate.is_due())
        return self.replan.due(self.information_then, self._information())

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a stored state to make sense, beside the numbers of the task; as it was built."""
        if self._begun is not None:
            return self._begun.identity
        return {**self.settings(), **self.task.identity()}

    def _own_policy(self) -> Policy | None:
        """A policy that the agent was built with, beside the incumbent."""
        return None

    def _learned_state(self, policies: PolicyArrays) -> State:
        """What was learned, as named arrays; policies are numbered by `policies`."""
        raise NotImplementedError(f"{type(self).__name__} cannot be stored: {STORABLE}")

    def _restore_learned(self, saved: Saved) -> AnyRegression | None:
        """Replace what was learned, and return the regression, where there is one; nothing may be changed in place."""
        raise NotImplementedError(f"{type(self).__name__} cannot be restored: {STORABLE}")

    def _learner_state(self, policies: PolicyArrays) -> State:
        """That of the learner: `_learned_state` of agents that have learned nothing beside it."""
        return self._own_learner().state()

    def _restore_learner(self, saved: Saved) -> AnyRegression | None:
        """`_restore_learned` of the same agents."""
        self.learner = self._own_learner().restored(saved)
        return getattr(self.learner, "regression", None)

    def _own_learner(self) -> Any:
        if self.learner is None:
            raise NotImplementedError(
                f"{type(self).__name__} learns by nothing: give it a learner, or the methods _observe, _information "
                "and, where arms change, num_learned"
            )
        return self.learner

    def _restore_plans(self, saved: Saved, policies: list[Policy], plans: list[Any]) -> None:
        """Replace the plans, and what else refers to the stored `policies`; nothing may be changed in place."""
        self._plan = plans[-1] if plans else None
