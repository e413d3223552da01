"""Constants for any number of episodes: their union bound, what the agent does at the end of an epoch, what is said."""

import math

import numpy as np
import pytest

import episafe as es
from episafe.learning.theory_constants import Sizes, anytime, theorem


def test_the_failure_probabilities_of_all_epochs_sum_to_delta():
    """K_m = 1024, 2048, … and δ_m = δ/(m(m+1)); the first M of them sum to δM/(M+1)."""
    base = Sizes(4, 3, 5, 1.0, 1, 0.05)
    epochs = [anytime(base, 512 * 2**m) for m in range(1, 21)]
    assert [sizes.num_episodes for sizes in epochs] == [512 * 2**m for m in range(1, 21)]
    assert [sizes.epoch for sizes in epochs] == list(range(1, 21))
    assert sum(sizes.delta for sizes in epochs) == pytest.approx(0.05 * 20 / 21)
    for m, sizes in enumerate(epochs[:-1]):
        assert anytime(sizes, sizes.num_episodes) == sizes
        after = anytime(sizes, sizes.num_episodes + 1)
        assert (after.epoch, after.num_episodes) == (epochs[m + 1].epoch, epochs[m + 1].num_episodes)
        assert after.delta == pytest.approx(epochs[m + 1].delta, rel=1e-12)


def test_each_epoch_has_the_constants_of_its_own_number_of_episodes():
    task = es.make("linear", seed=0).task
    made = es.Constants.theory(task, num_episodes=None, delta=0.1)
    for episodes, m in ((1, 1), (1024, 1), (1025, 2), (5_000, 4)):
        reached = made.reaching(episodes)
        alone = es.Constants.theory(task, 512 * 2**m, delta=0.1 / (m * (m + 1)))
        assert reached.C_u == pytest.approx(alone.C_u, rel=1e-12)
        assert reached.scope.epoch == m
        assert reached.level == "theorem"
        assert "probability at least 0.9 every policy deployed in any number of episodes" in reached.statement
    assert made.reaching(1024) is made
    fixed = es.Constants.theory(task, 100)
    assert fixed.reaching(10**6) is fixed


def test_an_agent_goes_on_to_the_next_epoch_and_keeps_its_data():
    """The same certificate as an agent with the next epoch's constants and the same episodes; the control is the first
    epoch's, whose C_u is smaller."""
    cmdp = es.make("streaming", seed=0)
    first = es.Constants.theory(cmdp.task, num_episodes=None)
    agent = es.OPSE(cmdp.task, first)
    record = es.run(cmdp, agent, 1030)
    assert record.settings["level"] == "theorem"
    assert "in any number of episodes" in record.settings["statement"]
    assert agent.num_learned == 1030
    assert agent.planner.constants_now.scope.epoch == 2
    assert agent.planner.scales.utility_bonus == -first.reaching(1030).C_u < -first.C_u
    plan = agent.plan()
    assert plan.level == "theorem"
    assert "planning failed" not in plan.reason
    assert agent.planner.information.min() > 1  # the data of the first epoch


def test_an_agent_restored_in_a_later_epoch_plans_with_its_constants():
    cmdp = es.make("streaming", seed=0)
    agent, again = (es.OPSE(cmdp.task, es.Constants.theory(cmdp.task, num_episodes=None)) for _ in range(2))
    es.run(cmdp, agent, 1030)
    again.restore(agent.state())
    assert again.fingerprint() == agent.fingerprint()
    assert again.plan().utility_bound == agent.plan().utility_bound
    assert again.planner.scales == agent.planner.scales


def test_a_certified_run_is_not_refused_for_its_length():
    """The control: constants for 20 episodes refuse the 21st."""
    cmdp = es.make("linear", seed=0)
    es.run(cmdp, es.OPSE(cmdp.task, es.Constants.theory(cmdp.task, None)), 21)
    with pytest.raises(ValueError, match="hold for 20 episodes"):
        es.run(cmdp, es.OPSE(cmdp.task, es.Constants.theory(cmdp.task, 20)), 21)


def test_not_to_know_the_number_of_episodes_costs_a_logarithm():
    """C_u at the end of epoch m over that of K_m known beforehand: ln(m(m+1)) more under a root."""
    task = es.make("tabular", seed=0).task
    made = es.Constants.theory(task, None)
    for episodes in (1024, 2**20):
        price = made.reaching(episodes).C_u / es.Constants.theory(task, episodes).C_u
        assert 1 < price < 1.01


def test_the_fixed_point_is_larger_where_steps_share_and_by_a_logarithm_only():
    """n = KH in place of K; a bound of the time-homogeneous theorem for K episodes is that of KH for one step."""
    alone, shared = (theorem(Sizes(8, 3, 15, 1.0, 10_000, 0.05, shared=shared)) for shared in (False, True))
    assert 1 < math.exp(shared.C_u - alone.C_u) < 1.1


def test_constants_of_one_kind_are_refused_for_the_other():
    P = np.full((2, 2, 2, 2), 0.5)
    given = P, np.full((2, 2, 2), 0.5), np.full((2, 2, 2), 0.5)
    plain = es.LinearCMDP(*given, threshold=0.5)
    shared = es.LinearCMDP(*given, threshold=0.5, time_homogeneous=True)
    for one, other in ((plain, shared), (shared, plain)):
        with pytest.raises(ValueError, match=r"use Constants\.theory of this task"):
            es.OPSE(other.task, es.Constants.theory(one.task, 100))
    made = es.Constants.theory(shared.task, 100)
    assert "linear in its 4 features and the same at every step" in made.statement
    assert es.OPSE(shared.task, made).plan().level == "theorem"
