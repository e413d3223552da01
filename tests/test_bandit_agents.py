"""Bandit learners: against slow transcriptions, under one contract, across save and restore, batches and delays."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

import episafe as es
from episafe.kernels.bandit_decision import REASONS
from episafe.kernels.bandit_regression import radius_now
from episafe.learning.bandit_radius import radius
from episafe.runs.fast.bandit_loop import _spans
from episafe.runs.run import Simulation, accelerated, loop, plain_loop

ENVS = ["finite", "ball", "ellipsoid", "contexts"]
K = 20_000


def build(kind, bandit, num_rounds=K, **options):
    if kind == "oplb":
        options["known_utility"] = bandit.evaluate(bandit.safe_policy())[1]
        return es.bandits.OPLB(bandit.task, num_rounds, **options)
    classes = {
        "oplbsp": es.bandits.OPLBSP,
        "oful": es.bandits.OFUL,
        "lucb": es.bandits.SafeLUCB,
        "roful": es.bandits.ROFUL,
    }
    return classes[kind](bandit.task, num_rounds, **options)


def fed(agent, bandit, num_rounds=400, seed=0):
    """The agent after random actions, so that it knows enough to leave the incumbent."""
    rng = np.random.default_rng(seed)
    if bandit.task.is_finite:
        arms = np.concatenate([bandit.task.arms(k) for k in range(10)])
        actions = arms[rng.integers(len(arms), size=num_rounds)]
    else:
        actions = rng.normal(size=(num_rounds, bandit.task.dim))
        actions = (actions / np.linalg.norm(actions, axis=1, keepdims=True)) @ bandit.task.convex_set.root.T
    rewards, utilities = (
        actions @ theta + 0.1 * rng.normal(size=num_rounds) for theta in (bandit.theta_r, bandit.theta_u)
    )
    agent.learn(actions, rewards, utilities)
    return agent, (actions, rewards, utilities)


def ridge(actions, *targets):
    gram = np.eye(actions.shape[1]) + actions.T @ actions
    return np.linalg.inv(gram), [np.linalg.solve(gram, actions.T @ target) for target in targets]


def linear_program(f, g, threshold):
    found = linprog(-f, A_ub=-g[None], b_ub=[-threshold], A_eq=np.ones((1, len(f))), b_eq=[1], method="highs-ds")
    return -found.fun if found.status == 0 else None


@pytest.mark.parametrize("num_seen", [5, 15_000, 40_000])
@pytest.mark.parametrize("seed", range(3))
def test_oplbsp_is_algorithm_1(seed, num_seen):
    """The paper's formulas line by line, an LP for the inner problem."""
    bandit = es.bandits.make("finite", seed)
    agent, (actions, rewards, utilities) = fed(build("oplbsp", bandit), bandit, num_seen, seed)
    B, R, xi, d, b = 1.0, 0.5, 0.3, 5, bandit.task.threshold
    C_u = B + R * math.sqrt(d * math.log(4 * K / 0.05))
    C_r = C_u * (1 + 2 * B / xi)
    gram_inv, (theta_r, theta_u) = ridge(actions, rewards, utilities)
    arms, safe = bandit.task.arms(0), bandit.task.incumbent(0)
    beta = np.sqrt(np.einsum("ni,ij,nj->n", arms, gram_inv, arms))
    plan = agent.plan()
    if num_seen >= 2 * K:
        assert "than the radius covers" in plan.reason
        return
    if C_u * (safe @ beta) > xi / 2:
        assert (plan.source, plan.reason) == ("safe", REASONS[1])
        return
    f, g = arms @ theta_r + C_r * beta, arms @ theta_u - C_u * beta
    norms = np.sqrt(np.einsum("ni,ij,nj->n", plan.atoms, gram_inv, plan.atoms))
    value = plan.probabilities @ (plan.atoms @ theta_r + C_r * norms)
    assert plan.source == "search"
    assert value == pytest.approx(linear_program(f, g, b), abs=1e-8)
    assert plan.utility_bound == pytest.approx(plan.probabilities @ (plan.atoms @ theta_u - C_u * norms), abs=1e-9)
    assert plan.utility_bound >= b


def test_both_branches_of_algorithm_1_are_reached():
    bandit = es.bandits.make("finite", 0)
    assert fed(build("oplbsp", bandit), bandit, 5)[0].plan().source == "safe"
    assert fed(build("oplbsp", bandit), bandit, 15_000)[0].plan().source == "search"


@pytest.mark.parametrize("seed", range(3))
def test_oplb_is_its_formulas(seed):
    bandit = es.bandits.make("finite", seed)
    agent, (actions, rewards, utilities) = fed(build("oplb", bandit), bandit, 500, seed)
    arms, b, u_0 = bandit.task.arms(0), bandit.task.threshold, bandit.evaluate(bandit.safe_policy())[1]
    x_0 = bandit.task.incumbent(0) @ arms
    e_0, size = x_0 / np.linalg.norm(x_0), np.linalg.norm(x_0)
    C = 1 + 0.5 * math.sqrt(5 * math.log(4 * K / 0.05))
    aside = np.eye(5) - np.outer(e_0, e_0)
    gram_inv, (theta_r,) = ridge(actions, rewards)
    rest_inv, (mu,) = ridge(actions @ aside, utilities - actions @ e_0 / size * u_0)
    f = arms @ theta_r + (1 + 2 / 0.3) * C * np.sqrt(np.einsum("ni,ij,nj->n", arms, gram_inv, arms))
    across = arms @ aside
    g = arms @ e_0 / size * u_0 + across @ mu - C * np.sqrt(np.einsum("ni,ij,nj->n", across, rest_inv, across))
    plan = agent.plan()
    where = [int(np.flatnonzero((arms == atom).all(axis=1))[0]) for atom in plan.atoms]
    safe = bandit.task.incumbent(0)  # one more choice, whose utility is known
    best = linear_program(np.append(f, safe @ f), np.append(g, u_0), b)
    assert plan.probabilities @ f[where] == pytest.approx(best, abs=1e-9)
    assert plan.utility_bound >= b


def test_oplb_needs_no_incumbent_phase_and_refuses_balls():
    bandit = es.bandits.make("finite", 1)
    assert build("oplb", bandit).plan().source == "search"
    with pytest.raises(es.InvalidProblem, match="finitely many arms"):
        build("oplb", es.bandits.make("ball", 1))


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("kind", ["oplbsp", "lucb", "roful"])
def test_every_plan_is_the_incumbent_or_passed_the_check(env, kind):
    bandit = es.bandits.make(env, seed=3)
    agent = build(kind, bandit, radius="determinant")
    rng = np.random.default_rng(0)
    sources = set()
    for k in range(0, 15_000, 500):
        plan = agent.plan(k)
        assert plan.probabilities.sum() == pytest.approx(1, abs=1e-12)
        assert plan.probabilities.min() >= 0
        sources.add(plan.source)
        if plan.source == "search":
            assert plan.utility_bound >= bandit.task.threshold
            model = agent.learner.model
            C = radius_now(agent.learner.radius, model.log_det[0], model.seen[0])
            norms = np.sqrt(np.einsum("ni,ij,nj->n", plan.atoms, model.gram_inv, plan.atoms))
            theta = model.gram_inv @ model.sums[1]
            bound = plan.probabilities @ (plan.atoms @ theta - C * norms)
            by_slack = kind == "roful" or plan.reason  # a seed round: it relies on the incumbent's slack
            assert by_slack or bound == pytest.approx(plan.utility_bound, abs=1e-9)
        assert agent.plan(k) is plan
        fed(agent, bandit, 500, seed=int(rng.integers(1000)))
    assert "search" in sources


EVERY, RARELY = es.Every(), es.Doubling(0.3)
CASES = [(env, kind, RARELY) for env in ENVS for kind in ("oplbsp", "oful", "lucb", "roful")]
CASES += [(env, "oplbsp", EVERY) for env in ENVS] + [("finite", "oplb", EVERY), ("finite", "oplb", RARELY)]


@pytest.mark.parametrize(("env", "kind", "replan"), CASES, ids=lambda value: str(value).split("(")[0].lower())
def test_the_compiled_loop_is_the_plain_one_bit_for_bit(env, kind, replan):
    bandit = es.bandits.make(env, seed=2)
    outcomes = []
    for played in (plain_loop, loop):
        agent = build(kind, bandit, 2_000, replan=replan, radius=0.6)  # by hand, so that the incumbent is left soon
        made = Simulation(bandit, agent, 600, 5, first_round=700)
        assert accelerated(made.world, build(kind, bandit, 2_000, replan=replan), made.columns, 0, None) is not None
        list(played(made.world, made.session, made.columns))
        best = [made.world.optimum()] if made.columns.optima is None else made.columns.optima
        outcomes.append((made.columns.facts, made.world.reasons, best, agent))
    (facts, reasons, best, agent), (facts_2, reasons_2, best_2, agent_2) = outcomes
    for ours, theirs in zip(facts, facts_2, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(reasons, reasons_2)
    np.testing.assert_allclose(best, best_2, atol=1e-12)
    for ours, theirs in zip(agent.learner.model, agent_2.learner.model, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    plan, plan_2 = agent.plan(1300), agent_2.plan(1300)
    np.testing.assert_array_equal(plan.atoms, plan_2.atoms)
    assert (plan.id, plan.source, plan.utility_bound) == (plan_2.id, plan_2.source, plan_2.utility_bound)
    assert len(set(facts.sources.tolist())) == 2 or kind in ("oful", "roful", "oplb", "lucb")


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("replan", [es.Every(), es.Doubling(0.3)], ids=["every", "doubling"])
def test_stopped_saved_restored_and_resumed_is_bit_for_bit_the_whole_run(env, replan, tmp_path):
    bandit = es.bandits.make(env, seed=4)
    whole = es.bandits.run(bandit, build("oplbsp", bandit, replan=replan, radius=0.6), 3_000, seed=7)
    agent = build("oplbsp", bandit, replan=replan, radius=0.6)
    first = es.bandits.run(bandit, agent, 1_111, seed=7)
    agent.save(tmp_path / "agent.npz")
    again = build("oplbsp", bandit, replan=replan, radius=0.6)
    again.restore(tmp_path / "agent.npz")
    rest = es.bandits.run(bandit, again, 3_000 - 1_111, seed=7, first_round=1_111)
    for name in ("reward_values", "utility_values", "sources", "lams", "utility_bounds", "plan_ids"):
        joined = np.concatenate([getattr(first, name), getattr(rest, name)])
        np.testing.assert_array_equal(joined, getattr(whole, name))
    assert len(set(whole.sources)) == 2


def test_restore_refuses_another_agent_and_damage(tmp_path):
    bandit = es.bandits.make("finite", seed=4)
    path = tmp_path / "agent.npz"
    build("oplbsp", bandit).save(path)
    with pytest.raises(ValueError, match="radius differ; build it as it was"):
        build("oplbsp", bandit, radius="determinant").restore(path)
    with pytest.raises(ValueError, match="threshold differ"):
        build("oplbsp", es.bandits.make("finite", seed=5)).restore(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(es.DamagedFile):
        build("oplbsp", bandit).restore(path)
    es.Record(*([np.zeros(1)] * 6), 0.0, 0.0).save(tmp_path / "record")
    with pytest.raises((es.DamagedFile, ValueError)):
        build("oplbsp", bandit).restore(tmp_path / "record" / "episodes.npz")


def test_batches_are_their_observations_one_by_one():
    bandit = es.bandits.make("finite", seed=5)
    batch, (actions, rewards, utilities) = fed(build("oplbsp", bandit), bandit, 600)
    single = build("oplbsp", bandit)
    for row in zip(actions, rewards, utilities, strict=True):
        single.learn(*row)
    for ours, theirs in zip(batch.learner.model, single.learner.model, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_late_feedback_in_any_order_leads_to_the_same_plan():
    bandit = es.bandits.make("ball", seed=5)
    agent, seen = fed(build("oplbsp", bandit), bandit, 15_000)
    late = build("oplbsp", bandit)
    order = np.random.default_rng(1).permutation(15_000)
    late.plan(), late.plan()  # plans may be asked for while feedback is out
    late.learn(*(column[order] for column in seen))
    np.testing.assert_allclose(late.plan().atoms, agent.plan().atoms, atol=1e-6)
    assert late.plan().utility_bound == pytest.approx(agent.plan().utility_bound, abs=1e-9)
    assert late.plan().source == "search"


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (([2.0, 0, 0, 0, 0], 0.1, 0.1), r"action\[0\] has norm 2"),
        (([1.0, 0], 0.1, 0.1), "shape"),
        (([1.0, 0, 0, 0, 0], np.nan, 0.1), "reward must be finite"),
        (([1.0, 0, 0, 0, 0], 0.1, "x"), "utility must be finite"),
        (([[1.0, 0, 0, 0, 0]], [0.1], [0.1, 0.2]), "as many rewards as utilities"),
    ],
)
def test_bad_feedback_changes_nothing(seen, message):
    agent = build("oplbsp", es.bandits.make("finite", seed=0))
    with pytest.raises(es.InvalidEpisode, match=message):
        agent.learn(*seen)
    assert agent.num_learned == 0


def test_radii_by_hand():
    """d = 5, R = 0.5, B = 1, δ = 0.05; after n observations with det Λ = e²."""
    task = es.bandits.make("finite", seed=0).task
    expected = {
        "paper": 1 + 0.5 * math.sqrt(5 * math.log(4 * 1000 / 0.05)),
        "anytime": 1 + 0.5 * math.sqrt(5 * math.log(2 * 101 / 0.05)),
        "determinant": 1 + 0.5 * math.sqrt(2 + 2 * math.log(2 / 0.05)),
    }
    for kind, value in expected.items():
        found, level = radius(kind, task, 1000, 0.05)
        assert radius_now(found, 2.0, 100) == pytest.approx(value, rel=1e-15)
        assert level == "theorem"
    found, level = radius(2.5, task, None, 0.05)
    assert (radius_now(found, 2.0, 100), level) == (2.5, "heuristic")


@pytest.mark.parametrize("dim", [1, 2, 5, 20])
def test_the_closed_forms_are_never_below_the_determinant(dim):
    """Which is why they are valid; with d in place of max{d, 2} this fails at d = 1."""
    bandit = es.bandits.make("ball", seed=0, dim=max(dim, 2))
    task = es.bandits.BanditTask(dim, es.bandits.Ball(), -1.0, np.zeros(dim), 0.5, 0.5, 1.0)
    num_rounds = 500
    paper, anytime, determinant = (
        radius(kind, task, num_rounds, 0.05)[0] for kind in ("paper", "anytime", "determinant")
    )
    for n in (0, 1, 10, 2 * num_rounds - 1):
        log_det = dim * math.log(1 + n / dim)  # the largest there can be
        tight = radius_now(determinant, log_det, n)
        assert tight <= radius_now(anytime, log_det, n) + 1e-12
        assert tight <= radius_now(paper, log_det, n) + 1e-12
    assert bandit.task.dim >= 2
    naive = 1.0 + 0.5 * math.sqrt(dim * math.log(4 * num_rounds / 0.05))
    at_the_end = radius_now(determinant, dim * math.log(1 + num_rounds / dim), num_rounds)
    assert (naive < at_the_end) == (dim == 1)


def test_levels_follow_the_radius():
    bandit = es.bandits.make("finite", seed=0)
    assert build("oplbsp", bandit).plan().level == "theorem"
    assert build("oplbsp", bandit, radius=3.0).plan().level == "heuristic"
    assert build("oful", bandit).plan().level == "heuristic"


def test_the_slack_can_be_estimated():
    """ξ̂ = û_sf − C_uβ_sf − b is at most ξ, so that the incumbent is left later, and safely."""
    bandit = es.bandits.make("finite", seed=6)
    records = {
        slack: es.bandits.run(bandit, build("oplbsp", bandit, radius="determinant", slack=slack), 20_000, seed=1)
        for slack in ("told", "estimated")
    }
    told, estimated = (records[slack].safe_deployments()[-1] for slack in ("told", "estimated"))
    assert told < estimated < 4.5 * told
    assert max(record.violations().max() for record in records.values()) == 0


def test_any_failure_inside_deploys_the_incumbent_and_the_record_says_why(monkeypatch):
    bandit = es.bandits.make("ball", seed=0)
    agent, _ = fed(build("oplbsp", bandit), bandit, 15_000)
    assert agent.plan().source == "search"

    def crash(*_):
        raise np.linalg.LinAlgError("eigenvalues did not converge")

    monkeypatch.setattr("episafe.agents.bandits.regression_learner.estimates", crash)
    agent.learn(np.zeros(5), 0.0, 0.0)
    plan = agent.plan()
    assert plan.source == "safe" and "did not converge" in plan.reason
    np.testing.assert_array_equal(plan.atoms[0], bandit.task.incumbent(0))
    with pytest.warns(RuntimeWarning, match="acted in 10 of 10 rounds, because planning failed: LinAlgError"):
        record = es.bandits.run(bandit, agent, 10)
    assert "10 x planning failed" in record.settings["reasons"]


def test_more_rounds_than_the_radius_covers_play_the_incumbent():
    bandit = es.bandits.make("finite", seed=0)
    agent, _ = fed(es.bandits.OPLBSP(bandit.task, 100, radius="paper"), bandit, 200)
    assert agent.plan().source == "safe" and "larger num_rounds" in agent.plan().reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": "tight"}, 'radius must be "paper"'),
        ({"radius": -1.0}, "finite number >= 0"),
        ({"delta": 1.0}, r"delta must be in \(0, 1\)"),
        ({"num_rounds": None}, "needs num_rounds"),
        ({"num_rounds": 2.5}, "whole number"),
        ({"slack": 0.3}, "the task holds the number"),
        ({"optimism": -1.0}, "optimism"),
    ],
)
def test_bad_options_are_refused(options, message):
    task = es.bandits.make("finite", seed=0).task
    with pytest.raises(ValueError, match=message):
        es.bandits.OPLBSP(task, **{"num_rounds": 10, **options})


def test_an_agent_is_built_from_a_task():
    bandit = es.bandits.make("finite", seed=0)
    for kind in (es.bandits.OPLBSP, es.bandits.SafeLUCB, es.bandits.ROFUL):
        with pytest.raises(TypeError, match=r"pass its \.task"):
            kind(bandit, 10)
    with pytest.raises(ValueError, match="another problem"):
        es.bandits.run(es.bandits.make("ball", seed=0), build("oplbsp", bandit), 10)


def test_a_learner_of_ones_own_runs():
    class Uniform(es.bandits.BanditAgent):
        name, certified, problem = "uniform", False, "bandit"
        num_learned = 0

        def _propose(self):
            arms = self.task.arms(self.round)
            return es.bandits.BanditPlan(arms, np.full(len(arms), 1 / len(arms)), "search")

        def _observe(self, actions, rewards, utilities):
            self.num_learned += len(actions)

        def _information(self):
            return np.zeros(1)

    bandit = es.bandits.make("finite", seed=0)
    record = es.bandits.run(bandit, Uniform(bandit.task, es.Every()), 50)
    assert record.reward_values[0] == pytest.approx((bandit.task.arms(0) @ bandit.theta_r).mean())


def test_no_path_leads_from_an_agent_to_the_parameters():
    bandit = es.bandits.make("finite", seed=0)
    agent, _ = fed(build("oplbsp", bandit), bandit, 50)
    found, seen = [agent], set()
    while found:
        thing = found.pop()
        if id(thing) in seen or isinstance(thing, str | int | float | type):
            continue
        seen.add(id(thing))
        assert thing is not bandit and thing is not bandit.theta_r and thing is not bandit.theta_u
        found += list(getattr(thing, "__dict__", {}).values()) + (
            list(thing) if isinstance(thing, tuple | list) else []
        )


def test_spans_end_where_blocks_of_luck_do():
    cut = list(_spans(1000, 0, 3000))
    assert [span.length for span in cut] == [24, 1024, 1024, 928]
    assert sum(span.length for span in cut) == 3000


@pytest.mark.parametrize("first_round", [0, 1])
def test_a_second_run_of_one_agent_has_luck_of_its_own(first_round):
    """The same noise again would be no new data, and the radius shrinks as if it were."""
    bandit = es.bandits.make("finite", seed=3)
    agent = es.bandits.OPLBSP(bandit.task, num_rounds=400)
    worlds = []
    for _ in range(3):
        made = Simulation(bandit, agent, 100, 5, first_round=first_round)
        worlds.append(made.world)
        made.play()
    noise = [np.ravel(world.chance(0)[1]) for world in worlds]
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert abs(np.corrcoef(noise[i], noise[j])[0, 1]) < 0.2
    fresh = Simulation(bandit, es.bandits.OPLBSP(bandit.task, num_rounds=400), 100, 5)
    np.testing.assert_array_equal(noise[0], np.ravel(fresh.world.chance(0)[1]))
