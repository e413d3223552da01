"""Reward and utility that are learned: the estimates by hand, and what they are worth."""

import dataclasses

import numpy as np
import pytest

import episafe as es
import oracles
from conftest import constants
from episafe.learning.signal_regression import theory_scale
from episafe.problems.sampled_problem import SampledTask


def told_nothing(cmdp, features):
    """The task by functions; `features` None for one-hot; reward and utility unknown."""
    task = cmdp.task
    return SampledTask(
        horizon=task.horizon,
        num_actions=task.num_actions,
        dim=task.dim,
        initial_state=task.initial_state,
        constraint=es.Constraint(None, task.threshold, task.slack),
        safe_policy=task.safe_policy,
        feature_function=features,
        reward_function=None,
    )


def episodes_of(cmdp, rng, count):
    """Uniform play; rewards and utilities as the problem has them, without noise."""
    H, S, A = cmdp.task.reward.shape
    raw = {"P": cmdp.P, "initial_state": cmdp.task.initial_state}
    steps = np.arange(H)
    for states, actions in oracles.random_episodes(rng, raw, np.full((H, S, A), 1 / A), count):
        at = steps, states[:-1], actions
        yield es.Episode(states.tolist(), actions, cmdp.task.reward[at], cmdp.task.utility[at])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("build", [es.OPSE, es.Ghosh2024])
def test_estimates_equal_the_formula_with_features_and_with_counts(draw_cmdp, seed, build):
    cmdp, _ = draw_cmdp(np.random.default_rng(seed), S=4, A=2, H=3)
    H, S, A = cmdp.task.reward.shape
    phi = np.eye(S * A).reshape(S, A, S * A)
    episodes = list(episodes_of(cmdp, np.random.default_rng(seed), 60))
    agents = [build(told_nothing(cmdp, f), constants(C_theta=0.4)) for f in (lambda s: phi[s], None)]
    n, sums = np.zeros((H, S, A)), np.zeros((2, H, S, A))
    for episode in episodes:
        for agent in agents:
            agent.learn(episode)
        for h in range(H):
            at = h, episode.states[h], episode.actions[h]
            n[at] += 1
            sums[(0, *at)] += episode.rewards[h]
            sums[(1, *at)] += episode.utilities[h]
    sign = -1 if build is es.OPSE else 1
    reward = np.clip(sums[0] / (n + 1) + 0.4 / np.sqrt(n + 1), 0, 1)
    utility = np.clip(sums[1] / (n + 1) + sign * 0.4 / np.sqrt(n + 1), 0, 1)
    plans = [agent.plan() for agent in agents]
    for agent in agents:
        known = agent.planner.regression
        for h in range(H):
            for s in range(S):
                if known.slot(h, s) >= 0:
                    np.testing.assert_allclose(known.support.reward[h, :, known.slot(h, s)], reward[h, s], atol=1e-9)
                    np.testing.assert_allclose(known.support.utility[h, :, known.slot(h, s)], utility[h, s], atol=1e-9)
    assert plans[0].source == plans[1].source
    assert plans[0].utility_bound == pytest.approx(plans[1].utility_bound, abs=1e-9)
    if plans[0].source != "safe":
        for h in range(H):
            for s in range(S):  # also where it was never seen
                np.testing.assert_allclose(*(p.policy.probabilities(h, s) for p in plans), atol=1e-6)


def test_one_hot_features_of_unlisted_states_plan_as_the_listed_ones(draw_cmdp):
    cmdp, _ = draw_cmdp(np.random.default_rng(1))
    task = cmdp.task
    by_functions = dataclasses.replace(
        told_nothing(cmdp, None),
        reward_function=lambda h, s: task.reward[h, s],
        constraint=es.Constraint(lambda h, s: task.utility[h, s], task.threshold, task.slack),
    )
    agents = [es.OPSE(t, constants()) for t in (task, by_functions)]
    for episode in episodes_of(cmdp, np.random.default_rng(2), 200):
        for agent in agents:
            agent.learn(episode)
    listed, unlisted = (agent.plan() for agent in agents)
    assert (listed.source, listed.lam, listed.utility_bound) == (unlisted.source, unlisted.lam, unlisted.utility_bound)
    for h in range(task.horizon):
        for s in range(task.num_states):
            expected = listed.policy.probabilities(h, s)
            np.testing.assert_allclose(unlisted.policy.probabilities(h, s), expected, atol=1e-12)


def test_without_noise_and_one_hot_a_scale_of_one_is_never_too_bold(draw_cmdp):
    """|Σx/(n+1) − x| = x/(n+1) ≤ β: pessimistic utility below the true one, optimistic reward above, at all slots."""
    cmdp, _ = draw_cmdp(np.random.default_rng(5))
    agent = es.OPSE(told_nothing(cmdp, None), constants(C_theta=1.0))
    for episode in episodes_of(cmdp, np.random.default_rng(6), 100):
        agent.learn(episode)
        agent.plan()
        known = agent.planner.regression
        for h in range(3):
            for s in range(4):
                slot = known.slot(h, s)
                if slot >= 0:
                    assert (known.support.utility[h, :, slot] <= cmdp.task.utility[h, s] + 1e-12).all()
                    assert (known.support.reward[h, :, slot] >= cmdp.task.reward[h, s] - 1e-12).all()


def test_what_is_missing_or_out_of_range_is_refused_and_changes_nothing(draw_cmdp):
    cmdp, _ = draw_cmdp(np.random.default_rng(0))
    agent = es.OPSE(told_nothing(cmdp, None), constants())
    episode = next(episodes_of(cmdp, np.random.default_rng(0), 1))
    for change, message in (
        ({"utilities": None}, "utilities are missing"),
        ({"rewards": [0, 0, 3]}, "lie in"),
        ({"rewards": [0, np.nan, 0]}, "finite"),
    ):
        with pytest.raises(es.InvalidEpisode, match=message):
            agent.learn(dataclasses.replace(episode, **change))
    assert agent.planner.information.max() == 0
    assert agent.plan().level == "heuristic"


def test_the_scale_of_the_theory():
    assert theory_scale(4, 99, 0.01) == pytest.approx(2 + 0.5 * np.sqrt(4 * np.log(10_000)))
