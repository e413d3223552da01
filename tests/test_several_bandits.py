"""Bandits of finitely many arms under several constraints: plans, the optimum, and everything around them."""

import shutil

import numpy as np
import pytest
import scipy.optimize

import episafe as es
from episafe.kernels.bandit_regression import radius_now
from episafe.reports.report import write_report
from episafe.runs.run import Simulation, accelerated, loop, plain_loop
from episafe.testing import check_bandit_agent

B = es.bandits
NAMES = ["margin", "novelty", "stock"]


def drawn(seed, m, dim=4, num_arms=12):
    """A random problem: arms, parameters, and an incumbent of two arms that is strictly safe in all constraints."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(1 + m, dim))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    arms = rng.normal(size=(num_arms, dim))
    arms /= np.maximum(np.linalg.norm(arms, axis=1, keepdims=True), 1) * rng.uniform(1, 2, size=(num_arms, 1))
    incumbent = np.zeros(num_arms)
    incumbent[np.argsort(arms @ theta[1:].sum(axis=0))[-2:]] = 0.5
    thresholds = theta[1:] @ (incumbent @ arms) - rng.uniform(0.05, 0.3, size=m)
    return B.LinearBandit(theta[0], theta[1:], arms, thresholds, incumbent, noise=0.1, names=NAMES[:m])


def best(f, g, thresholds):
    """max E[f] s.t. E[g_c] ≥ b_c over distributions, by HiGHS; g (m, n)."""
    n = len(f)
    solved = scipy.optimize.linprog(-f, A_ub=-g, b_ub=-thresholds, A_eq=np.ones((1, n)), b_eq=[1.0], method="highs")
    assert solved.status == 0
    return -solved.fun


def norm_of(model, policy):
    """β_π = E_π‖a‖_{Λ⁻¹}."""
    return policy.probabilities @ np.sqrt(np.einsum("ni,ij,nj->n", policy.atoms, model.gram_inv, policy.atoms))


def fed(agent, bandit, count, seed):
    """Random arms and what is seen of them."""
    rng, m = np.random.default_rng(seed), bandit.task.num_constraints
    actions = bandit.task.arms(0)[rng.integers(len(bandit.task.arms(0)), size=count)]
    noise = bandit.task.noise * rng.normal(size=(count, 1 + m))
    agent.learn(actions, actions @ bandit.theta_r + noise[:, 0], actions @ bandit.theta_u.T + noise[:, 1:])


@pytest.mark.parametrize("m", [2, 3])
def test_the_optimum_is_that_of_an_independent_linear_program(m):
    for seed in range(40):
        bandit = drawn(seed, m)
        arms, policy = bandit.task.arms(0), bandit.optimal_policy()
        exact = best(arms @ bandit.theta_r, (arms @ bandit.theta_u.T).T, bandit.task.limits)
        assert bandit.optimal_value() == pytest.approx(exact, abs=1e-9)
        assert (bandit.evaluate(policy)[1] >= bandit.task.limits - 1e-12).all()
        assert len(policy.probabilities) <= m + 1


@pytest.mark.parametrize("m", [2, 3])
def test_plans_are_those_of_an_independent_linear_program(m):
    searched = 0
    for seed in range(40):
        bandit = drawn(seed, m)
        agent = B.OPLBSP(bandit.task, radius="determinant", optimism=1.5, slack=("told", "estimated")[seed % 2])
        fed(agent, bandit, 20_000, seed)
        plan, arms, safe, b = agent.plan(), bandit.task.arms(0), bandit.task.incumbent(0), bandit.task.limits
        model = agent.learner.model
        C = radius_now(agent.learner.radius, model.log_det[0], model.seen[0])
        gram_inv = np.linalg.inv(model.gram)
        beta = np.sqrt(np.einsum("ni,ij,nj->n", arms, gram_inv, arms))
        theta = gram_inv @ model.sums.T
        f, g = arms @ theta[:, 0] + 1.5 * C * beta, (arms @ theta[:, 1:]).T - C * beta
        slacks = [one.slack for one in bandit.task.constraints]
        xi = min(slacks) if seed % 2 == 0 else (g @ safe - b).min()
        if safe @ beta * C > xi / 2:
            assert plan.source == "safe" and plan.utility_bound == pytest.approx(g @ safe, abs=1e-9)
            continue
        searched += 1
        place = [int(np.flatnonzero((arms == atom).all(axis=1))[0]) for atom in plan.atoms]
        assert plan.source == "search" and (plan.utility_bound >= b).all() and len(place) <= m + 1
        assert plan.probabilities @ f[place] == pytest.approx(best(f, g, b), abs=1e-8)
        assert plan.utility_bound == pytest.approx(g[:, place] @ plan.probabilities, abs=1e-9)
    assert searched > 20


def test_the_radius_has_a_share_for_every_signal():
    from episafe.learning.bandit_radius import radius

    for kind in ("paper", "determinant", "anytime"):
        one, three = drawn(0, 1).task, drawn(0, 3).task
        told = radius(kind, one, 100, 0.05)[0], radius(kind, three, 100, 0.1)[0]
        assert told[0] == told[1]  # δ/2 for each of two, δ'/4 for each of four


def test_one_constraint_in_a_list_is_that_constraint_bit_for_bit():
    plain = B.make("finite", seed=1)
    task = plain.task
    given = (task.actions, [task.threshold], task.safe_policy)
    listed = B.LinearBandit(plain.theta_r, [plain.theta_u], *given, noise=task.noise, slack=[task.slack])
    records = [B.run(one, B.OPLBSP(one.task, radius=0.6), 500, 3) for one in (plain, listed)]
    for name in ("reward_values", "utility_values", "utility_bounds", "lams"):
        np.testing.assert_array_equal(*(getattr(record, name) for record in records))
    assert records[1].utility_values.shape == (500,) and listed.task.slack == task.slack


def changing(seed):
    """A bandit of two constraints whose arms change with the round."""
    bandit = drawn(seed, 2)
    arms, safe = bandit.task.arms(0), bandit.task.incumbent(0)
    slack = [one.slack for one in bandit.task.constraints]
    told = bandit.task.limits, lambda k: np.roll(safe, k % 3)
    return B.LinearBandit(
        bandit.theta_r, bandit.theta_u, lambda k: np.roll(arms, k % 3, axis=0), *told, noise=0.1, slack=slack
    )


@pytest.mark.parametrize("problem", [lambda: drawn(5, 2), lambda: changing(5), lambda: drawn(6, 3)])
@pytest.mark.parametrize("kind", [B.OPLBSP, B.OFUL])
def test_the_compiled_loop_is_the_plain_one_bit_for_bit(problem, kind):
    outcomes = []
    for played in (plain_loop, loop):
        bandit = problem()
        agent = kind(bandit.task, 2_000, radius=0.1, replan=es.Doubling(0.1))
        made = Simulation(bandit, agent, 400, 5)
        assert accelerated(made.world, kind(bandit.task, 2_000), made.columns, 0, None) is not None
        list(played(made.world, made.session, made.columns))
        outcomes.append((made.columns, agent.learner.model, agent.plan(400)))
    (columns, model, plan), (columns_2, model_2, plan_2) = outcomes
    for ours, theirs in zip((*columns.facts, *model), (*columns_2.facts, *model_2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if columns.optima is not None:
        np.testing.assert_allclose(columns.optima, columns_2.optima, atol=1e-12)
    np.testing.assert_array_equal(plan.atoms, plan_2.atoms)
    np.testing.assert_array_equal(plan.utility_bound, plan_2.utility_bound)
    assert len(set(columns.facts.sources.tolist())) == (2 if kind is B.OPLBSP else 1)


def test_a_kept_run_goes_on_is_audited_and_reported_by_the_names_of_its_constraints(tmp_path):
    bandit = drawn(3, 2)
    agent = lambda: B.OPLBSP(bandit.task, radius=0.2, optimism=1.0, replan=es.Doubling(0.2))  # noqa: E731
    whole = B.run(bandit, agent(), 3_000, 1)
    part = B.run(bandit, agent(), 1_700, 1, folder=tmp_path / "run")
    assert part.utility_values.shape == part.utility_bounds.shape == (1_700, 2)
    record = B.run(bandit, agent(), 3_000, 1, folder=tmp_path / "run")
    np.testing.assert_array_equal(record.utility_bounds, whole.utility_bounds)
    assert record.constraint_names == ("margin", "novelty") and not record.violating().any()
    assert {"safe", "search"} == set(record.sources)
    loaded = es.Record.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.utility_values, whole.utility_values)
    audit = es.audit(tmp_path / "run")
    assert not audit.faults and not audit.damage and audit.recomputed == audit.checked > 10
    page = write_report(tmp_path / "run").read_text()
    assert "margin" in page and "novelty" in page


def test_a_session_keeps_reports_of_several_utilities_and_opens_again(tmp_path):
    bandit, rng = drawn(4, 2), np.random.default_rng(0)
    agent = lambda: B.OPLBSP(bandit.task, radius="determinant", optimism=1.0)  # noqa: E731
    with es.open(tmp_path / "live", agent=agent()) as session:
        for _ in range(40):
            made = session.deploy(rng)
            action = made.plan.draw(rng)
            utility = bandit.theta_u @ action + 0.1 * rng.normal(size=2)
            session.learn(action, bandit.theta_r @ action, utility, deployment=made.id)
        with pytest.raises(es.InvalidEpisode, match="2 utilities, one a constraint"):
            session.learn(action, 0.1, 0.2, deployment=session.deploy(rng).id)
        plan = session.agent.plan()
    with es.open(tmp_path / "live", agent=agent()) as again:
        np.testing.assert_array_equal(again.agent.plan().utility_bound, plan.utility_bound)
        assert again.task.constraint_names == ("margin", "novelty") and again.agent.num_learned == 40
    assert es.audit(tmp_path / "live").faults == []
    page = write_report(tmp_path / "live").read_text()
    assert "novelty" in page and "constraint 1" not in page


def test_monitors_name_the_constraint_whose_incumbent_fails():
    bandit = drawn(7, 2)
    task, rng = bandit.task, np.random.default_rng(0)
    (sure, wrong), plan = task.constraints, B.Incumbent(task).plan()
    slack = [sure.slack, wrong.slack + 0.3]
    told = B.BanditTask(4, task.actions, task.limits, task.safe_policy, slack, 0.1, 1.0, ["margin", "novelty"])
    monitors = B.Monitors(told)
    for _ in range(3_000):
        monitors.watch(plan, bandit.theta_u @ plan.draw(rng) + 0.1 * rng.normal(size=2))
    assert {alarm.says.split(":")[0] for alarm in monitors.alarms} == {"novelty"}


def test_where_only_the_first_constraint_is_checked_the_second_is_violated():
    broken = 0
    for seed in range(6):
        bandit = B.make("finite", seed=seed, num_constraints=2)
        careless = B.OPLBSP(bandit.task.of_constraint(0), radius="determinant", optimism=1.0)
        alone = B.LinearBandit(
            bandit.theta_r, bandit.theta_u[0], bandit.task.actions, bandit.task.limits[0], bandit.task.safe_policy,
            slack=bandit.task.constraints[0].slack,
        )  # fmt: skip
        B.run(alone, careless, 5_000, seed)
        careful = B.run(bandit, B.OPLBSP(bandit.task, radius="determinant", optimism=1.0), 5_000, seed)
        assert not careful.violating().any()
        broken += bandit.evaluate(careless.plan().policy)[1][1] < bandit.task.limits[1] - 1e-9
    assert broken >= 3


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda b: B.ROFUL(b.task, 10), r"roful takes one constraint, .* \(margin, novelty\): use es.bandits.OPLBSP"),
        (lambda b: B.SafeLUCB(b.task, 10), "safe-lucb takes one constraint"),
        (lambda b: B.OPLB(b.task, 10, known_utility=1.0), "oplb takes one constraint"),
        (lambda b: b.task.threshold, "the task has 2 constraints"),
        (lambda b: B.BanditTask(2, B.Ball(), [0.1, 0.1], [0, 1], [0.1, 0.1], 0.1, 1.0), "list arms of the ball"),
        (lambda b: B.BanditTask(2, np.eye(2), [0.1, 0.1], [0, 1], [0.1], 0.1, 1.0), "give 2, one a constraint"),
        (lambda b: B.LinearBandit([1, 0], [[0, 1]], np.eye(2), [0.1, 0.1], [0, 1]), "theta_u"),
        (lambda b: B.LinearBandit([1, 0], [[0, 1], [1, 0]], np.eye(2), [0.1, 0.1], [0, 1]), "of constraint 1"),
        (lambda b: B.OPLBSP(B.BanditTask(2, np.eye(2), [0.1, 0], [0, 1], None, 0.1, 1.0), 9), "ξ of constraint 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(build, what):
    with pytest.raises(es.InvalidProblem, match=what):
        build(drawn(1, 2))


def test_an_agent_told_of_more_slack_in_any_constraint_is_refused():
    task = drawn(1, 2).task
    slack = [one.slack + extra for one, extra in zip(task.constraints, (0.0, 0.2), strict=True)]
    told = B.BanditTask(4, task.actions, task.limits, task.safe_policy, slack, 0.1, 1.0)
    with pytest.raises(es.Infeasible, match="of constraint 1, the bandit has"):
        B.run(drawn(1, 2), B.OPLBSP(told, 10), 10)


def test_the_battery_of_agents_holds_for_several_constraints():
    check_bandit_agent(lambda task: B.OPLBSP(task, 1_000, radius=0.2), {"two": drawn(5, 2)})


@pytest.mark.parametrize("m", [2, 3])
def test_the_lemmas_of_feasibility_and_optimism_hold_in_all_constraints_at_once(m):
    """As docs/bandits.md has them: on the event, once the trigger has passed, with ξ the least slack."""
    passed = 0
    for seed in range(20):
        bandit = drawn(seed, m)
        agent = B.OPLBSP(
            bandit.task, radius="determinant", optimism=1 + 4 / min(o.slack for o in bandit.task.constraints)
        )
        fed(agent, bandit, 20_000, seed)
        model, safe, best_policy = agent.learner.model, bandit.safe_policy(), bandit.optimal_policy()
        C, theta = radius_now(agent.learner.radius, model.log_det[0], model.seen[0]), model.gram_inv @ model.sums.T
        errors = theta.T - np.vstack([bandit.theta_r, bandit.theta_u])
        assert np.sqrt(np.einsum("gi,ij,gj->g", errors, model.gram, errors)).max() <= C
        xi, room = min(one.slack for one in bandit.task.constraints), 2 * C * norm_of(model, safe)
        if room > xi:
            continue
        passed += 1
        alpha = (xi - room) / (xi - room + 2 * C * norm_of(model, best_policy))
        mean = (1 - alpha) * safe.mean() + alpha * best_policy.mean()
        mixed_beta = (1 - alpha) * norm_of(model, safe) + alpha * norm_of(model, best_policy)
        assert (theta[:, 1:].T @ mean - C * mixed_beta >= bandit.task.limits - 1e-12).all()
        plan = agent.plan()
        optimistic = theta[:, 0] @ plan.policy.mean() + agent.optimism * C * norm_of(model, plan.policy)
        assert plan.source == "search" and optimistic >= bandit.optimal_value() - 1e-9
    assert passed >= 5


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("false_alarm", [0.01, 0])
def test_a_batch_in_which_nobody_came_is_a_report_of_nothing(m, false_alarm, tmp_path):
    """The monitors refused it when the agent had taken it in: 6 of 6 folders could not be opened after a kill."""
    bandit, rng = drawn(5, m), np.random.default_rng(0)
    opened = lambda folder: es.open(folder, B.OPLBSP(bandit.task, radius="determinant"), false_alarm=false_alarm)  # noqa: E731
    with opened(tmp_path / "live") as session:
        for size in [2, 0, 3, 0, 1]:
            made = session.deploy(rng)
            actions = np.array([made.plan.draw(rng) for _ in range(size)]).reshape(size, 4)
            seen = np.zeros(size), np.zeros(size if m == 1 else (size, m))
            session.learn(*((actions, *seen) if size != 0 or made.id == 1 else ([], [], [])), deployment=made.id)
        assert (session.agent.num_learned, session.status().num_missing) == (6, 0)
        killed = tmp_path / "killed"
        shutil.copytree(tmp_path / "live", killed)
    with opened(killed) as session:
        assert session.agent.num_learned == 6
    for folder in (killed, tmp_path / "live"):
        assert es.audit(folder, agent=B.OPLBSP(bandit.task, radius="determinant")).is_whole


def test_what_monitors_refuse_after_it_was_learned_breaks_the_session(monkeypatch):
    """It is learned and not written down: nobody may go on with it."""
    bandit, rng = drawn(5, 1), np.random.default_rng(0)
    session = es.open(None, B.OPLBSP(bandit.task, radius="determinant"))

    def refuses(*report):
        raise es.InvalidEpisode("no")

    made = session.deploy(rng)
    monkeypatch.setattr(session.monitors, "report", refuses)
    with pytest.raises(RuntimeError, match="refuse what the agent has learned: no"):
        session.learn(made.plan.draw(rng), 0.0, 0.0, deployment=made.id)
    assert "learning failed" in session.broken and session.deploy(rng).id == -1
