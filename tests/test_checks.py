"""Common mistakes: `es.run` warns of each in one sentence, `check` finds them, and good problems are not blamed."""

import re
import warnings

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
from episafe.envs import ENVIRONMENTS
from episafe.simulation.checks import check_problem, doubt, doubt_units, lower_bound
from test_gym import Walk, lake

HOURS = 12


class CallCentre(gym.Env):
    """Twelve hours; more agents (action 1) serve more callers in time: 0.95 of an hour instead of 0.6, with noise."""

    action_space, observation_space = gym.spaces.Discrete(2), gym.spaces.Discrete(HOURS + 1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hour = 0
        return 0, {}

    def step(self, action):
        self.hour += 1
        served = min(max((0.6, 0.95)[action] + 0.05 * self.np_random.normal(), 0.0), 1.0)
        info = {"utility": served, "cost": 1 - served}
        return self.hour, 1.0 - action, False, self.hour >= HOURS, info


class Confused(CallCentre):
    """Reports the callers that were not served as utility."""

    def step(self, action):
        *others, info = super().step(action)
        return *others, {"utility": info["cost"]}


class UntilDone(CallCentre):
    """Ends the day by `terminated`, as many environments do, and fails when it is stepped on."""

    def step(self, action):
        assert self.hour < HOURS, "the day is over"
        observation, reward, _, over, info = super().step(action)
        return observation, reward, over, False, info


def centre(env=None, **changes):
    told = {"horizon": HOURS, "threshold": 10.0, "slack": 1.0, "incumbent": lambda h, s: [0.1, 0.9]}
    return es.from_gymnasium(env or CallCentre(), **told | changes)


def warned(problem, num_episodes=60, agent=None, seed=0):
    """Return what a run warns of."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        es.run(problem, agent or es.Fixed(problem, "incumbent"), num_episodes, seed=seed)
    assert all(one.filename == __file__ for one in noted)  # it points to the line of the user
    return [str(one.message) for one in noted]


MISTAKES = {
    "a limit above the incumbent": (lambda: centre(threshold=11.8, slack=0.1), "below the threshold 11.8: lower the"),
    "a limit per hour": (lambda: centre(threshold=0.9), "times the threshold 0.9: give the limit as a total"),
    "a limit in percent of an hour": (
        lambda: centre(threshold=0.9, utility_range=(0, 1.5)), "times the threshold 0.6: give the limit as a total",
    ),
    "a cost per hour": (
        lambda: centre(threshold=None, cost_limit=0.1, slack=0.05), "below the threshold 11.9: lower the limit",
    ),
    "a cost reported as utility": (lambda: centre(Confused()), "use cost_limit= if the signal is a cost"),
    "an invented slack": (lambda: centre(threshold=9.0, slack=2.9), r"threshold \+ slack = 11.9: correct slack="),
    "a horizon of 11 hours": (lambda: centre(horizon=11, threshold=9.0), "end after 12 steps.* give horizon=12"),
    "a horizon of 5 hours": (lambda: centre(UntilDone(), horizon=5, threshold=4, slack=0.3), "end after 12 steps"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_run_warns_of_a_mistake_in_one_sentence(name):
    make, message = MISTAKES[name]
    (said,) = warned(make())
    assert re.search(message, said), said
    assert said.count(". ") == 0 and len(said) < 220
    made = make()
    assert len(warned(made, 200, es.SafeAgent(made))) == 1


def test_the_check_finds_what_a_run_warns_of():
    for name, (make, _) in MISTAKES.items():
        if "horizon" not in name:
            assert {verdict for verdict, _ in check_problem(make(), 100)} & {"warning", "error"}, name
    texts = [text for _, text in check_problem(centre(horizon=11, threshold=9.0), 20)]
    assert any("end after 12 steps" in text for text in texts)


class Upright(gym.Wrapper):
    def step(self, action):
        state, reward, terminated, truncated, _ = self.env.step(action)
        return state, reward, terminated, truncated, {"cost": float(abs(state[2]) > 0.1)}


def cart():
    steady = lambda h, s: [0.1, 0.9] if s[2] + 0.5 * s[3] > 0 else [0.9, 0.1]  # noqa: E731
    env = Upright(gym.make("CartPole-v1", max_episode_steps=20))
    return es.from_gymnasium(env, horizon=20, incumbent=steady, cost_limit=10.0, slack=2.0)


GOOD = {
    "centre": centre,
    "centre by cost": lambda: centre(threshold=None, cost_limit=2.0, slack=0.5),
    "ends": lambda: centre(UntilDone()),
    "lake": lake,
    "cart": cart,
    "walk": lambda: es.from_gymnasium(Walk(), horizon=3, incumbent=lambda h, s: [0.9, 0.1], cost_limit=1.0, slack=0.5),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_environment_is_not_blamed(name):
    made = GOOD[name]()
    assert warned(made, 100) == []
    assert {verdict for verdict, _ in check_problem(made, 100)} <= {"ok", "warning"}
    assert not any("end after" in text for _, text in check_problem(made, 20))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_environment_of_the_library_is_blamed(name):
    problem = es.make(name)
    assert warned(problem, 60) == []
    task = problem.task
    table, rng, totals = task.incumbent.table(), np.random.default_rng(0), []
    for _ in range(40):
        state, total = task.initial_state, np.zeros(task.num_constraints)
        for h in range(task.horizon):
            action = rng.choice(task.num_actions, p=table[h, state])
            total += task.utilities[:, h, state, action]
            state = rng.choice(task.num_states, p=problem.P[h, state, action])
        totals.append(total)
    assert doubt(task, np.array(totals)) == doubt_units(task, np.array(totals)) == ""


def test_false_alarms_are_rare():
    """1,000 runs of 160 episodes whose incumbent just has its slack, with rare and large totals: at most 0.2 % alarms.

    A normal interval of five standard errors gives an alarm in 12 % of them: no total of the first 20 is large.
    """
    task = centre(threshold=1.1, slack=0.1, horizon=HOURS).task
    rng, alarms, normal = np.random.default_rng(0), 0, 0
    for _ in range(1000):
        totals = np.where(rng.random((160, 1)) < 0.1, 12.0, 0.0)
        alarms += any(doubt(task, totals[:n]) != "" for n in (20, 160))
        first = totals[:20]
        normal += bool(first.mean() + 5 * first.std(ddof=1) / 20**0.5 < 1.1)
    assert alarms <= 6  # more have a probability of 0.5 % at a rate of 0.2 %
    assert normal > 80


def test_the_lower_bound_holds_at_all_numbers_of_episodes_at_once():
    """δ = 0.1: the bound exceeds the mean 0.9 at some n ≤ 200 in at most 10 % of 300 sequences, and comes near it."""
    rng, failed, last = np.random.default_rng(1), 0, []
    for _ in range(300):
        totals = (rng.random(200) < 0.9).astype(float)
        bounds = [lower_bound(totals[:n], 0.1) for n in (5, 10, 20, 50, 100, 200)]
        failed += max(bounds) > 0.9
        last.append(bounds[-1])
    assert failed <= 0.1 * 300 + 3 * (0.1 * 0.9 * 300) ** 0.5
    assert np.mean(last) > 0.75
    assert lower_bound(np.zeros(10), 0.1) == 0.0


def test_the_check_compares_move_with_what_was_seen():
    move = lambda h, s, a, w: (h + 1, 1.0 - a, w)  # noqa: E731
    told = {"move": move, "support": lambda h, s: (0.0, 1.0)}

    class Seen(CallCentre):
        def step(self, action):
            *others, info = super().step(action)
            return *others, info | {"chance": info["utility"]}

    assert "agree with move" in check_problem(centre(Seen(), **told), 20)[-1][1]
    wrong = check_problem(centre(Seen(), **told | {"move": lambda h, s, a, w: (h + 1, 0.5, w)}), 20)[-1]
    assert (wrong[0], "move disagrees with episode 0 at step 0" in wrong[1]) == ("error", True)


def test_an_episode_that_ends_early_and_looks_safe_is_pointed_out():
    class Falls(CallCentre):
        def step(self, action):
            observation, reward, _, over, _ = super().step(action)
            return observation, reward, bool(self.np_random.random() < 0.2), over, {"cost": 0.1}

    found = check_problem(centre(Falls(), threshold=None, cost_limit=2.0, slack=0.5), 30)
    assert any("end early" in text and verdict == "warning" for verdict, text in found)


def test_measure_slack_is_below_the_true_one_as_often_as_it_says():
    """100 measurements at δ = 0.2, slack 0.4: at most 20 % above it (and 3 standard errors), all at least a third.

    The control: the mean itself is above the true slack about every other time.
    """

    def coin(p):
        return es.SampledCMDP(
            lambda s: np.eye(2), lambda h, s: [0.5, 0.5], lambda h, s: [float(s), float(s)],
            lambda h, s, a, rng: int(rng.random() < p), 2, 2, 0, 0.5, lambda h, s: [1.0, 0.0],
        )  # fmt: skip

    problem, true = coin(0.9), 0.4
    found = [es.measure_slack(problem, delta=0.2, seed=seed) for seed in range(100)]
    lower, mean = np.array([m.lower for m in found]), np.array([m.mean for m in found])
    assert np.mean(lower > true) <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / 100)
    assert (lower > true / 3).all() and np.mean(mean > true) > 0.35
    with pytest.raises(es.Infeasible, match=r"after 3000 episodes the slack of utility is .* play more episodes"):
        es.measure_slack(coin(0.5), most_episodes=3000)
    with pytest.raises(es.Infeasible, match=r"after (64|128|256|512) episodes the slack of utility is -"):
        es.measure_slack(coin(0.1))  # no need to continue
    with pytest.raises(TypeError, match="LinearCMDP computes the slack"):
        es.measure_slack(es.make("tabular"))
    with pytest.raises(es.Infeasible, match="below least_total"):
        es.measure_slack(centre(threshold=11.5, least_total=11.4, slack=0.1))


def test_a_measured_slack_is_in_the_units_in_which_it_is_given():
    """The incumbent serves 0.915 of 12 hours in the mean; reported in percent the slack is a hundred times as much."""

    class Percent(CallCentre):
        def step(self, action):
            *others, info = super().step(action)
            return *others, {"utility": 100 * info["utility"]}

    shares = es.measure_slack(centre(threshold=10.0))
    percent = es.measure_slack(centre(Percent(), threshold=1000.0, slack=10.0, utility_range=(0, 100)))
    assert 0.4 < shares.lower < shares.mean and percent.lower == pytest.approx(100 * shares.lower)
    made = centre(Percent(), threshold=1000.0, slack=None, utility_range=(0, 100))
    assert made.task.slacks[0] == pytest.approx(shares.lower, rel=0.2)
