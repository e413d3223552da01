"""Bad input gets an error that names the place and the remedy; good input is kept as it is."""

import re

import numpy as np
import pytest

import episafe as es
from episafe.problems.policy import MixturePolicy

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
    assert task.slack == pytest.approx(cmdp.evaluate(task.safe_policy)[1] - 0.2, abs=1e-15)
    assert not hasattr(task, "P")


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
        (arrays(P="kernel"), ["P must be an array of real numbers, got <U6"]),
        (arrays(reward=np.full((H, S, A), 0.5 + 1j)), ["reward must be an array of real numbers, got complex128"]),
        (arrays(reward=np.ma.masked_all((H, S, A))), ["reward must be an array of real numbers, got masked"]),
        (arrays(reward=[[[0.1]], [[0.1, 0.2]]]), ["reward must be an array of numbers"]),
        (arrays(threshold="0.2"), ["threshold must be a number, got '0.2'"]),
        (arrays(threshold=True), ["threshold must be a number, got True"]),
        (arrays(phi=np.ones((S, A, 2))), ["phi[0, 0] has norm 1.41421356237 > 1", "divide"]),
        (arrays(phi=np.ones((S, 2))), ["phi must have shape (3, 2, any)"]),
        (arrays(initial_state=3), ["initial_state must be an integer in [0, 3), got 3"]),
        (arrays(initial_state=0.0), ["initial_state must be an integer"]),
        (arrays(threshold=np.nan), ["threshold must be finite"]),
        (arrays(threshold=None), ["threshold is missing"]),
        (arrays(safe_policy=np.full((H, S, A), 0.6)), ["safe_policy[0, 0] sums to 1.2"]),
        (arrays(safe_policy=np.full((H, S), 0.5)), ["safe_policy must have shape (2, 3, 2)"]),
        (arrays(slack=0.0), ["slack must lie in (0, "]),
        (arrays(slack=-1.0), ["slack must lie in (0, "]),
        (arrays(slack=5.0), ["slack must lie in (0, "]),
    ],
)
def test_bad_input_is_refused_with_its_place_and_remedy(arguments, words):
    with pytest.raises(es.InvalidProblem) as caught:
        es.LinearCMDP(**arguments)
    for word in words:
        assert word in str(caught.value)


def test_a_threshold_no_policy_reaches_is_refused_with_the_largest_utility():
    largest = es.LinearCMDP(**arrays()).evaluate(es.LinearCMDP(**arrays()).task.safe_policy)[1]
    with pytest.raises(es.Infeasible, match=re.escape(f"largest utility of any policy is {largest:.12g}")):
        es.LinearCMDP(**arrays(threshold=largest + 1e-6))


def test_a_safe_policy_that_is_not_strictly_safe_is_refused_with_its_utility():
    worst = np.zeros((H, S, A))
    worst[np.arange(H)[:, None], np.arange(S), arrays()["utility"].argmin(axis=2)] = 1.0
    value = es.LinearCMDP(**arrays()).evaluate(worst)[1]
    with pytest.raises(es.Infeasible, match=re.escape(f"its utility is {value:.12g} and the threshold {value:.12g}")):
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
    assert es.LinearCMDP(**arrays(threshold=np.array(0.2), slack=np.float32(0.25))).task.threshold == 0.2


def test_a_smaller_slack_than_the_true_one_is_believed():
    assert es.LinearCMDP(**arrays(slack=0.01)).task.slack == 0.01


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
    for name in ("reward", "utility", "phi", "threshold", "slack", "initial_state", "dim"):
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
        with pytest.raises(es.DamagedFile, match=r"problem\.npz"):
            es.LinearCMDP.load(path)


def test_a_file_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "evil.npz", notes=np.array([{"a": 1}], dtype=object))
    with pytest.raises(es.DamagedFile):
        es.LinearCMDP.load(tmp_path / "evil.npz")


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


def identity(cmdp, order=None):
    """One-hot features in full, their columns in any order."""
    S, A = cmdp.task.num_states, cmdp.task.num_actions
    return np.eye(S * A)[:, np.arange(S * A) if order is None else order].reshape(S, A, S * A)


def given(cmdp, phi):
    task = cmdp.task
    return es.LinearCMDP(cmdp.P, task.reward, task.utility, phi, task.initial_state, task.threshold)


@pytest.mark.parametrize("order", [None, np.random.default_rng(0).permutation(15)])
def test_one_hot_features_given_in_full_are_recognised(order):
    cmdp = es.make("tabular", seed=2)
    full = given(cmdp, identity(cmdp, order))
    assert full.task.phi is None and full.task.one_hot
    made = [es.Constants.tuned(each.task) for each in (cmdp, full)]
    assert made[0] == made[1]
    ours, theirs = (es.run(each, es.OPSE(each.task, made[0]), 300, seed=1) for each in (cmdp, full))
    for name in ours.columns():
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_features_that_are_almost_one_hot_are_taken_as_given():
    cmdp = es.make("tabular", seed=2)
    phi = identity(cmdp)
    shared = phi.copy()
    shared[0, 1] = shared[0, 0]
    wide = np.concatenate([phi, np.zeros((5, 3, 1))], axis=2)
    for features in (shared, 0.5 * phi, phi - 1e-12 * phi, wide):
        np.testing.assert_array_equal(given(cmdp, features).task.phi, features)


def test_a_component_of_many_mixtures_is_evaluated_once(monkeypatch):
    cmdp = es.make("tabular", 0)
    calls, own = [], cmdp._table_values
    monkeypatch.setattr(cmdp, "_table_values", lambda table: calls.append(1) or own(table))
    one = es.TablePolicy(np.full(cmdp.task.reward.shape, 1 / cmdp.task.num_actions))
    incumbent, alone = cmdp.task.safe_policy, np.array(cmdp.evaluate(one))
    for weight in (0.2, 0.5, 0.7):
        found = cmdp.evaluate(MixturePolicy([one, incumbent], np.array([weight, 1 - weight])))
        np.testing.assert_allclose(found, weight * alone + (1 - weight) * np.array(cmdp.evaluate(incumbent)))
    assert len(calls) <= 3  # alone, as a component, and the incumbent
    other = es.TablePolicy(np.eye(cmdp.task.num_actions)[np.zeros(cmdp.task.reward.shape[:2], dtype=int)])
    mixed = cmdp.evaluate(MixturePolicy([other, incumbent], np.array([0.5, 0.5])))
    np.testing.assert_allclose(mixed, (np.array(cmdp.evaluate(other)) + cmdp.evaluate(incumbent)) / 2)
