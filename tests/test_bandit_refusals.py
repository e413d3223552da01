"""What a bandit, its agents and the run loop refuse, and what they keep apart: each was accepted once."""

import math

import numpy as np
import pytest

import episafe as es
from episafe.kernels.bandit_decision import REASONS, SEED
from episafe.kernels.mixing import mixed, nudged

B = es.bandits
BANDIT = B.make("finite", seed=3)
ARMS = BANDIT.task.arms(0)
BEST = np.eye(50)[np.argmax(ARMS @ BANDIT.theta_u)]


def task(bandit=BANDIT, **changes):
    names = ("dim", "actions", "threshold", "safe_policy", "slack", "noise", "norm_bound")
    return B.BanditTask(**{**{name: getattr(bandit.task, name) for name in names}, **changes})


def known(bandit=BANDIT):
    return bandit.evaluate(bandit.safe_policy())[1]


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"actions": -ARMS}, "actions"), ({"actions": ARMS[::-1]}, "actions"), ({"safe_policy": BEST}, "safe_policy")],
)
def test_an_agent_of_other_arms_or_another_incumbent_is_neither_run_nor_restored(changes, what, tmp_path):
    other = B.OPLBSP(task(**changes), 1000)
    with pytest.raises(ValueError, match=f"another problem, {what} differ: build it from bandit.task"):
        B.run(BANDIT, other, 5)
    other.save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match=f"of another agent: .*{what}"):
        B.OPLBSP(BANDIT.task, 1000).restore(tmp_path / "agent.npz")
    assert B.run(BANDIT, B.OPLBSP(task(actions=ARMS.copy()), 1000), 5).violations().max() == 0


def test_functions_of_the_round_are_compared_in_the_rounds_played():
    bandit = B.make("contexts", seed=0)
    agent = B.OPLBSP(task(bandit, actions=lambda k: bandit.task.arms(k) * (1 if k < 30 else 0.9)), 1000)
    with pytest.raises(ValueError, match="actions differ"):
        B.run(bandit, agent, 40)
    assert B.run(bandit, agent, 30).violations().max() == 0
    assert B.run(bandit, B.OPLBSP(B.make("contexts", seed=0).task, 1000), 5).violations().max() == 0


@pytest.mark.parametrize("kind", [B.ROFUL, B.SafeLUCB, B.OPLBSP])
def test_an_overstated_slack_is_refused_and_an_understated_one_is_not(kind):
    with pytest.raises(es.Infeasible, match=r"told of the slack 3, the bandit has 0\.3"):
        B.run(BANDIT, kind(task(slack=3.0), 2000), 2000)
    agent = kind(task(slack=0.1), 2000)
    assert B.run(BANDIT, agent, 2000).violations().max() == 0
    assert ("b + ξ or more" in agent.settings()["level_assumes"]) == (kind is not B.OPLBSP)


def test_oplb_must_be_told_the_truth(tmp_path):
    with pytest.raises(es.Infeasible, match="give the exact utility"):
        B.run(BANDIT, B.OPLB(BANDIT.task, 100, known_utility=known() + 0.5), 10)
    B.OPLB(BANDIT.task, 100, known_utility=known() + 0.5).save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match="of another agent: known_utility"):
        B.OPLB(BANDIT.task, 100, known_utility=known()).restore(tmp_path / "agent.npz")


def test_the_record_says_why_oplb_stopped():
    record = B.run(BANDIT, B.OPLB(BANDIT.task, 25, known_utility=known()), 100)
    assert record.settings["reasons"].startswith("50 x more observations than the radius covers")


def clicking(actions, **options):
    incumbent = (lambda k: [1, 0]) if callable(actions) else [1, 0]
    return B.LinearBandit([0.9, 0.2], [0.1, 0.8], actions, -0.5, incumbent, noise=0.5, clicks=True, **options)


def test_clicks_have_means_in_the_unit_interval():
    with pytest.raises(es.InvalidProblem, match=r"actions\[1\] has mean reward -0\.2, outside \[0, 1\]"):
        clicking([[1.0, 0.0], [0.0, -1.0]])
    with pytest.raises(es.InvalidProblem, match="clicks need arms"):
        clicking(B.Ball())
    made = clicking(lambda k: [[1.0, 0.0], [0.0, 1.0 if k < 5 else -0.5]], slack=0.1)
    for options in ({}, {"replan": type("Rule", (), {"due": lambda *_: True})()}):  # the compiled loop, the plain one
        with pytest.raises(es.InvalidProblem, match=r"actions\(5\)\[1\] has mean reward -0\.1"):
            B.run(made, B.OPLBSP(made.task, 100, **options), 10)


def test_an_incumbent_within_the_tolerance_is_drawn_from():
    arms = np.array([[0.5, 0.0], [0.0, 1.0], [0.5, 0.5]])
    made = B.LinearBandit([1.0, 0.0], [0.0, 1.0], arms, 0.5, [-5e-10, 1 + 1e-9, -5e-10])
    plan = B.OPLBSP(made.task, 100).plan()
    np.testing.assert_array_equal(plan.draw(np.random.default_rng(0)), arms[1])
    np.testing.assert_array_equal(made.safe_policy().draw(np.random.default_rng(0)), arms[1])
    raw = B.Mixture(arms, np.array([-5e-10, 1 + 1e-9, -5e-10]))
    np.testing.assert_array_equal(raw.draw(np.random.default_rng(0)), arms[1])


def test_a_plan_cannot_be_changed():
    agent = B.OPLBSP(BANDIT.task, 100, replan=es.Doubling(0.3))
    for array in (agent.plan().atoms, agent.plan().probabilities):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0
    given = np.eye(2)
    plan = B.BanditPlan(given, np.ones(2) / 2, "search")
    given[:] = 7.0
    assert plan.atoms.max() == 1.0


def test_an_unknown_slack_can_be_estimated_and_is_otherwise_asked_for():
    unknown = task(slack=None)
    record = B.run(BANDIT, B.OPLBSP(unknown, 3000, slack="estimated", radius="determinant"), 3000)
    assert record.violations().max() == 0 and record.settings["slack"] == "unknown"
    told = B.run(BANDIT, B.OPLBSP(BANDIT.task, 3000, slack="estimated", radius="determinant"), 3000)
    np.testing.assert_array_equal(record.utility_values, told.utility_values)
    with pytest.raises(es.InvalidProblem, match=r'oplbsp needs the slack .* or pass slack="estimated"'):
        B.OPLBSP(unknown, 100)
    for kind in (B.ROFUL, B.SafeLUCB):
        with pytest.raises(es.InvalidProblem, match=r"needs the slack .*: give the task a slack"):
            kind(unknown, 100)
    for agent in (B.OFUL(unknown, 100), B.Incumbent(unknown), B.OPLB(unknown, 100, known_utility=known())):
        assert len(B.run(BANDIT, agent, 5).utility_values) == 5


def test_ill_conditioned_ellipsoids_can_be_rescaled_and_learned_from():
    """Seed 0 to 59, condition 1e8: M divided by its smallest eigenvalue is accepted, and so is what is played there."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        V = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        M = V @ np.diag([0.5, 5e7, *10 ** rng.uniform(0, 6, size=3)]) @ V.T
        M = (M + M.T) / 2
        ellipsoid = B.Ellipsoid(M / np.linalg.eigvalsh(M)[0])
        longest = ellipsoid.root @ np.linalg.eigh(ellipsoid.root.T @ ellipsoid.root)[1][:, -1]
        assert ellipsoid.contains(longest)
        B.OFUL(B.BanditTask(5, ellipsoid, -1.0, np.zeros(5), 0.5, 0.5, 1.0), 10).learn(longest, 0.0, 0.0)
    assert B.Ellipsoid(np.eye(2)).tolerance == 1e-9
    with pytest.raises(es.InvalidProblem, match="eigenvalue"):
        B.Ellipsoid(np.diag([1 - 1e-6, 1e8]))


@pytest.mark.parametrize("env", ["finite", "ball"])
def test_a_seed_round_of_safe_lucb_is_not_the_incumbent_and_has_its_own_bound(env):
    bandit = B.make(env, seed=3)
    record = B.run(bandit, B.SafeLUCB(bandit.task, 1000), 90)
    assert record.safe_deployments()[-1] == 0
    assert record.settings["reasons"] == f"90 x {REASONS[SEED]}"
    bound = record.utility_bounds[0]
    assert bandit.task.threshold <= bound == pytest.approx(bandit.task.threshold, abs=1e-12)
    assert bound < record.utility_values[0] != known(bandit)


@pytest.mark.parametrize("numbers", [(math.nan, 1.0, 0.5), (0.0, math.nan, 0.5), (0.0, 1.0, math.nan), (0.0, 0.1, 0.5)])
def test_what_is_no_number_passes_no_check(numbers):
    assert math.isnan(nudged(*numbers, 0.5))
    assert mixed(0.0, 1.0, nudged(0.0, 1.0, 0.3, 0.3)) >= 0.3


def test_a_function_of_the_round_must_be_pure():
    rng = np.random.default_rng(0)
    with pytest.raises(es.InvalidProblem, match=r"actions\(0\) gave two answers .* pure function"):
        B.LinearBandit([0.9, 0.2], [0.1, 0.8], lambda k: rng.random((2, 2)) / 2, -0.5, lambda k: [1, 0], slack=0.1)
    with pytest.raises(es.InvalidProblem, match=r"safe_policy\(0\) gave two answers"):
        B.LinearBandit([0.9, 0.2], [0.1, 0.8], lambda k: np.eye(2), -0.5, lambda k: rng.dirichlet([1, 1]), slack=0.1)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: B.OPLBSP(BANDIT.task, "abc"), ValueError, "num_rounds must be a whole number >= 1, got 'abc'"),
        (lambda: B.SafeLUCB(BANDIT.task, "abc"), ValueError, "num_rounds must be a whole number"),
        (lambda: B.OPLBSP(BANDIT.task, math.nan), ValueError, "num_rounds must be a whole number"),
        (lambda: B.OPLBSP(BANDIT.task, -3, radius=1.0), ValueError, "num_rounds must be a whole number"),
        (lambda: B.OPLBSP(BANDIT.task, 10, "x"), ValueError, r"delta must be in \(0, 1\), got 'x'"),
        (lambda: B.OPLBSP(BANDIT.task, 10, None), ValueError, "delta must be in"),
        (lambda: B.OPLBSP(BANDIT.task, 10, 7, radius=1.0), ValueError, "delta must be in"),
        (lambda: B.OPLBSP(BANDIT.task, 10, optimism="a"), ValueError, "optimism must be a number, got 'a'"),
        (lambda: B.OPLBSP(BANDIT.task, 10).plan(2.7), ValueError, "round must be a whole number >= 0, got 2.7"),
        (lambda: B.OPLBSP(BANDIT.task, 10).plan(-4), ValueError, "round must be a whole number >= 0, got -4"),
        (lambda: B.run(BANDIT.task, B.Incumbent(BANDIT.task)), TypeError, "needs a LinearBandit, got BanditTask"),
        (lambda: B.run(BANDIT, None), TypeError, "needs an agent such as OPLBSP"),
        (lambda: B.run(BANDIT, B.OPLBSP), TypeError, "got the class OPLBSP: build it"),
        (lambda: B.Ellipsoid(np.eye(2), center=[0, 0, 0]), ValueError, r"center must have shape \(2\)"),
        (lambda: B.make("finite", num_arms=2), ValueError, "num_arms must be at least 3, got 2"),
        (lambda: B.make("catalogue", num_items=2), ValueError, "num_items must be at least 4, got 2"),
        (lambda: task(safe_policy=np.ones(50) / 49), ValueError, "safe_policy sums to"),
        (
            lambda: B.LinearBandit([0.9, 0.2], [0, 0.8], np.eye(2), 5, [0, 1]),
            ValueError,
            "the incumbent has utility 0.8, not above the threshold 5: lower the threshold",
        ),
    ],
)
def test_messages_name_the_place_and_the_remedy(act, error, message):
    with pytest.raises(error, match=message):
        act()


@pytest.mark.parametrize("radius", [np.int64(2), np.float32(2)])
def test_a_radius_may_be_any_real_number(radius):
    assert B.OPLBSP(BANDIT.task, 10, radius=radius).settings()["level"] == "heuristic"
