"""Linear bandits: exact answers by hand, agents against slow transcriptions, and what is claimed of them."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

import episafe as es

ENVS = ("finite", "ball", "ellipsoid", "contexts")
ARMS = [[1.0, 0.0], [0.0, 1.0]]
K = 20_000
KINDS = {"oplbsp": "OPLBSP", "oful": "OFUL", "lucb": "SafeLUCB", "roful": "ROFUL", "oplb": "OPLB"}


def bandit(**changes):
    given = {"theta_r": [0.9, 0.2], "theta_u": [0.0, 0.8], "actions": ARMS, "threshold": 0.4, "safe_policy": [0.0, 1.0]}
    return es.bandits.LinearBandit(**{**given, **changes})


def build(kind, problem, num_rounds=K, **options):
    if kind == "oplb":
        options["known_utility"] = problem.evaluate(problem.task.incumbent)[1]
    return getattr(es.bandits, KINDS[kind])(problem, num_rounds, **options)


def fed(agent, problem, num_rounds=400, seed=0):
    """Return the agent after random arms of a finite bandit, and what it saw."""
    rng, arms = np.random.default_rng(seed), problem.task.arms(0)
    actions = arms[rng.integers(len(arms), size=num_rounds)]
    rewards, utilities = (
        actions @ theta + 0.1 * rng.normal(size=num_rounds)
        for theta in (problem.theta_r, np.ravel(problem.theta_u))
    )  # fmt: skip
    agent.learn(es.Episode(np.zeros(num_rounds + 1), actions, rewards, utilities))
    return agent, (actions, rewards, utilities)


def ridge(actions, *targets):
    gram = np.eye(actions.shape[1]) + actions.T @ actions
    return np.linalg.inv(gram), [np.linalg.solve(gram, actions.T @ target) for target in targets]


def linear_program(f, g, threshold):
    found = linprog(-f, A_ub=-g[None], b_ub=[-threshold], A_eq=np.ones((1, len(f))), b_eq=[1], method="highs-ds")
    return -found.fun if found.status == 0 else None


def test_two_arms_by_hand():
    made = bandit()
    np.testing.assert_allclose(made.optimal_policy().weights, [0.5, 0.5], atol=1e-15)
    assert made.optimal_value() == pytest.approx(0.55)
    assert made.evaluate(made.task.incumbent) == pytest.approx((0.2, 0.8))
    assert made.task.slacks[0] == pytest.approx(0.4)


def test_a_ball_and_an_ellipse_by_hand():
    """max x s.t. y ≥ 0.6 on the unit disc is 0.8; on an ellipse with half-axes 1 and 1/2, y ≥ 0.3 gives the same."""
    signals = {"theta_r": [1.0, 0.0], "theta_u": [0.0, 1.0]}
    disc = bandit(**signals, actions=es.bandits.Ellipsoid.ball(2), threshold=0.6, safe_policy=[0, 0.9])
    assert disc.optimal_value() == pytest.approx(0.8, abs=1e-10)
    ellipse = es.bandits.Ellipsoid(np.diag([1.0, 4.0]))
    made = bandit(**signals, actions=ellipse, threshold=0.3, safe_policy=[0, 0.45])
    assert made.optimal_value() == pytest.approx(0.8, abs=1e-10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"theta_r": [1.0, np.nan]}, r"theta_r\[1\] is nan"),
        ({"theta_r": [2.0, 0.0]}, "norm_bound"),
        ({"actions": [[1.0, 1.0], [0.0, 1.0]]}, "norm"),
        ({"safe_policy": [0.5, 0.6]}, "sums to 1.1"),
        ({"slack": 0.0}, "slack must be a finite number > 0"),
        ({"noise": -1.0}, "noise must be"),
        ({"actions": es.bandits.Ellipsoid.ball(2, 0.5), "safe_policy": [0.0, 0.9]}, "outside the action set"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(es.InvalidProblem, match=message):
        bandit(**changes)


@pytest.mark.parametrize("name", [*ENVS, "catalogue"])
def test_environments_bind_and_have_the_stated_slack(name):
    for seed in range(5):
        made = es.bandits.make(name, seed)
        reward, utility = made.evaluate(made.optimal_policy())
        assert utility == pytest.approx(made.task.thresholds[0], abs=1e-9)
        safe_reward, safe_utility = made.evaluate(made.task.incumbent)
        assert safe_utility - made.task.thresholds[0] >= made.task.slacks[0] - 1e-9
        assert reward > safe_reward


@pytest.mark.parametrize("num_seen", [5, 15_000, 40_000])
@pytest.mark.parametrize("seed", range(3))
def test_oplbsp_is_algorithm_1(seed, num_seen):
    """The paper's formulas line by line, with a linear program for the inner problem."""
    problem = es.bandits.make("finite", seed)
    agent, (actions, rewards, utilities) = fed(build("oplbsp", problem), problem, num_seen, seed)
    B, R, xi, d, b = 1.0, 0.5, 0.3, 5, problem.task.thresholds[0]
    C_u = B + R * math.sqrt(d * math.log(4 * K / 0.05))
    C_r = C_u * (1 + 2 * B / xi)
    gram_inv, (theta_r, theta_u) = ridge(actions, rewards, utilities)
    arms, safe = problem.task.arms(0), problem.task.safe(0)
    beta = np.sqrt(np.einsum("ni,ij,nj->n", arms, gram_inv, arms))
    plan = agent.plan()
    if num_seen >= 2 * K:
        assert plan.source == "safe" and "num_rounds" in plan.reason
        return
    if C_u * (safe @ beta) > xi / 2:
        assert plan.source == "safe"
        return
    f, g, weights = arms @ theta_r + C_r * beta, arms @ theta_u - C_u * beta, plan.policy.weights
    assert plan.source == "search"
    assert weights @ f == pytest.approx(linear_program(f, g, b), abs=1e-8)
    assert plan.bounds[0] == pytest.approx(weights @ g, abs=1e-9)
    assert plan.bounds[0] >= b


@pytest.mark.parametrize("num_seen", [400, 4_000, 15_000])
@pytest.mark.parametrize("seed", range(4))
def test_oplb_is_the_program_of_its_paper(seed, num_seen):
    """Pacchiano et al. 2021, eqs. (3) to (14) with costs −u; the mean of the norms replaces the norm of the mean."""
    problem = es.bandits.make("finite", seed)
    agent, (actions, rewards, utilities) = fed(build("oplb", problem, radius="determinant"), problem, num_seen, seed)
    arms, safe, tau, c_0 = problem.task.arms(0), problem.task.safe(0), -problem.task.thresholds[0], -agent.known_utility
    x_0 = safe @ arms
    e_0 = x_0 / np.linalg.norm(x_0)
    across = np.eye(5) - np.outer(e_0, e_0)
    inv, (theta,) = ridge(actions, rewards)
    gram_across = across + across @ actions.T @ actions @ across
    inv_across = np.linalg.pinv(gram_across, rcond=1e-9)
    told = actions @ e_0 / np.linalg.norm(x_0) * c_0
    mu = inv_across @ (across @ actions.T @ (-utilities - told))
    log_dets = -np.linalg.slogdet(inv)[1], np.log(np.linalg.eigvalsh(gram_across)[1:]).sum()
    beta_r, beta_c = (1 + 0.5 * math.sqrt(log_det + 2 * math.log(2 / 0.05)) for log_det in log_dets)
    alpha_r = (2 + tau - c_0) / (tau - c_0)  # Theorem 2, with α_c = 1

    def costs(x):
        return (
            x @ e_0 * c_0 / np.linalg.norm(x_0) + x @ mu + beta_c * np.sqrt(np.einsum("...i,ij,...j", x, inv_across, x))
        )

    f = arms @ theta + alpha_r * beta_r * np.sqrt(np.einsum("ni,ij,nj->n", arms, inv, arms))
    plan, g = agent.plan(), -costs(arms)
    weights = plan.policy.weights
    best = linear_program(np.append(f, safe @ f), np.append(g, -c_0), -tau)  # the incumbent is one more choice
    assert weights @ f == pytest.approx(best, abs=1e-8)
    assert plan.bounds[0] >= -tau
    assert costs(weights @ arms) <= tau + 1e-9  # eq. (13): the policy is in the paper's set Π_t


@pytest.mark.parametrize("num_seen", [400, 4_000, 15_000])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimistic_agents_are_their_programs(seed, num_seen):
    """OFUL; Safe-LUCB after its seed rounds; ROFUL, Algorithm 1 without the scale ν/‖x̃‖, towards the incumbent."""
    problem, C = es.bandits.make("finite", seed), 0.8
    (b,), (xi,), arms, safe = problem.task.thresholds, problem.task.slacks, problem.task.arms(0), problem.task.safe(0)

    def planned(kind):
        return fed(build(kind, problem, radius=C), problem, num_seen, seed)

    oful, (actions, rewards, utilities) = planned("oful")
    inv, (theta_r, theta_u) = ridge(actions, rewards, utilities)
    beta = np.sqrt(np.einsum("ni,ij,nj->n", arms, inv, arms))
    f, low, high = arms @ theta_r + C * beta, arms @ theta_u - C * beta, arms @ theta_u + C * beta
    assert oful.plan().policy.weights @ f == pytest.approx(f.max(), abs=1e-9)

    lucb = planned("lucb")[0].plan()
    if num_seen < K ** (2 / 3):
        assert "seed" in lucb.reason
    else:
        best = linear_program(f, low, b)
        assert (lucb.source == "safe") == (best is None)
        assert best is None or lucb.policy.weights @ f == pytest.approx(best, abs=1e-8)

    roful = planned("roful")[0].plan()
    found = linprog(-f, A_ub=-high[None], b_ub=[-b], A_eq=np.ones((1, len(f))), b_eq=[1], method="highs-ds")
    bold = found.x @ low
    gamma = 1.0 if bold >= b else xi / (b + xi - bold)
    np.testing.assert_allclose(roful.policy.weights, gamma * found.x + (1 - gamma) * safe, atol=1e-7)
    assert roful.bounds[0] == pytest.approx(gamma * bold + (1 - gamma) * (b + xi), abs=1e-8)


def test_both_branches_of_algorithm_1_are_reached():
    problem = es.bandits.make("finite", 0)
    assert fed(build("oplbsp", problem), problem, 5)[0].plan().source == "safe"
    assert fed(build("oplbsp", problem), problem, 15_000)[0].plan().source == "search"


def test_radii_by_hand():
    """d = 5, R = 0.5, B = 1, δ = 0.05; after n observations with det Λ = e²."""
    problem = es.bandits.make("finite", seed=0)
    expected = {
        "paper": 1 + 0.5 * math.sqrt(5 * math.log(4 * 1000 / 0.05)),
        "anytime": 1 + 0.5 * math.sqrt(5 * math.log(2 * 101 / 0.05)),
        "determinant": 1 + 0.5 * math.sqrt(2 + 2 * math.log(2 / 0.05)),
    }
    for kind, value in expected.items():
        agent = build("oplbsp", problem, 1000, radius=kind)
        assert agent.radius.at(2.0, 100) == pytest.approx(value, rel=1e-15)
        assert agent.level == "theorem"
    assert build("oplbsp", problem, radius=2.5).level == build("oful", problem).level == "heuristic"


@pytest.mark.parametrize("env", ENVS)
def test_oplbsp_never_violates_and_oful_does(env):
    """Zero on all of 3 problems; OFUL is the negative control on the same problems."""
    length = 2_000 if env == "contexts" else 10_000
    for seed in range(300, 303):
        problem = es.bandits.make(env, seed)
        agent = build("oplbsp", problem, length, radius="determinant", replan=es.Doubling(0.3))
        record = es.run(problem, agent, length, seed)
        assert record.violation()[-1] == 0
        assert env == "contexts" or (record.sources == "search").any()
        assert es.run(problem, build("oful", problem, 500), 500, seed).violation()[-1] > 0


def test_a_radius_far_too_small_violates():
    found = 0
    for seed in range(300, 312):
        problem = es.bandits.make("finite", seed)
        found += es.run(problem, build("oplbsp", problem, radius=0.05), 2_000, seed).violation()[-1] > 0
    assert found > 3


def test_the_slack_can_be_estimated():
    """ξ̂ = û_sf − C_uβ_sf − b is at most ξ, so that the incumbent is left later, and safely."""
    problem = es.bandits.make("finite", seed=6)
    told, estimated = (
        es.run(problem, build("oplbsp", problem, radius="determinant", slack=slack), 20_000, seed=1)
        for slack in ("told", "estimated")
    )
    safe = [(record.sources == "safe").sum() for record in (told, estimated)]
    assert safe[0] < safe[1] < 4.5 * safe[0]
    assert told.violation()[-1] == estimated.violation()[-1] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": "tight"}, "radius"),
        ({"delta": 1.0}, "delta must be"),
        ({"num_rounds": None}, "num_rounds"),
        ({"slack": 0.3}, "a number belongs in the problem"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        es.bandits.OPLBSP(es.bandits.make("finite", seed=0), **{"num_rounds": 10, **options})
