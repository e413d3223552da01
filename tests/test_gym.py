"""Gymnasium environments as problems: signals, limits, starts, ends, observations, and what a refusal says."""

import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import episafe as es
from conftest import constants
from episafe.core.types import ENDED, START
from episafe.gym.encode import observations_of

H = 3


class Walk(gym.Env):
    """A counter from 0; action 1 pays and costs."""

    action_space: spaces.Space = spaces.Discrete(2)
    observation_space: spaces.Space = spaces.Discrete(50)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.start(), {}

    def start(self):
        return 0

    def step(self, action):
        self.t += 1
        return self.returned(self.t, float(action), False, False, {"cost": float(action)})

    def returned(self, *values):
        return values


def returning(change, **attributes):
    """Walk whose step returns `change(observation, reward, terminated, truncated, info)`."""
    return type("Changed", (Walk,), {"returned": lambda self, *values: change(*values), **attributes})()


def observing(space, seen):
    """Walk whose observation is always `seen`."""
    same = {"observation_space": space, "start": lambda self: seen}
    return returning(lambda o, *rest: (seen, *rest), **same)


def reporting(info):
    """Walk whose step reports `info`."""
    return returning(lambda o, r, d, t, i: (o, r, d, t, info))


GOOD = {"horizon": H, "cost_limit": 1.0, "slack": 0.5, "incumbent": lambda h, s: [1.0, 0.0]}
UTILITY = {"cost_limit": None, "threshold": 1.0}


def problem(env=None, **changes):
    return es.from_gymnasium(env or Walk(), **{**GOOD, **changes})


def played(made, actions):
    """Return states, rewards and utilities (H, m) of one episode with these actions."""
    states, seen = [made.reset()], []
    for action in actions:
        state, reward, utilities, _ = made.step(action)
        states.append(state)
        seen.append((reward, *utilities))
    return states, np.array(seen)[:, 0], np.array(seen)[:, 1:]


def episodes(made, number=20, seed=0, policy=None):
    rng = np.random.default_rng(seed)
    return [made.play(policy or made.task.incumbent, rng) for _ in range(number)]


def test_a_cost_limit_is_a_threshold_on_one_minus_the_cost():
    made = problem()
    assert made.task.thresholds.tolist() == [H - 1.0] and made.task.slacks.tolist() == [0.5]
    _, rewards, utilities = played(made, [0, 1, 1])
    assert rewards.tolist() == [0, 1, 1]
    assert utilities.ravel().tolist() == [1, 0, 0]
    assert made.raw_totals([1.0]) == [2.0]


def test_ranges_scale_signals_threshold_and_slack():
    """Rewards −10..10, utilities 0..4, at least 6 of them in 3 steps: 1.5 of 3 in units of [0, 1]."""
    env = returning(lambda o, r, d, t, i: (o, 10 * r, d, t, {"utility": 4 * r}))
    told = {"threshold": 6.0, "cost_limit": None, "reward_range": (-10, 10), "utility_range": (0, 4), "slack": 1.0}
    made = problem(env, **told)
    assert (made.task.thresholds[0], made.task.slacks[0]) == (1.5, 0.25)
    _, rewards, utilities = played(made, [0, 1, 0])
    assert rewards.tolist() == [0.5, 1.0, 0.5]
    assert utilities.ravel().tolist() == [0, 1, 0]
    assert made.raw_totals([1.5]) == [6.0]


@pytest.mark.parametrize(("name", "limit", "left"), [("cost", {}, 1.0), ("utility", UTILITY, 0.0)])
def test_after_an_early_end_reward_and_signal_are_zero(name, limit, left):
    env = returning(lambda o, r, d, t, i: (o, r, o == 2, t, {name: 1.0}))
    made = problem(env, **limit)
    states, rewards, utilities = played(made, [1, 1, 1])
    assert states == [0, 1, ENDED, ENDED]
    assert rewards.tolist() == [1, 1, 0] and utilities[2] == left
    (episode,) = episodes(made, 1)
    assert episode.states == (0, 1, ENDED, ENDED) and episode.utilities[2] == left


def test_six_values_have_the_cost_third_and_a_function_may_tell_it():
    env = returning(lambda o, r, d, t, i: (o, r, i["cost"] / 2, d, t, {}))
    assert played(problem(env), [1, 0, 1])[2].ravel().tolist() == [0.5, 1, 0.5]
    made = problem(reporting({}), cost=lambda observation, action, following, info: float(observation == 1))
    assert played(made, [1, 0, 1])[2].ravel().tolist() == [1, 0, 1]


class Random(Walk):
    def start(self):
        return int(self.np_random.integers(10, 14))


def test_a_random_start_is_found_and_is_a_dummy_first_step():
    asked = []

    def policy(h, observation):
        asked.append((h, observation))
        return [0.0, 1.0]

    made = problem(Random(), incumbent=policy, cost_limit=2.5, slack=0.1)
    assert made.task.horizon == H + 1 and made.task.initial_state == START and made.origin["random_start"] == 1
    assert problem().task.horizon == H
    asked.clear()
    found = episodes(made, 30)
    assert {one.states[1] for one in found} == {10, 11, 12, 13}
    assert {h for h, _ in asked} == {0, 1, 2}  # steps are counted from the first observation
    assert all(one.states[0] == START and one.rewards[0] == 0 and one.utilities[0] == 0 for one in found)
    assert (
        made.task.unit("cost").raw(found[0].total_utility[0]) == 3.0
    )  # the cost of three steps; the dummy step adds none
    record = es.run(made, es.OPSE(made, constants()), 20)
    assert np.isfinite(record.utility_totals).all()
    with pytest.raises(es.InvalidProblem, match="random_start=True"):
        problem(Random(), random_start=False)


def test_a_start_that_drifts_is_refused():
    class Drifting(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.k = 0 if seed is not None else self.k + 1
            return self.k, {}

    with pytest.raises(es.InvalidProblem, match=r"one episode starts at 1.*random_start=True"):
        episodes(problem(Drifting()), 2)


def test_two_problems_have_other_draws_and_the_same_seed_of_a_run_the_same():
    noisy = lambda: returning(lambda o, r, d, t, i: (o, float(env.np_random.random()), d, t, i))  # noqa: E731
    rewards = []
    for _ in range(3):
        env = noisy()
        rewards.append(float(episodes(problem(env), 1)[0].total_reward))
    assert len(set(rewards)) == 3
    env = noisy()
    made = problem(env)
    first, second = (es.run(made, es.Fixed(made, "incumbent"), 5, seed=4).reward_totals for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(es.run(made, es.Fixed(made, "incumbent"), 5, seed=5).reward_totals, first)


BOX = spaces.Box(-2.0, 2.0, (2, 2), np.float32)
SPACES = [
    spaces.Discrete(3, start=5),
    BOX,
    spaces.Box(0, 4, (2,), np.int16),
    spaces.MultiDiscrete([2, 3], start=[0, 4]),
    spaces.MultiBinary(3),
    spaces.Text(3, charset="abc"),
    spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]),
    spaces.Tuple([BOX, spaces.Tuple([spaces.MultiBinary(2), spaces.Text(2)])]),
    spaces.Dict({"stock": spaces.Discrete(9), "prices": spaces.Box(0, 1, (2,), np.float64)}),
    spaces.Dict({"a": spaces.Dict({"b": spaces.MultiBinary([2, 2])}), "c": BOX}),
]


def as_json(value):
    """Return what a client sends for an observation or a state."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [as_json(part) for part in value]
    return json.loads(json.dumps(np.asarray(value).tolist()))


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_an_observation_its_json_and_its_state_are_one_state(space):
    space.seed(1)
    seen = observations_of(space)
    for _ in range(30):
        observation = space.sample()
        state = seen.encode(observation)
        assert same(seen.encode(as_json(observation)), state) and same(seen.encode(state), state)
        assert same(seen.encode(as_json(state)), state)
        assert same(seen.view(state) if seen.view else state, observation)
        if isinstance(state, np.ndarray):
            assert not state.flags.writeable and state is not observation
        else:
            assert hash(state) == hash(seen.encode(observation))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_foreign_observation_is_refused(space):
    foreign = [None, "xyz", 99, (), (1,), (7, 7), [0, 9], {"stock": 3}, np.zeros(4), np.full((2, 2), 3.0, np.float32)]
    for value in foreign:
        with pytest.raises(es.InvalidEpisode, match="is not in the observation space"):
            observations_of(space).encode(value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_is_refused(value):
    open_box = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    for space, observation in ((open_box, [value]), (spaces.Tuple([open_box]), ([value],))):
        with pytest.raises(es.InvalidEpisode, match="finite"):
            observations_of(space).encode(observation)


def test_states_are_counted_where_they_can_be():
    whole, texts = spaces.Box(-1, 4, (2,), np.int16), spaces.Text(2, charset="ab")
    several = [spaces.Discrete(3, start=5), spaces.MultiBinary((2, 2)), spaces.Tuple([spaces.Discrete(2), texts])]
    assert [observations_of(space).count for space in (whole, texts, *several)] == [36, 6, 3, 16, 12]
    assert observations_of(BOX).count is observations_of(spaces.Dict({"a": spaces.Discrete(2), "b": BOX})).count is None


@pytest.mark.parametrize(
    ("space", "seen", "chosen"),
    [
        (spaces.Discrete(50), 3, "one-hot"),
        (spaces.Box(0, 1, (2,)), np.zeros(2, np.float32), "16 cells per axis, 256 in all"),
        (spaces.Box(-np.inf, np.inf, (5,)), np.zeros(5, np.float32), "Fourier basis of order 1, 32 functions; 5 axes"),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1,))}), {"a": 1, "b": np.zeros(1, np.float32)},
         "16 cells per axis"),
    ],
    ids=str,
)  # fmt: skip
def test_features_are_chosen_by_the_space_and_said(space, seen, chosen):
    made = problem(observing(space, seen))
    assert chosen in made.origin["features"]
    record = es.run(made, es.OPSE(made, constants()), 5)
    assert record.settings["features"] == made.origin["features"]


def test_functions_of_users_are_called_with_observations():
    """A dictionary stays a dictionary for incumbent, candidate, features, signals and moves; its state is a tuple."""
    seen = {"stock": 3, "prices": np.array([0.5, 1.0])}
    asked = []

    def ask(answer):
        def function(*given):
            observation = next(one for one in given if isinstance(one, dict))
            assert set(observation) == {"stock", "prices"} and isinstance(observation["prices"], np.ndarray)
            asked.append(answer)
            return answer

        return function

    info = {"chance": 1, "cost": 0.0}
    env = returning(lambda o, r, d, t, i: (seen, r, d, t, info), start=lambda self: seen, observation_space=SPACES[8])
    made = problem(
        env, incumbent=ask([0.5, 0.5]), features=es.features.OneHot(ask("cell"), 1), reward=ask([0.0, 1.0]),
        move=lambda h, s, a, w: (seen, ask(float(a))(s), 1.0), support=ask((1, 2)),
    )  # fmt: skip
    (episode,) = episodes(made, 1)
    assert episode.states == (((0.5, 1.0), 3),) * (H + 1)  # Gymnasium sorts the keys
    agent = es.SafeAgent(made, es.certify.Observation())
    agent.add_candidate("mine", ask([0.25, 0.75]))
    es.run(made, agent, 3)
    assert made.task.support(0, episode.states[0]) == (1, 2)
    assert made.task.move(0, episode.states[0], 1, 1)[:2] == (episode.states[0], 1.0)
    assert made.task.as_policy(ask([0.25, 0.75])).probabilities(0, episode.states[0]).tolist() == [0.25, 0.75]
    assert {str(one) for one in asked} >= {"[0.5, 0.5]", "[0.25, 0.75]", "cell", "[0.0, 1.0]", "(1, 2)", "1.0"}


def test_states_of_an_episode_are_not_the_buffer_of_the_environment():
    out = np.zeros(1)

    def write(o, *rest):
        out[:] = o
        return (out, *rest)

    made = problem(returning(write, observation_space=spaces.Box(0, 9, (1,), np.float64), start=lambda self: out * 0))
    (episode,) = episodes(made, 1)
    assert [float(state[0]) for state in episode.states] == [0, 1, 2, 3]


def test_actions_of_other_finite_spaces_are_numbered():
    taken = []

    def note(self, action):
        taken.append(np.array(action).tolist())
        return Walk.step(self, 0)

    for space, count in ((spaces.Discrete(3, start=5), 3), (spaces.MultiDiscrete([2, 3]), 6)):
        env = type("Noting", (Walk,), {"action_space": space, "step": note})()
        played(problem(env, incumbent=lambda h, s, n=count: np.full(n, 1 / n)), [0, 2, 1])
    assert taken == [5, 7, 6, [0, 0], [0, 2], [0, 1]]


def test_told_signals_replace_the_observed_ones_and_are_never_nan():
    for random_start in (False, True):
        made = problem(
            returning(lambda o, r, d, t, i: (o, np.nan, o == 2, t, {})), random_start=random_start,
            reward=lambda h, s: [0.25, 0.5], utility=lambda h, s: [1.0, 0.5],
        )  # fmt: skip
        states, rewards, utilities = played(made, [1] * made.task.horizon)
        assert rewards[-3:].tolist() == [0.5, 0.5, 0.0] and utilities.ravel()[-3:].tolist() == [0.5, 0.5, 1.0]
        agent = es.OPSE(made, constants())
        agent.learn(es.Episode(states, [1] * made.task.horizon, rewards, utilities))
        assert np.isfinite(agent.plan().bounds).all()


class Kiosk(Walk):
    """Action 1 earns 1, serves half and wastes 2 units; action 0 earns nothing, serves all and wastes 1."""

    observation_space = spaces.Discrete(2)
    drop = ""  # a name that is not reported

    def step(self, action):
        self.t += 1
        cost = {"waste": 1.0 + action, "noise": float(self.np_random.random())}
        cost.pop(self.drop, None)
        info = {"utility": {"service": 1 - action / 2}, "cost": cost}
        return int(self.np_random.integers(2)), float(action), False, self.t == 3, info


KIOSK = {
    "threshold": {"service": 2.0}, "cost_limit": {"waste": 4.5}, "cost_range": {"waste": (0, 3)},
    "slack": {"service": 0.8, "waste": 1.0}, "incumbent": lambda h, s: [0.9, 0.1],
    "action_names": ("full", "half"), "units": {"service": "days", "reward": "EUR"},
}  # fmt: skip


def test_several_limits_by_name():
    made = problem(Kiosk(), **KIOSK)
    service, waste = made.task.constraints
    assert (service.name, service.threshold, service.slack) == ("service", 2.0, 0.8)
    assert (waste.name, waste.threshold) == ("waste", 3 - 4.5 / 3) and waste.slack == pytest.approx(1 / 3)
    assert made.origin["limit_waste"] == 4.5 and made.origin["cost_high_waste"] == 3
    assert made.task.action_names == ("full", "half") and made.task.unit("reward").text == "EUR"
    (episode,) = episodes(made, 1)
    np.testing.assert_allclose(episode.utilities, [[1 - a / 2, 1 - (1 + a) / 3] for a in episode.actions])
    record = es.run(made, es.SafeAgent(made), 60)
    assert record.utility_totals.shape == (60, 2) and record.settings["level"] == "theorem"


def test_told_utilities_of_several_limits_are_a_mapping():
    told = {"service": lambda h, s: [1, 0.5], "waste": lambda h, s: np.array([2, 1]) / 3}
    (episode,) = episodes(problem(Kiosk(), **KIOSK, utility=told), 1)
    np.testing.assert_allclose(episode.utilities, [[1 - a / 2, 1 - (1 + a) / 3] for a in episode.actions])
    for wrong in (told["service"], {"service": told["service"]}, {**told, "more": None}):
        with pytest.raises(es.InvalidProblem, match="utility"):
            problem(Kiosk(), **KIOSK, utility=wrong)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"slack": 0.8}, r"give \{name: slack\}"),
        ({"slack": {"sevrice": 1}}, "slack is given for 'sevrice', the limits are service, waste"),
        ({"threshold": 2.0}, "but limits are given by name"),
        ({"cost_limit": {"service": 1.0}, "cost_range": None, "slack": None}, "not unique"),
        ({"cost_range": {"waste": (1, 0)}}, "lowest < highest"),
        ({"least_total": {"waste": 1.0}}, "least_total is given for 'waste', the limits are service"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given, says):
    with pytest.raises(es.InvalidProblem, match=says):
        problem(Kiosk(), **KIOSK | given)


def test_a_missing_slack_is_measured_and_said():
    made = problem(Kiosk(), **KIOSK | {"slack": {"service": 0.5}})
    service, waste = made.task.slacks
    true = (4.5 - 3.3) / 3  # costs 3.3 by the mean, in a range of 3
    assert service == 0.5 and true / 3 < waste < true
    assert made.origin["slack_episodes"] >= 64 and made.origin["slack_delta"] == 0.05
    with pytest.raises(es.Infeasible, match="slack of service is"):
        problem(Kiosk(), **KIOSK | {"threshold": {"service": 2.9}, "slack": None})


def test_exogenous_chance_is_in_the_trace_and_replays_the_episode():
    class Shop(Walk):
        observation_space = spaces.Discrete(9)

        def start(self):
            self.stock = int(self.np_random.integers(3))
            return self.stock

        def step(self, action):
            demand = int(self.np_random.integers(4))
            self.t += 1
            before, (self.stock, reward, utility) = self.stock, move(0, self.stock, action, demand)
            return self.stock, reward, False, False, {"utility": utility, "chance": demand, "before": before}

    def move(h, stock, action, demand):
        sold = min(stock, demand)
        return min(stock - sold + 3 * action, 8), sold / 3, 1.0 if sold == demand else 0.0

    made = problem(Shop(), **UTILITY, move=move, support=lambda h, s: range(4), incumbent=lambda h, s: [0.2, 0.8])
    task = made.task
    for episode in episodes(made, 10):
        state, chances = episode.trace
        assert state == START and len(chances) == task.horizon
        for h, w in enumerate(chances):
            state, reward, utility = task.move(h, state, int(episode.actions[h]), w)
            assert (state, reward) == (episode.states[h + 1], episode.rewards[h])
            assert utility.tolist() == episode.utilities[h].tolist()
    assert list(task.support(1, 2)) == [0, 1, 2, 3]
    assert episodes(problem(), 1)[0].trace is None


BROKEN = {  # name: (environment, changed arguments, what the message must say)
    "no environment": (object(), {}, "must be a Gymnasium environment"),
    "a class": (Walk, {}, "must be a Gymnasium environment"),
    "four values": (returning(lambda o, r, d, t, i: (o, r, d, i)), {}, "step must return .*wrap"),
    "no signal": (reporting({}), {}, 'info has no "cost".*nothing: report it at every step'),
    "a cost with a threshold": (Walk(), UTILITY, 'no "utility" .* it has .cost.: give cost_limit'),
    "a utility with a cost limit": (reporting({"utility": 1.0}), {}, "give threshold=… in place of cost_limit"),
    "a name is missing": (type("K", (Kiosk,), {"drop": "waste"})(), KIOSK, 'no "cost" with the name .waste.'),
    "reward NaN": (returning(lambda o, r, *v: (o, np.nan, *v)), {}, "reward .*finite"),
    "reward too large": (returning(lambda o, r, *v: (o, 7.0, *v)), {}, "reward 7 lies outside.*as reward_range="),
    "reward an array": (returning(lambda o, r, *v: (o, np.zeros(2), *v)), {}, "reward must be a finite number"),
    "cost None": (reporting({"cost": None}), {}, 'info has no "cost"'),
    "cost too large": (reporting({"cost": 2.0}), {}, "as cost_range="),
    "cost negative": (reporting({"cost": -1.0}), {}, "a cost is the size of a penalty"),
    "cost a truth value": (reporting({"cost": True}), {}, "cost must be a finite number"),
    "truncated too early": (returning(lambda o, r, d, t, i: (o, r, d, o == 2, i)), {}, "give horizon=2"),
    "another time limit": (gym.wrappers.TimeLimit(Walk(), 9), {}, "time limit is 9 steps and the horizon 3"),
    "horizon a fraction": (Walk(), {"horizon": 2.5}, "horizon must be a whole number"),
    "reset returns no tuple": (type("R", (Walk,), {"reset": lambda self, seed=None: 0})(), {}, "reset must return"),
    "observation outside": (returning(lambda o, *v: (60, *v)), {}, "observation 60 is not in the observation space"),
    "continuous actions": (returning(None, action_space=BOX), {}, "actions are Discrete"),
    "too many actions": (returning(None, action_space=spaces.MultiDiscrete([99, 99])), {}, "9801 actions"),
    "observations a sequence": (observing(spaces.Sequence(spaces.Discrete(2)), ()), {}, "TransformObservation"),
    "too many texts": (observing(spaces.Text(9), "a"), {}, "too many texts to choose features"),
    "too many axes": (observing(spaces.Box(0, 1, (7,)), np.zeros(7, np.float32)), {}, "7 axes.*give features="),
    "one-hot of a continuum": (
        observing(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)), {"features": es.features.OneHot()}, "countable",
    ),
    "features of norm 2": (Walk(), {"features": lambda s: np.array([2.0])}, "norm 2 > 1: divide"),
    "features of norm 1.8 later": (Walk(), {"features": lambda s: np.array([0.9 * s])}, "at 2.*norm 1.8 > 1"),
    "features NaN": (Walk(), {"features": lambda s: np.array([np.nan])}, "features.*finite"),
    "features for three actions": (Walk(), {"features": lambda s: np.zeros((3, 4))}, "A = 2 rows"),
    "features no function": (Walk(), {"features": np.zeros((2, 2))}, "features must be OneHot"),
    "told rewards out of range": (Walk(), {"reward": lambda h, s: [2.0, 0.0]}, "step 0, state 0.*rescale"),
    "no limit": (Walk(), {"cost_limit": None}, "exactly one of threshold"),
    "two limits": (Walk(), {"threshold": 1.0}, "exactly one of threshold"),
    "limit below zero": (Walk(), {"cost_limit": -1.0}, "cannot be kept in 3 steps"),
    "limit that nothing breaks": (Walk(), {"cost_limit": 100.0}, "no episode can break the limit 100"),
    "no slack": (Walk(), {"slack": 0.0}, "slack must be a finite number > 0"),
    "range without zero": (Walk(), {"reward_range": (1.0, 2.0)}, "includes 0"),
    "range of the other signal": (Walk(), {"utility_range": (0.0, 1.0)}, "no limit is on the utility"),
    "incumbent no distribution": (Walk(), {"incumbent": lambda h, s: [1.0, 1.0]}, "sums to 2"),
    "incumbent an action": (Walk(), {"incumbent": lambda h, s: 0}, r"must have shape \(2\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_environment_is_refused_with_the_remedy(name):
    env, changes, message = BROKEN[name]
    with pytest.raises((es.InvalidProblem, es.InvalidEpisode), match=message):
        agent = es.OPSE(made := problem(env, **changes), constants())
        agent.learn(episodes(made, 1)[0])


def test_a_reported_state_must_be_an_observation():
    made = problem()
    agent, (good,) = es.OPSE(made, constants()), episodes(made, 1)
    for state in (99_999, -5, "hot", 3.5, None):
        with pytest.raises(es.InvalidEpisode, match="is not in the observation space"):
            agent.learn(es.Episode((0, state, *good.states[2:]), good.actions, good.rewards, good.utilities))


def test_importing_the_library_does_not_import_gymnasium():
    code = "import sys, episafe as es; es.make('tabular'); sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_with_two_limits_of_unknown_utility_makes_a_record():
    class Two(Walk):
        def step(self, action):
            *result, _ = super().step(action)
            return *result, {"cost": {"noise": 0.1, "wear": 0.2}}

    made = es.from_gymnasium(
        Two(), horizon=3, incumbent=lambda h, s: [0.9, 0.1], cost_limit={"noise": 1.0, "wear": 1.5},
        slack={"noise": 0.1, "wear": 0.1},
    )  # fmt: skip
    record = es.run(made, es.SafeAgent(made), num_episodes=100, seed=0)
    assert record.utility_totals.shape == (100, 2) and np.isnan(record.utility_values).all()


HOLES = (5, 7, 11, 12)


def lake():
    def fell(observation, action, following, info):
        return float(following in HOLES)

    env = gym.make("FrozenLake-v1", max_episode_steps=8, is_slippery=False)
    left = lambda h, observation: [1, 0, 0, 0]  # noqa: E731
    return es.from_gymnasium(env, horizon=8, incumbent=left, cost=fell, cost_limit=0.5, slack=0.5)


def lake_value(policy):
    """Return the expected reward and cost of a policy on the lake, by its published map."""
    dynamics = gym.make("FrozenLake-v1", is_slippery=False).unwrapped.P
    at, reward, cost = {0: 1.0}, 0.0, 0.0
    for h in range(8):
        after: dict[int, float] = {}
        for state, mass in at.items():
            for action, p in enumerate(policy.probabilities(h, state)):
                ((_, following, paid, ended),) = dynamics[state][action]
                reward, cost = reward + mass * p * paid, cost + mass * p * (following in HOLES)
                if not ended:
                    after[following] = after.get(following, 0.0) + mass * p
        at = after
    return reward, cost


def test_a_lake_is_learned_and_every_mixture_keeps_the_limit():
    made = lake()
    agent, rng, rewards = es.SafeAgent(made, candidates={"goal": shortest_way}), np.random.default_rng(0), []
    for _ in range(400):
        plan = agent.plan()
        mixed = isinstance(plan.policy, es.Mixture)
        component, policy = plan.policy.draw(rng) if mixed else (None, plan.policy)
        parts = zip(plan.policy.weights, plan.policy.components, strict=True) if mixed else [(1.0, plan.policy)]
        values = np.array([[w * x for x in lake_value(one)] for w, one in parts]).sum(axis=0)
        assert values[1] <= 0.5 + 1e-9
        rewards.append(values[0])
        agent.learn(made.play(policy, rng, component), plan.id)
    assert rewards[0] < 0.5 and rewards[-1] > 0.9


def shortest_way(h, observation):
    """Go down, down, right, down, right, right, with a detour now and then."""
    row = np.full(4, 0.01)
    row[{0: 1, 4: 1, 8: 2, 9: 1, 13: 2, 14: 2}.get(observation, 0)] = 0.97
    return row


class Trained:
    """What episafe asks of a model of Stable-Baselines3: it acts by the sign of the first number."""

    def __init__(self, action_space):
        self.action_space = action_space

    def predict(self, observation, *, deterministic):
        assert deterministic
        return np.array(self.action_space.start + int(observation[0] > 0)), None


def test_a_trained_model_is_a_candidate():
    policy = es.stable_baselines(Trained(spaces.Discrete(3, start=5)))
    assert policy(0, np.array([0.2])).tolist() == [0, 1, 0]
    assert policy(7, np.array([-0.2])).tolist() == [1, 0, 0]


def test_a_model_with_continuous_actions_is_refused():
    with pytest.raises(es.InvalidProblem, match=r"finite actions.*Box"):
        es.stable_baselines(Trained(spaces.Box(-1.0, 1.0)))
