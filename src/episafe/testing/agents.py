"""The battery for agents: what every agent must do, whatever its algorithm. For bandit agents it is the same one."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import numpy as np

import episafe as es
from episafe.deployment.open_session import OpenSession
from episafe.testing import persistence_checks
from episafe.testing.assertions import (
    require,
    require_no_path,
    require_same_arrays,
    require_same_plans,
    require_same_records,
)
from episafe.testing.check_fixtures import (
    NUM_EPISODES,
    Check,
    Ground,
    MakeAgent,
    checks_of,
    ground_of,
    incumbent_of,
    learn_by,
    run_all,
    selected,
)
from episafe.testing.problems import small_bandits, small_problems
from episafe.types import Level


def check_agent(
    make_agent: MakeAgent, problems: Mapping[str, Any] | None = None, *, skip: Iterable[str | Check] = ()
) -> list[str]:
    """Run every check on every problem; what passed, or one AssertionError that lists what did not.

    Args:
        make_agent: task ↦ a new agent, built alike each time.
        problems: by name; by default `small_problems()`, without those that the agent refuses to be built for.
        skip: names of checks to leave out, e.g. those about states for an agent that is never stored.

    Example:
        >>> import episafe as es
        >>> from episafe.testing import check_agent
        >>> len(check_agent(lambda task: es.Fixed(task, "incumbent"))) > 30
        True
    """
    given = _accepted(make_agent, small_problems()) if problems is None else dict(problems)
    cases = [(name, (make_agent, problem)) for name, problem in given.items()]
    return run_all(selected(agent_checks(), skip), cases)


def check_bandit_agent(
    make_agent: MakeAgent, problems: Mapping[str, Any] | None = None, *, skip: Iterable[str | Check] = ()
) -> list[str]:
    """The same for bandit agents; by default on `small_bandits()`."""
    return check_agent(make_agent, _accepted(make_agent, small_bandits()) if problems is None else problems, skip=skip)


def agent_checks() -> list[Check]:
    """All checks (make_agent, problem), for `pytest.mark.parametrize`."""
    return checks_of(__name__, check_agent, check_bandit_agent) + checks_of(persistence_checks.__name__)


def check_policies_are_distributions(make_agent: MakeAgent, problem: Any) -> None:
    """Every plan draws from finite probabilities ≥ 0 that sum to 1."""
    ground = ground_of(problem)
    for plan in learn_by(ground, make_agent(ground.task), NUM_EPISODES):
        for rows in ground.distributions(plan):
            right = np.isfinite(rows).all() and rows.min() >= 0 and np.abs(rows.sum(axis=-1) - 1).max() <= 1e-9
            require(right, f"plan {plan.id} draws from {rows.tolist()}: normalise what the policy returns")


def check_certified_plans_passed(make_agent: MakeAgent, problem: Any) -> None:
    """A certified agent deploys the incumbent, or a policy whose bound is at least b in float64; NaN is not."""
    ground, agent = ground_of(problem), make_agent(problem.task)
    if not agent.certified:
        return
    for plan in learn_by(ground, agent, NUM_EPISODES):
        passed = plan.source == "safe" or bool(np.all(plan.utility_bound >= ground.task.limits))
        require(passed, f"plan {plan.id} is {plan.source!r} with the bound {plan.utility_bound}, below the threshold "
                f"{ground.task.limits}: deploy the incumbent there, or say certified = False")  # fmt: skip
    record = es.run(problem, make_agent(ground.task), NUM_EPISODES)
    reached = np.reshape(record.utility_bounds >= ground.task.limits, (len(record.sources), -1)).all(axis=1)
    passed = (record.sources == "safe") | reached
    require(passed.all(), "a record has bounds below the threshold: plan() is checked, the run's loop is not")


def check_plans_claim_no_more_than_the_agent(make_agent: MakeAgent, problem: Any) -> None:
    """The level of a plan is not above that of its agent, which records and reports tell."""
    ground, agent = ground_of(problem), make_agent(problem.task)
    known = (*get_args(Level), "")  # from proved to nothing claimed
    for plan in learn_by(ground, agent, NUM_EPISODES):
        require({plan.level, agent.level} <= set(known), f"a level is one of {known}: {plan.level!r}, {agent.level!r}")
        no_more = known.index(plan.level) >= known.index(agent.level)
        require(
            no_more, f"plan {plan.id} says {plan.level!r} where its agent says {agent.level!r}: claim what is proved"
        )


def check_safe_is_the_incumbent(make_agent: MakeAgent, problem: Any) -> None:
    """A plan that says "safe" deploys the incumbent itself."""
    ground = ground_of(problem)
    for k, plan in enumerate(learn_by(ground, make_agent(ground.task), NUM_EPISODES)):
        if plan.source == "safe":
            _require_incumbent(ground, plan, k)


def check_planning_changes_nothing(make_agent: MakeAgent, problem: Any) -> None:
    """Plans depend on what was learned and on nothing else: not on how often, or by which copy, they are asked for."""
    ground = ground_of(problem)
    often, rng = make_agent(ground.task), np.random.default_rng(1)
    once = make_agent(ground.task)
    for _ in range(NUM_EPISODES):
        plan = once.plan()
        first = often.plan()
        before = _state_of(often)
        require_same_plans(ground, plan, first, "two agents built alike plan differently: use no randomness in plan()")
        require_same_plans(ground, first, often.plan(), "plan() twice gives two plans: keep the last one until learn()")
        require_same_arrays(before, _state_of(often), "plan() once more changes the state: plan only what is due")
        args, plan_id = ground.play(plan, rng)
        for agent in (once, often):
            agent.learn(*args, **plan_id)


def check_same_seed_same_record(make_agent: MakeAgent, problem: Any) -> None:
    """The same seed gives the same record of a new agent, bit for bit."""
    first, second = (es.run(problem, make_agent(problem.task), NUM_EPISODES, 5) for _ in range(2))
    require_same_records(first, second, "two runs of one seed differ: keep clocks and global randomness out of it")


def check_nothing_secret_is_reached(make_agent: MakeAgent, problem: Any) -> None:
    """Nothing that an agent refers to, however indirectly, is the problem or its P, or an equal copy of it."""
    require_no_path(make_agent(problem.task), ground_of(problem).secrets())


def check_wrong_reports_change_nothing(make_agent: MakeAgent, problem: Any) -> None:
    """A report that does not fit is an InvalidEpisode, and the agent is as before."""
    ground, agent = ground_of(problem), make_agent(problem.task)
    list(learn_by(ground, agent, 3))
    plan, before = agent.plan(), _state_of(agent)
    good = ground.play(plan, np.random.default_rng(2))
    for words, (args, plan_id) in ground.wrong_reports(good):
        try:
            agent.learn(*args, **plan_id)
        except es.InvalidEpisode:
            require_same_arrays(before, _state_of(agent), f"{words} is refused, and yet learned from: check first")
            require_same_plans(ground, plan, agent.plan(), f"{words} is refused, and yet changes the plan: check first")
        else:
            raise AssertionError(f"learn() takes {words}: raise es.InvalidEpisode, before anything is changed")
    agent.learn(*good[0], **good[1])


def check_problem_is_no_task(make_agent: MakeAgent, problem: Any) -> None:
    """A problem in place of its task is a TypeError that says so: an agent must not be handed P."""
    try:
        make_agent(problem)
    except TypeError as error:
        require(".task" in str(error), f"the error does not name the remedy, '.task': {error}")
    except AttributeError:
        return  # make_agent itself asked the problem for what only a task has
    else:
        raise AssertionError("the agent was built from a problem, P and all: call the constructor of es.Agent")


def check_learning_needs_no_plan(make_agent: MakeAgent, problem: Any) -> None:
    """Reports from elsewhere may come before any plan, and many times."""
    ground, agent, rng = ground_of(problem), make_agent(problem.task), np.random.default_rng(3)
    for _ in range(3):
        agent.learn(*ground.play(incumbent_of(ground.task), rng)[0])
    plan = agent.plan()
    require(plan.id == 0, f"the first plan has id {plan.id}: count from 0, whatever was learned before")
    require(ground.policy_arrays(plan), "no policy came of it")


def check_failures_deploy_the_incumbent(make_agent: MakeAgent, problem: Any) -> None:
    """Whatever goes wrong inside a certified agent's planning, the incumbent is deployed, with the reason."""
    ground, agent = ground_of(problem), make_agent(problem.task)
    if not agent.certified:
        return

    def fail(*_: Any) -> None:
        raise FloatingPointError("overflow in a bonus")

    agent._propose = fail
    try:
        plan = agent.plan()
    except FloatingPointError as error:
        raise AssertionError("plan() lets an error out: leave planning to _propose, and plan() to es.Agent") from error
    said = plan.source == "safe" and "overflow in a bonus" in plan.reason
    require(said, f"after an error the plan is {plan.source!r} with the reason {plan.reason!r}: name the error there")
    _require_incumbent(ground, plan)


def check_halted_sessions_deploy_the_incumbent(make_agent: MakeAgent, problem: Any) -> None:
    """A session that is halted deploys the incumbent with the reason, and explores again only when told to."""
    ground, agent = ground_of(problem), make_agent(problem.task)
    list(learn_by(ground, agent, 5))
    last = agent.plan()
    session = OpenSession(agent)
    session.halt("a sensor broke")
    for k in range(5):
        plan = session.decide(k if agent.task.changes else None)
        said = plan.source == "safe" and "a sensor broke" in plan.reason
        remedy = "leave incumbent_plan to es.Agent"
        require(said, f"halted, and the plan is {plan.source!r} with the reason {plan.reason!r}: {remedy}")
        _require_incumbent(ground, plan, k)
    session.resume_exploring("it was mended")
    require(session.decide().id == last.id, "a halt has changed what the agent decides")


def check_overrides_are_respected(make_agent: MakeAgent, problem: Any) -> None:
    """A subclass that overrides `plan` to deploy the incumbent is obeyed by a run: no fast loop goes around it."""
    agent, plan = make_agent(problem.task), incumbent_of(problem.task)
    kind = type(agent)
    own: dict[str, Any] = {"plan": lambda self, *_: plan}
    own["learn"] = lambda self, *report, plan_id=None: kind.learn(self, *report)  # it never issued that plan
    agent.__class__ = type(f"Careful{kind.__name__}", (kind,), own)
    record = es.run(problem, agent, 10)
    obeyed = (record.sources == "safe").all() and (record.plan_ids == plan.id).all()
    said = "plan() was overridden to deploy the incumbent, and the run deploys something else"
    require(obeyed, f"{said}: choose loops by exact type")


def _accepted(make_agent: MakeAgent, problems: Mapping[str, Any]) -> dict[str, Any]:
    """The problems that the agent can be built for."""
    accepted, refused = {}, []
    for name, problem in problems.items():
        try:
            make_agent(problem.task)
            accepted[name] = problem
        except (TypeError, ValueError) as error:
            refused.append(f"{name}: {error}")
    require(accepted, "make_agent builds no agent for any problem: give problems= of its own\n" + "\n".join(refused))
    return accepted


def _state_of(agent: Any) -> dict[str, Any]:
    """The state of an agent; nothing where it has none."""
    try:
        return dict(agent.state())
    except NotImplementedError:
        return {}


def _require_incumbent(ground: Ground, plan: Any, round: int = 0) -> None:
    ours, incumbent = ground.policy_arrays(plan), ground.policy_arrays(incumbent_of(ground.task, round))
    same = len(ours) == len(incumbent) and all(map(np.array_equal, ours, incumbent))
    require(same, f"plan {plan.id} says 'safe' and deploys another policy: return task.safe_policy")
