"""A slack that nobody knows: what does without it, what is refused, and what measuring it is worth."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
from conftest import constants
from episafe.runs.measured_slack import measure_slack
from test_sampled import sampled_from


def not_told(task):
    return dataclasses.replace(task, constraint=dataclasses.replace(task.constraint, slack=None))


def coin(p, threshold=0.5, slack=None):
    """One step, two actions; the incumbent's utility is 1 with probability p: 2p of 2, over a dummy second step."""
    return es.SampledCMDP(
        features=lambda s: np.eye(2),
        reward=lambda h, s: [0.5, 0.5],
        utility=lambda h, s: [float(s), float(s)],
        sample=lambda h, s, a, rng: int(rng.random() < p),
        horizon=2,
        num_actions=2,
        initial_state=0,
        threshold=threshold,
        safe_policy=lambda h, s: [1.0, 0.0],
        slack=slack,
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_guess_touches_safety(seed):
    """Guesses from a thousandth of the true slack to ten times: no violation, and the theorem's statement stays."""
    cmdp = es.make("tabular", seed=seed)
    told, true = not_told(cmdp.task), cmdp.task.slack
    for guess in (true / 1000, true, 10 * true):
        record = es.run(cmdp, es.OPSE(told, es.Constants.tuned(told, slack_guess=guess)), 1000, seed=seed)
        assert not record.violating().any()
        assert record.settings["slack"] == "unknown"
        made = es.Constants.theory(told, 10, slack_guess=guess)
        assert made.level == es.OPSE(told, made).plan().level == "theorem"
        assert "and the incumbent is safe; the regret bound also needs its slack to be at least" in made.statement


def test_a_guess_of_the_true_slack_is_as_good_as_knowing_it():
    cmdp = es.make("streaming", seed=1)
    told = not_told(cmdp.task)
    assert es.Constants.tuned(told, slack_guess=cmdp.task.slack) == es.Constants.tuned(cmdp.task)
    known, guessed = es.Constants.theory(cmdp.task, 50), es.Constants.theory(told, 50, slack_guess=cmdp.task.slack)
    assert known == guessed


def test_what_needs_the_slack_says_so_and_what_has_it_needs_no_guess():
    cmdp = es.make("tabular", seed=0)
    told = not_told(cmdp.task)
    for needs in (
        lambda: es.OPSE(told, es.Constants.proposing(), certifier=es.certify.Observation(0.05)),
        lambda: es.OPSE(told, es.Constants.proposing(), certifier=es.certify.FreshData(0.05)),
        lambda: es.OPSE(told, es.Constants.proposing(), certifier=es.certify.Box(0.05)),
        lambda: es.DOPE.authors(told, 100),
    ):
        with pytest.raises(es.InvalidProblem, match=r"the slack is not known, and this needs it: measure it"):
            needs()
    for needs in (lambda: es.Constants.tuned(told), lambda: es.Constants.theory(told, 10)):
        with pytest.raises(ValueError, match=r"the slack is not known: give slack_guess=…"):
            needs()
    with pytest.raises(ValueError, match="the task tells its slack"):
        es.Constants.tuned(cmdp.task, slack_guess=1.0)
    with pytest.raises(ValueError, match="slack_guess must be a finite number > 0"):
        es.Constants.tuned(told, slack_guess=-1.0)
    assert es.OPSE(told, constants()).plan().source == "safe"


def test_an_incumbent_that_is_not_safe_is_refused_without_a_slack_too():
    cmdp = es.LinearCMDP(np.ones((1, 1, 2, 1)), reward=[[[1.0, 0.0]]], utility=[[[0.0, 1.0]]], threshold=0.25)
    told = dataclasses.replace(not_told(cmdp.task), safe_policy=es.TablePolicy(np.array([[[1.0, 0.0]]])))
    with pytest.raises(es.Infeasible, match="the agent is told that its incumbent has utility"):
        es.run(cmdp, es.OPSE(told, es.Constants.theory(told, 10, slack_guess=1.0)), 10)


def test_the_measured_slack_is_below_the_true_one_as_often_as_it_says():
    """100 measurements at δ = 0.2, slack 0.4: at most 20 % above it (and 3 standard errors), all at least a third.

    The control: the mean itself is above the true slack about every other time.
    """
    problem, true = coin(0.9), 0.4
    found = [measure_slack(problem, delta=0.2, seed=seed) for seed in range(100)]
    lower, mean = np.array([m.lower for m in found]), np.array([m.mean for m in found])
    assert np.mean(lower > true) <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / 100)
    assert (lower > true / 3).all()
    assert np.mean(mean > true) > 0.35


def test_a_slack_that_is_not_there_is_not_found():
    with pytest.raises(es.Infeasible, match=r"after 3000 episodes the incumbent's slack is .* give more episodes"):
        measure_slack(coin(0.5), most_episodes=3000)
    with pytest.raises(es.Infeasible, match=r"after (64|128|256|512) episodes the incumbent's slack is -"):
        measure_slack(coin(0.1))  # no need to play on
    with pytest.raises(TypeError, match="LinearCMDP computes the slack"):
        measure_slack(es.make("tabular"))


def test_a_vector_environment_is_measured_too():
    """Costs 0 or 1 with chance 0.05, two steps, at most 1 in all: the slack is 0.9."""
    made = es.from_gymnasium(
        gym.vector.SyncVectorEnv([Rain, Rain, Rain]), features=es.features.OneHot(), horizon=2, cost_limit=1.0,
        slack=None, safe_policy=lambda h, s: [1.0],
    )  # fmt: skip
    assert 0.45 <= measure_slack(made).lower <= 0.9


def test_a_run_of_the_same_seed_draws_other_episodes_than_the_measurement():
    """The slack would else depend on what the run is going to see."""
    env = Rain()
    made = es.from_gymnasium(
        env, features=es.features.OneHot(), horizon=2, cost_limit=1.0, slack=None, safe_policy=lambda h, s: [1.0]
    )
    env.seeds.clear()
    measure_slack(made, seed=3)
    measured = set(env.seeds) - {None}
    env.seeds.clear()
    es.run(made, es.Fixed(made.task, "incumbent"), 5, seed=3)
    assert measured
    assert not measured & (set(env.seeds) - {None})


class Rain(gym.Env):
    """Costs 1 now and then, whatever is done."""

    def __init__(self):
        self.seeds = []

    action_space, observation_space = gym.spaces.Discrete(1), gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {"cost": float(self.np_random.random() < 0.05)}


def test_measured_and_given_it_certifies():
    """Level theorem from observed utilities on a problem whose slack nobody knew."""
    cmdp = es.make("linear", seed=0, num_states=25)
    measured = measure_slack(sampled_from(cmdp, slack=None), delta=0.01)
    assert 0 < measured.lower <= cmdp.task.slack
    problem = sampled_from(cmdp, slack=measured.lower)
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(0.04))
    assert es.run(problem, agent, 60).settings["level"] == "theorem"
