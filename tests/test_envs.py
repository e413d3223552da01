"""The environments: the problems of the first edition, their laws by hand, and their options."""

import json
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.envs import ENVIRONMENTS, PAPER, options_of
from episafe.envs.bandits import ENVIRONMENTS as BANDITS
from episafe.envs.paper import buffer_kernel
from episafe.problems.bandit import Ellipsoid

GOLDEN = json.loads((Path(__file__).parent / "golden" / "problems.json").read_text())
NOT_DRAWN = ("media", "ring", "jobs", "rover", "box", "cliff", "riverswim", "queue")
TOLERANCE = 1e-9


def test_every_name_of_the_first_edition_exists():
    names = {kind: {one["name"] for one in GOLDEN if one["kind"] == kind} for kind in ("cmdp", "bandit")}
    assert set(ENVIRONMENTS) == names["cmdp"] and set(BANDITS) == names["bandit"]


def described(problem):
    """Return what the golden file says of a problem."""
    task = problem.task
    reward, utility = problem.evaluate(task.incumbent)
    told = {"threshold": np.squeeze(task.thresholds), "slack": task.slacks, "optimal_value": problem.optimal_value()}
    told |= {"incumbent_reward": reward, "incumbent_utility": utility}
    if isinstance(problem, es.LinearCMDP):
        weights = np.arange(problem.P.size).reshape(problem.P.shape) % 97  # P alone sums to HSA
        told["fingerprint"] = [np.sum(problem.P * weights), task.reward.sum(), task.utilities.sum()]
        shapes = {"H": task.horizon, "S": task.num_states, "A": task.num_actions, "d": task.dim}
        told |= {"shapes": list(shapes.values()), "initial_state": task.initial_state, "one_hot": task.one_hot}
        return told | {"is_exogenous": task.move is not None}
    arms = task.actions.root if isinstance(task.actions, Ellipsoid) else task.arms(0)
    told["fingerprint"] = [problem.theta_r.sum(), problem.theta_u.sum(), arms.sum()]
    return told | {"shapes": [task.dim], "noise": task.noise, "norm_bound": task.norm_bound}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda one: f"{one['name']}-{one['variant']}-{one['seed']}")
def test_the_problem_is_that_of_the_first_edition(golden):
    if golden["kind"] == "bandit":
        problem = es.bandits.make(golden["name"], golden["seed"])
    else:
        problem = es.make(golden["name"], golden["seed"], golden["variant"])
    expected = golden | {"shapes": list(golden["shapes"].values())}
    expected |= dict(zip(("incumbent_reward", "incumbent_utility"), golden["incumbent"], strict=True))
    for name, value in described(problem).items():
        np.testing.assert_allclose(
            np.asarray(value, float), np.array(expected[name], float), TOLERANCE, TOLERANCE, err_msg=name
        )


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("variant", ["released", "text"])
def test_every_environment_of_the_paper_is_a_proper_linear_problem(name, variant):
    cmdp = es.make(name, seed=3, variant=variant)
    np.testing.assert_allclose(cmdp.P.sum(axis=-1), 1, atol=1e-12)
    scale, largest = 0.68 if name == "linear" else 0.6, cmdp.evaluate(cmdp.task.incumbent)[1]
    assert cmdp.task.thresholds[0] == pytest.approx(scale * largest, rel=1e-12)
    assert cmdp.task.slacks[0] == pytest.approx((1 - scale) * largest, rel=1e-12)
    S, A, d = cmdp.task.num_states, cmdp.task.num_actions, cmdp.task.dim
    if name == "linear":  # P_h(s'|s,a) = μ_h(s')ᵀφ(s,a): least squares leave nothing
        phi = np.array([cmdp.task.phi(s) for s in range(S)]).reshape(S * A, d)
        for P in cmdp.P:
            mu = np.linalg.lstsq(phi, P.reshape(S * A, S), rcond=None)[0]
            np.testing.assert_allclose(phi @ mu, P.reshape(S * A, S), atol=1e-12)


def test_the_sizes_are_the_papers():
    sizes = {name: (t.num_states, t.num_actions, t.horizon, t.dim) for name in PAPER for t in [es.make(name).task]}
    assert sizes == {"tabular": (5, 3, 4, 15), "streaming": (6, 2, 4, 12), "linear": (100, 3, 4, 5)}


@pytest.mark.parametrize(("variant", "probability"), [("released", 0.1), ("text", 0.9)])
def test_tabular_rewards_are_one_with_the_probability_of_the_variant(variant, probability):
    """20,000 draws: five standard deviations are about 0.011."""
    task = es.make("tabular", seed=0, variant=variant, num_states=100, num_actions=10, horizon=20).task
    for signal in (task.reward, task.utilities[0]):
        assert set(np.unique(signal)) == {0.0, 1.0}
        assert abs(signal.mean() - probability) < 5 * np.sqrt(0.1 * 0.9 / signal.size)


def test_streaming_by_hand():
    up, down = 0.7 * 0.8, 0.3 * 0.2
    expected = [[1 - up, up, 0], [down, 1 - up - down, up], [0, down, 1 - down]]
    np.testing.assert_allclose(buffer_kernel(arrival=0.7, departure=0.2, buffer_length=2), expected, atol=1e-15)
    for variant, first in (("released", 1), ("text", 2)):
        reward = es.make("streaming", variant=variant).task.reward
        assert (reward[:, :first] == 0).all() and (reward[:, first:] == 1).all()
    cmdp = es.make("streaming", seed=5)
    assert (cmdp.task.utilities[0, :, :, 1] == 1).all() and (cmdp.task.utilities[0, :, :, 0] == 0).all()
    assert cmdp.P[0, 0, 0, 1] > cmdp.P[0, 0, 1, 1]


def test_linear_is_rescaled_in_the_released_variant_only():
    released, text = es.make("linear", seed=2), es.make("linear", seed=2, variant="text")
    assert released.task.reward.max() == released.task.utilities.max() == 1.0
    assert text.task.reward.max() < 1.0
    np.testing.assert_allclose(text.task.reward / text.task.reward.max(), released.task.reward, atol=1e-12)
    np.testing.assert_array_equal(released.P, text.P)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_seed_fixes_the_draw_and_a_second_limit_leaves_the_rest(name):
    np.testing.assert_array_equal(es.make(name, seed=7).P, es.make(name, seed=7).P)
    assert (es.make(name, seed=7).P != es.make(name, seed=8).P).any() == (name not in NOT_DRAWN)
    if "num_constraints" in options_of(name):
        one, two = es.make(name, seed=7), es.make(name, seed=7, num_constraints=2)
        np.testing.assert_array_equal(one.task.reward, two.task.reward)
        np.testing.assert_array_equal(one.task.utilities[0], two.task.utilities[0])
        assert two.task.num_constraints == 2 and (two.task.slacks > 0).all()


PUBLISHED = {"media": 3.2533, "ring": 2.0, "jobs": 9.1765, "rover": 1.5363, "box": 1.7497, "cliff": 5.0}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_optimum_is_the_published_one(name):
    assert es.make(name).optimal_value() == pytest.approx(PUBLISHED[name], abs=1e-4)


def test_a_problem_without_utility_is_drawn_again_and_that_is_recorded():
    redraws = [es.make("tabular", seed=s, probability_of_one=0.005).origin["redraws"] for s in range(20)]
    assert min(redraws) >= 0 and max(redraws) > 0
    with pytest.raises(ValueError, match="change the options"):
        es.make("tabular", probability_of_one=0.0)


def test_options_and_sizes_are_part_of_what_a_record_says():
    plain, longer = es.make("tabular", seed=1), es.make("tabular", seed=1, horizon=6, num_states=np.int64(5))
    assert "options" not in plain.origin and longer.origin["options"] == "horizon=6"
    assert [longer.origin[name] for name in "HSA"] == [6, 5, 3]
    assert "options" not in es.make("streaming", fast_rate=[0.5, 0.9]).origin
    assert es.bandits.make("ball", dim=3).origin["options"] == "dim=3"
    cmdp = es.make("streaming", buffer_length=9, horizon=6, threshold_scale=0.5)
    assert (cmdp.task.num_states, cmdp.task.horizon) == (10, 6)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("gridworld", {}, "no environment 'gridworld'; there are tabular, streaming, linear, .* stepmix"),
        ("tabular", {"states": 3}, "no option 'states'; it has num_states, num_actions"),
        ("tabular", {"variant": "published"}, "variant must be"),
        ("tabular", {"num_states": 0}, "num_states must be a whole number >= 1"),
        ("tabular", {"num_states": 2.5}, "num_states must be a whole number >= 1"),
        ("tabular", {"dirichlet": 0}, "dirichlet must be a number > 0"),
        ("tabular", {"probability_of_one": 7}, "probability_of_one must be a number in"),
        ("tabular", {"threshold_scale": 1.0}, "threshold_scale"),
        ("streaming", {"fast_rate": 0.7}, "fast_rate must be a pair"),
        ("streaming", {"fast_rate": [1.5, 1.9]}, "fast_rate must be a number in"),
        ("linear", {"dim": -1}, "dim must be a whole number >= 1"),
        ("linear", {"threshold_scale": "x"}, "threshold_scale must be a number in"),
        ("linear", {"seed": 1.5}, "seed must be a whole number"),
        ("media", {"slack": 50.0}, "no policy has slack 50"),
        ("queue", {"num_constraints": 3}, "num_constraints must be a whole number in"),
    ],
)
def test_bad_names_and_options_are_refused_with_those_that_exist(name, option, message):
    with pytest.raises(ValueError, match=message):
        es.make(name, **option)


def test_bad_names_of_bandits_are_refused():
    with pytest.raises(ValueError, match="no bandit 'circle'; there are finite, ball"):
        es.bandits.make("circle")
    with pytest.raises(ValueError, match="no option 'arms'; it has dim, num_arms"):
        es.bandits.make("finite", arms=3)


def test_environment_and_run_do_not_share_a_stream():
    """The same number as problem seed and run seed gives different draws."""
    streams = [np.random.default_rng(4).random(8)]
    streams += [np.random.default_rng(s).random(8) for s in np.random.SeedSequence(4).spawn(2)]
    for i, first in enumerate(streams):
        for second in streams[i + 1 :]:
            assert (first != second).all()
