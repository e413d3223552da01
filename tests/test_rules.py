"""Problems by rules: listed ones agree with a hand calculation, played ones with listed ones."""

from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import episafe as es
from episafe.envs.battery import Battery
from episafe.envs.cloud import Cloud
from episafe.envs.gymnasium import RulesEnv
from episafe.envs.inventory import Inventory, poisson
from episafe.problems.rules import Rules, listed

SMALL = {
    "inventory": Inventory(mean_demand=2.0),
    "battery": Battery(),
    "cloud": Cloud(),
}


@dataclass(frozen=True)
class Lamp(Rules):
    """A lamp 0 or 1, switched on with success 0.25; off is sure. Reward: it was on. Utility: it was off."""

    horizon: int = 2
    num_actions: int = 2
    shape: tuple[int, ...] = (2,)
    start: tuple[int, ...] = (0,)

    def chances(self, h, state):
        return [((False, True), (0.75, 0.25))]

    def move(self, h, state, action, luck):
        return (int(action == 1 and luck[0]),), float(state[0]), 1.0 - state[0]

    def incumbent(self, h, state):
        return np.array([1.0, 0.0])


def test_tables_that_no_machine_has_room_for_are_refused_before_they_are_made():
    @dataclass(frozen=True)
    class Counter(Lamp):
        horizon: int = 1_000
        shape: tuple[int, ...] = (600,)
        time_homogeneous: bool = True

        def move(self, h, state, action, luck):
            return ((state[0] + 1) % 600,), 0.5, 0.5

    with pytest.raises(es.InvalidProblem, match=r"1000 steps, 600 states and 2 actions takes 5.36 GiB.*SampledCMDP"):
        listed(Counter(), threshold=0.0)


def test_listed_rules_by_hand():
    cmdp = listed(Lamp(), threshold=1.5)
    assert cmdp.task.phi is None
    np.testing.assert_allclose(cmdp.P[0], [[[1, 0], [0.75, 0.25]], [[1, 0], [0.75, 0.25]]])
    assert cmdp.task.reward[0].tolist() == [[0, 0], [1, 1]]
    assert cmdp.evaluate(cmdp.task.safe_policy) == (0, 2)
    assert cmdp.optimal_value() == pytest.approx(0.25)  # always switch on: on at the second step in one of four


def test_too_many_states_to_list_are_refused_with_the_way_out():
    with pytest.raises(es.InvalidProblem, match="play the rules with"):
        listed(Battery(capacity=100, reserve=40, prices=20, suns=10), threshold=20)


@pytest.mark.parametrize("name", SMALL)
def test_the_post_decision_features_are_exact_and_the_constraint_binds(name):
    for seed in range(3):
        cmdp = es.make(name, seed)
        assert cmdp.linearity_gap() < 1e-12
        optimal, (reward, utility) = cmdp.evaluate(cmdp.optimal_policy()), cmdp.evaluate(cmdp.task.safe_policy)
        assert optimal[1] == pytest.approx(cmdp.task.threshold)  # the optimum spends all the slack
        assert utility > cmdp.task.threshold + 0.05 * cmdp.task.horizon
        assert optimal[0] > 1.1 * reward


@pytest.mark.parametrize("name", SMALL)
def test_played_rules_pass_the_checker_and_agree_with_listed_ones(name):
    """400 seeded episodes of the incumbent: within the 99 % intervals, doubled."""
    rules = SMALL[name]
    check_env(RulesEnv(rules), skip_render_check=True)
    cmdp = listed(rules, threshold=0.5 * rules.horizon)
    live = es.from_gymnasium(
        RulesEnv(rules), features=es.features.OneHot(), horizon=rules.horizon, threshold=0.5 * rules.horizon,
        slack=0.1, safe_policy=lambda h, state: rules.incumbent(h, tuple(state)),
    )  # fmt: skip
    exact, found = cmdp.evaluate(cmdp.task.safe_policy), es.estimate(live, live.task.safe_policy, 400, seed=3)
    assert abs(found.reward - exact[0]) <= 2 * found.reward_half_width
    assert abs(found.utility - exact[1]) <= 2 * found.utility_half_width + 1e-9


def test_a_step_too_many_is_refused():
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        RulesEnv(Cloud()).step(0)


def test_a_day_in_the_shop_by_hand():
    """PolicyArrays 1, 2 come in, level 9 orders 6; demand 5 finds 3: three fifths served, nothing left."""
    state, reward, served = Inventory().move(0, (1, 2), 3, (5,))
    assert state == (0, 6)
    assert served == pytest.approx(3 / 5)
    assert reward == pytest.approx((3 + 0.6 * 9) / (6 + 0.6 * 9))


def test_an_hour_of_the_battery_by_hand():
    """Full at the top price: a unit sold earns all; the house takes one, the sun gives one; 3 of 4 keep the reserve."""
    assert Battery().move(19, (4, 2, 1), 0, (0, 0, 1)) == ((3, 0, 0), 1.0, 1.0)
    assert Battery().move(0, (0, 0, 0), 0, (1, 1, 0)) == ((0, 1, 1), 0.5, 0.0)  # nothing to sell, no reserve


def test_a_minute_of_the_cloud_by_hand():
    assert Cloud().move(0, (4, 1), 1, (3, 1, 2)) == ((5, 2), 0.5, 0.0)  # two of three let in, queue 5 is too long


def test_poisson_is_cut_off_and_sums_to_one():
    p = poisson(2.0, 3)
    np.testing.assert_allclose(p[:3], np.exp(-2) * np.array([1, 2, 2]), rtol=1e-12)
    assert p.sum() == pytest.approx(1, abs=1e-15)


def test_an_estimate_of_a_mixture_is_the_weighted_mean():
    """Half slow, half fast on streaming: 4·½ of the utility, which is 4 or 0 an episode; 3 standard errors."""
    import episafe.envs.gymnasium

    cmdp = es.make("streaming", 1)
    live = es.from_gymnasium(
        episafe.envs.gymnasium.CMDPEnv(cmdp), features=es.features.OneHot(), horizon=4, threshold=2.0, slack=1.0,
        safe_policy=cmdp.task.safe_policy,
    )  # fmt: skip
    slow, fast = (es.TablePolicy(np.tile(np.eye(2)[a], (4, 6, 1))) for a in (1, 0))
    found = es.estimate(live, es.MixturePolicy((slow, fast), (0.5, 0.5)), 400, seed=1)
    assert abs(found.utility - 2) < 3 * 2 / 20
    assert found.utility_half_width == pytest.approx(2.5758 * 2 / 20, rel=0.01)
    with pytest.raises(ValueError, match="at least 2"):
        es.estimate(live, slow, 1)


@dataclass(frozen=True)
class Outside(Lamp):
    """Its moves leave the shape."""

    shape: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Two(Lamp):
    """With two utilities: it was off, and it is never switched."""

    names: tuple[str, ...] = ("dark", "still")

    def move(self, h, state, action, luck):
        following, reward, dark = super().move(h, state, action, luck)
        return following, reward, (dark, 1.0 - action)


def test_a_state_outside_the_shape_is_refused_with_the_place():
    with pytest.raises(
        es.InvalidProblem, match=r"at step 0, state \(0,\), action 1, .*move leads to \(1,\), and shape"
    ):
        listed(Outside(), threshold=1.0)


def test_limits_are_given_by_names_too_and_one_for_several_is_refused():
    by_name = listed(Two(), threshold={"still": 1.0, "dark": 1.5}, slack={"still": 0.5, "dark": 0.25}).task
    assert by_name.limits.tolist() == [1.5, 1.0] and [one.slack for one in by_name.constraints] == [0.25, 0.5]
    with pytest.raises(es.InvalidProblem, match=r"2 constraints \(dark, still\), and threshold is one number"):
        listed(Two(), threshold=1.0)
    with pytest.raises(es.InvalidProblem, match="threshold is given for bright, and the constraints are called dark"):
        listed(Two(), threshold={"bright": 1.0})


@pytest.mark.parametrize("p", ((1.0, 1.0), (0.5, 0.4), (1.5, -0.5), (1.0,)))
def test_a_law_that_is_none_is_named_before_anything_is_made_of_it(p):
    @dataclass(frozen=True)
    class Odd(Lamp):
        def chances(self, h, state):
            return [((False, True), p)]

    with pytest.raises(
        es.InvalidProblem, match=r"chances at step 0, state \(0,\): 2 values have the probabilities.*sum"
    ):
        listed(Odd(), threshold=0.0)


def test_a_limit_by_another_name_says_which_names_there_are():
    @dataclass(frozen=True)
    class Two(Lamp):
        names: tuple[str, ...] = ("dark", "cold")

        def move(self, h, state, action, luck):
            following, reward, utility = super().move(h, state, action, luck)
            return following, reward, (utility, utility)

    with pytest.raises(es.InvalidProblem, match="the constraints are called dark, cold: give one for each of these"):
        listed(Two(), {"drak": 1.0, "cold": 1.0})
    with pytest.raises(es.InvalidProblem, match=r"called nothing: name them.*of rules the attribute `names`"):
        listed(Lamp(), {"dark": 1.0})


def test_states_by_their_names_are_refused_with_the_remedy():
    cmdp = listed(Lamp(), threshold=1.5)
    with pytest.raises(
        es.InvalidEpisode, match=r"numbers from 0 to 1, got \(0,\): give the number of each, its place in"
    ):
        cmdp.task.check_report(es.Episode([(0,), (0,), (0,)], [0, 0]))
