"""Listed problems: bad input is refused with its place and remedy; values and optima equal slow answers."""

import re

import gymnasium
import numpy as np
import pytest

import episafe as es
import oracles

H, S, A = 2, 3, 2


def arrays(**changes):
    rng = np.random.default_rng(0)
    good = {
        "P": rng.dirichlet(np.ones(S), (H, S, A)),
        "reward": rng.random((H, S, A)),
        "utility": rng.random((H, S, A)),
        "threshold": 0.2,
    }
    return {**good, **changes}


def changed(name, place, value):
    array = arrays()[name].copy()
    array[place] = value
    return arrays(**{name: array})


def test_a_good_problem_is_kept_as_given():
    good = arrays()
    cmdp = es.LinearCMDP(**good)
    np.testing.assert_array_equal(cmdp.P, good["P"])
    np.testing.assert_array_equal(cmdp.task.reward, good["reward"])
    task = cmdp.task
    assert (task.horizon, task.num_states, task.num_actions, task.dim) == (H, S, A, S * A)
    assert task.slacks[0] == pytest.approx(cmdp.evaluate(task.incumbent)[1] - 0.2, abs=1e-15)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (changed("P", (1, 2, 0), [0.5, 0.5, 0.1]), ["P[1, 2, 0] sums to 1.1", "normalise"]),
        (changed("P", (0, 1, 1), [1.2, -0.2, 0.0]), ["P[0, 1, 1, 1] = -0.2", "negative"]),
        (changed("P", (0, 0, 0, 0), np.nan), ["P[0, 0, 0, 0] is nan", "finite"]),
        (changed("reward", (1, 1, 1), np.inf), ["reward[1, 1, 1] is inf", "finite"]),
        (changed("reward", (0, 2, 1), 1.5), ["reward[0, 2, 1] = 1.5", "[0, 1]", "rescale"]),
        (changed("utility", (0, 2, 1), -0.5), ["utility[0, 2, 1] = -0.5", "[0, 1]"]),
        (arrays(P=np.full((H, S, A, S + 1), 1 / (S + 1))), ["P must have shape (H, S, A, S)"]),
        (arrays(P=np.ones((H, S, A))), ["P must have shape (H, S, A, S) with no axis empty, got (2, 3, 2)"]),
        (arrays(reward=np.zeros((H, A, S))), ["reward must have shape (2, 3, 2), got (2, 2, 3)"]),
        (arrays(P="kernel"), ["P must have shape (H, S, A, S)"]),
        (arrays(reward=np.full((H, S, A), 0.5 + 1j)), ["reward must be an array of real numbers, got complex128"]),
        (arrays(reward=np.ma.masked_all((H, S, A))), ["reward must be an array of real numbers", "convert"]),
        (arrays(reward=[[[0.1]], [[0.1, 0.2]]]), ["reward is not an array of numbers"]),
        (arrays(threshold="0.2"), ["threshold must be a finite number, got '0.2'"]),
        (arrays(threshold=True), ["threshold must be a finite number, got True"]),
        (arrays(phi=np.ones((S, A, 2))), ["phi[0, 0] has norm 1.41421356237 > 1", "divide"]),
        (arrays(phi=np.ones((S, 2))), ["phi must have shape (3, 2, any)"]),
        (arrays(initial_state=3), ["initial_state must be a whole number in [0, 3), got 3"]),
        (arrays(threshold=np.nan), ["threshold must be a finite number, got nan"]),
        (arrays(threshold=None), ["threshold is missing"]),
        (arrays(safe_policy=np.full((H, S, A), 0.6)), ["policy[0, 0] sums to 1.2", "normalise"]),
        (arrays(safe_policy=np.full((H, S), 0.5)), ["policy must have shape"]),
        (arrays(slack=0.0), ["slack must be a finite number > 0, got 0.0"]),
        (arrays(slack=5.0), ["slack of utility must lie in (0, 1.04344970031]", "got 5"]),
    ],
)
def test_bad_input_is_refused_with_its_place_and_remedy(arguments, words):
    with pytest.raises(es.InvalidProblem) as caught:
        es.LinearCMDP(**arguments)
    for word in words:
        assert word in str(caught.value)


def test_a_threshold_no_policy_reaches_is_refused_with_the_largest_utility():
    largest = es.LinearCMDP(**arrays()).evaluate(es.LinearCMDP(**arrays()).task.incumbent)[1]
    with pytest.raises(es.Infeasible, match=re.escape(f"largest utility of any policy is {largest:.12g}")):
        es.LinearCMDP(**arrays(threshold=largest + 1e-6))


def test_a_safe_policy_that_is_not_strictly_safe_is_refused_with_its_utility():
    worst = np.zeros((H, S, A))
    worst[np.arange(H)[:, None], np.arange(S), arrays()["utility"].argmin(axis=2)] = 1.0
    value = es.LinearCMDP(**arrays()).evaluate(worst)[1]
    with pytest.raises(es.Infeasible, match=re.escape(f"reaches {value:.12g}, and the threshold is {value:.12g}")):
        es.LinearCMDP(**arrays(safe_policy=worst, threshold=value))


def test_what_is_within_the_tolerance_is_accepted_and_left_alone():
    P = arrays()["P"].copy()
    P[0, 0, 0] *= 1 + 9e-10
    cmdp = es.LinearCMDP(**arrays(P=P))
    np.testing.assert_array_equal(cmdp.P, P)
    P[0, 0, 0] *= 1 + 9e-10
    with pytest.raises(es.InvalidProblem, match="sums to"):
        es.LinearCMDP(**arrays(P=P))


def test_a_number_read_from_a_file_as_an_array_is_a_number():
    assert es.LinearCMDP(**arrays(threshold=np.array(0.2), slack=np.float32(0.25))).task.thresholds[0] == 0.2


def test_a_smaller_slack_than_the_true_one_is_believed():
    assert es.LinearCMDP(**arrays(slack=0.01)).task.slacks[0] == 0.01


def test_the_callers_arrays_cannot_change_the_problem_afterwards():
    reward = arrays()["reward"].copy()
    cmdp = es.LinearCMDP(**arrays(reward=reward))
    before = cmdp.optimal_value()
    reward[:] = 0
    assert cmdp.evaluate(cmdp.optimal_policy())[0] == pytest.approx(before, abs=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        cmdp.task.reward[0, 0, 0] = 0


def test_evaluate_refuses_what_is_no_policy():
    with pytest.raises(es.InvalidProblem, match="sums to"):
        es.LinearCMDP(**arrays()).evaluate(np.ones((H, S, A)))


@pytest.mark.parametrize("d", [None, 4])
def test_save_and_load_give_the_same_problem(tmp_path, draw_cmdp, d):
    cmdp, _ = draw_cmdp(np.random.default_rng(1), d=d)
    cmdp.save(tmp_path / "problem.npz")
    again = es.LinearCMDP.load(tmp_path / "problem.npz")
    for name in ("reward", "utilities", "thresholds", "slacks", "initial_state", "dim"):
        np.testing.assert_array_equal(getattr(again.task, name), getattr(cmdp.task, name))
    np.testing.assert_array_equal(again.P, cmdp.P)
    assert again.optimal_value() == cmdp.optimal_value()


def test_a_damaged_file_is_refused(tmp_path, draw_cmdp):
    cmdp, _ = draw_cmdp(np.random.default_rng(1))
    path = tmp_path / "problem.npz"
    cmdp.save(path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(es.DamagedLog, match=r"problem\.npz"):
            es.LinearCMDP.load(path)
    np.savez(path, notes=np.array([{"a": 1}], dtype=object))  # pickled objects are never loaded
    with pytest.raises(es.DamagedLog, match=r"problem\.npz"):
        es.LinearCMDP.load(path)


def test_linearity_gap_is_zero_exactly_for_linear_kernels(draw_cmdp):
    rng = np.random.default_rng(2)
    cmdp, raw = draw_cmdp(rng, S=8, d=3)
    assert cmdp.linearity_gap() < 1e-12
    P = raw["P"].copy()
    P[1, 0, 0] = np.eye(8)[3]
    bent = es.LinearCMDP(P, raw["reward"], raw["utility"], raw["phi"], raw["initial_state"], threshold=0.01)
    assert bent.linearity_gap() > 0.1
    one_hot, _ = draw_cmdp(rng)
    assert one_hot.linearity_gap() == 0


@pytest.mark.parametrize("seed", range(6))
def test_values_equal_the_enumeration_of_trajectories(seed):
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, S=3, A=2, H=4)
    policy = rng.dirichlet(np.ones(2), (4, 3))
    cmdp = es.LinearCMDP(raw["P"], raw["reward"], raw["utility"], None, raw["initial_state"], threshold=0.01)
    for value, g in zip(cmdp.evaluate(policy), (raw["reward"], raw["utility"]), strict=True):
        expected = oracles.trajectory_value(raw["P"], policy, g, raw["initial_state"])
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_occupancies_are_distributions_and_give_the_values(seed, draw_cmdp):
    rng = np.random.default_rng(seed)
    S = 6 + 3 * seed  # with and without whole eights of states
    cmdp, _ = draw_cmdp(rng, S=S, H=5)
    policy = rng.dirichlet(np.ones(3), (5, S))
    w = cmdp.occupancy(policy)
    np.testing.assert_allclose(w.sum(axis=(1, 2)), 1, atol=1e-12)
    V_r, V_u = cmdp.evaluate(policy)
    assert (w * cmdp.task.reward).sum() == pytest.approx(V_r, abs=1e-12)
    assert (w * cmdp.task.utilities[0]).sum() == pytest.approx(V_u, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [0.3, 0.6, 0.95, 0.999999])
def test_the_optimum_equals_brute_force_over_policies_and_mixtures(seed, scale, draw_cmdp):
    cmdp, raw = draw_cmdp(np.random.default_rng(seed), S=2, A=2, H=3, scale=scale)
    brute = oracles.brute_force_optimum(
        raw["P"], raw["reward"], raw["utility"], cmdp.task.thresholds[0], raw["initial_state"]
    )
    assert cmdp.optimal_value() == pytest.approx(brute, abs=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [(4, 3, 3, None), (30, 3, 4, 5), (12, 2, 8, None)])
def test_the_optimum_equals_a_linear_program(seed, shape, draw_cmdp):
    S, A, H, d = shape
    rng = np.random.default_rng(seed)
    cmdp, raw = draw_cmdp(rng, S, A, H, d, scale=rng.uniform(0.4, 0.99))
    theirs = oracles.lp_optimum(raw["P"], raw["reward"], raw["utility"], cmdp.task.thresholds[0], raw["initial_state"])
    assert cmdp.optimal_value() == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("name", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("variant", ["released", "text"])
@pytest.mark.parametrize("seed", range(2))
def test_the_optimal_policy_attains_the_optimum_and_is_safe_in_float64(name, variant, seed):
    cmdp = es.make(name, seed, variant)
    reward_value, utility_value = cmdp.evaluate(cmdp.optimal_policy())
    assert reward_value == pytest.approx(cmdp.optimal_value(), abs=1e-12)
    assert utility_value >= cmdp.task.thresholds[0]


def test_the_fractional_knapsack_by_hand():
    """Two arms, one step: arm 0 pays 1 and has utility 0, arm 1 pays 0 and has utility 1; b = 0.25."""
    cmdp = es.LinearCMDP(np.ones((1, 1, 2, 1)), [[[1.0, 0.0]]], [[[0.0, 1.0]]], threshold=0.25)
    assert cmdp.optimal_value() == 0.75
    np.testing.assert_allclose(cmdp.optimal_policy().table()[0, 0], [0.75, 0.25], atol=1e-15)


def test_a_deterministic_chain_by_hand():
    """Three states in a row; action 1 moves on, action 0 stays; reward 1 at the end, utility 1 for staying."""
    H, S = 3, 3
    P = np.zeros((H, S, 2, S))
    for s in range(S):
        P[:, s, 0, s] = 1
        P[:, s, 1, min(s + 1, S - 1)] = 1
    reward, utility = np.zeros((H, S, 2)), np.zeros((H, S, 2))
    reward[:, 2, :] = 1
    utility[:, :, 0] = 1
    cmdp = es.LinearCMDP(P, reward, utility, threshold=1.0)
    # moving twice and staying once gives reward 1 and utility 1
    assert cmdp.optimal_value() == pytest.approx(1.0, abs=1e-12)
    w = cmdp.occupancy(cmdp.optimal_policy())
    np.testing.assert_allclose(w[2, 2, 0], 1.0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_two_limits_are_evaluated_and_optimised_together(seed):
    """The optimum under two limits equals a linear program; `evaluate` returns a float and (m,)."""
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, S=4, A=3, H=3)
    utilities = [raw["utility"], rng.random(raw["utility"].shape)]
    free = es.LinearCMDP(raw["P"], raw["reward"], utilities, threshold=[0.01, 0.01])
    middle = free.evaluate(free.task.incumbent)[1]
    cmdp = es.LinearCMDP(raw["P"], raw["reward"], utilities, threshold=list(0.9 * middle))
    reward, found = cmdp.evaluate(cmdp.optimal_policy())
    assert found.shape == (2,) and (found >= cmdp.task.thresholds).all()
    expected = oracles.lp_optimum(raw["P"], raw["reward"], np.array(utilities), cmdp.task.thresholds, 0)
    assert reward == pytest.approx(expected, abs=1e-6)


def test_a_mixture_has_the_mean_of_its_components_values():
    cmdp = es.make("tabular", 0)
    one = es.TablePolicy(np.full(cmdp.task.reward.shape, 1 / 3))
    alone, incumbent = np.array(cmdp.evaluate(one)), np.array(cmdp.evaluate(cmdp.task.incumbent))
    mixed = es.Mixture([one, cmdp.task.incumbent], [0.2, 0.8], ["one", "incumbent"])
    np.testing.assert_allclose(cmdp.evaluate(mixed), 0.2 * alone + 0.8 * incumbent, atol=1e-12)


@pytest.mark.parametrize("order", [None, np.random.default_rng(0).permutation(15)])
def test_one_hot_features_given_in_full_are_recognised_in_any_order(order):
    cmdp = es.make("tabular", seed=2)
    phi = np.eye(15)[:, np.arange(15) if order is None else order].reshape(5, 3, 15)
    task = cmdp.task
    full = es.LinearCMDP(cmdp.P, task.reward, task.utilities[0], phi, task.initial_state, task.thresholds[0])
    assert full.task.one_hot
    shared = phi.copy()
    shared[0, 1] = shared[0, 0]
    for features in (shared, 0.5 * phi, phi - 1e-12 * phi):
        given = es.LinearCMDP(cmdp.P, task.reward, task.utilities[0], features, 0, task.thresholds[0])
        assert not given.task.one_hot


def test_names_and_units_of_every_kind_of_problem_reach_the_task():
    told = {"action_names": ("stay", "go"), "units": {"reward": "EUR"}}
    listed = es.LinearCMDP(np.ones((1, 1, 2, 1)), [[[1, 0]]], [[[0, 1]]], threshold=0.25, state_names=["home"], **told)
    functions = (lambda h, s: [1.0, 0.0]), (lambda h, s: [0.0, 1.0]), (lambda h, s, a, rng: s)
    sampled = es.SampledCMDP(
        es.features.OneHot(size=1),
        *functions,
        1,
        2,
        0,
        0.25,
        lambda h, s: [0.0, 1.0],
        0.5,
        state_names=["home"],
        **told,
    )
    bandit = es.bandits.LinearBandit([0.9, 0.2], [0.0, 0.8], np.eye(2), 0.4, [0.0, 1.0], **told)
    env = gymnasium.make("FrozenLake-v1", max_episode_steps=4)
    told["action_names"] = ("left", "down", "right", "up")
    lake = es.from_gymnasium(
        env, horizon=4, incumbent=lambda h, s: [1, 0, 0, 0], cost=lambda *given: 0.0, cost_limit=1.0, slack=0.5,
        state_names=["home"], **told,
    )  # fmt: skip
    for problem in (listed, sampled, bandit, lake):
        task = problem.task
        assert task.units["reward"].text == "EUR" and len(task.action_names) == (4 if problem is lake else 2)
        assert task.state_names == (() if problem is bandit else ("home",))
