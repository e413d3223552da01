"""Observations as states: one class for each kind of space, and all of it agrees."""

import enum
import itertools
import json
import math
import time
from collections import deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

import episafe as es
from episafe.gym.observations import observations_of, state_of
from episafe.learning.traces import SampledTraces
from episafe.problems.states import START, is_finite, is_same_state, reader_like
from episafe.runs.worlds import world_of

Pair = namedtuple("Pair", "one other")
Level = enum.IntEnum("Level", "LOW HIGH")
Name = enum.Enum("Name", {"X": "x"}, type=str)
MASKED = np.ma.masked_equal([3.0, -999.0], -999.0)
Plain = enum.Enum("Plain", "X Y")
BOX = gym.spaces.Box(-2.0, 2.0, (2, 2), np.float32)
SPACES = [
    gym.spaces.Discrete(3, start=5),
    BOX,
    gym.spaces.Box(0, 4, (2,), np.int16),
    gym.spaces.MultiDiscrete([2, 3], start=[0, 4]),
    gym.spaces.MultiBinary(3),
    gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Discrete(3)]),
    gym.spaces.Tuple([BOX, gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.Discrete(4)])]),
]


class Like:
    """What is like an array, as a Series of pandas, and is none."""

    def __init__(self, numbers):
        self.numbers = np.array(numbers, np.uint8)

    def __array__(self, dtype=None, copy=None):
        return self.numbers if dtype is None else self.numbers.astype(dtype)


def said(observation):
    """An observation as a client says it in JSON."""
    if isinstance(observation, tuple):
        return tuple(said(part) for part in observation)
    return json.loads(json.dumps(np.asarray(observation).tolist()))


def numbers(observation):
    parts = observation if isinstance(observation, tuple) else [np.ravel(observation).tolist()]
    return [x for part in parts for x in (numbers(part) if isinstance(observation, tuple) else part)]


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_is_said_and_what_is_written_in_numbers_is_the_state_that_was_observed(space):
    space.seed(1)
    observations = observations_of(space)
    for _ in range(50):
        observation = space.sample()
        state = state_of(observation)
        assert observations.has(state)
        assert is_finite(state)
        assert same(observations.read(said(observation)), state)
        assert same(observations.read(state), state)
        assert len(observations.kinds) == len(numbers(observation))
        assert same(state_of(observations.of(iter(numbers(observation)))), state)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_is_of_another_space_is_no_state(space):
    observations = observations_of(space)
    foreign = [
        None,
        "5",
        5.0,
        99,
        (),
        (1,),
        (5, 5),
        [0, 1],
        np.array(5),
        np.array([5]),
        np.zeros(3),
        np.full((2, 2), 3.0, np.float32),
    ]
    assert [value for value in foreign if observations.has(value)] == []


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (gym.spaces.Discrete(3, start=5), 3),
        (gym.spaces.Box(-1, 4, (2,), np.int16), 36),
        (gym.spaces.Box(-np.inf, np.inf, (1,), np.int16), None),
        (gym.spaces.Box(0, 1, (1,), np.float32), None),
        (gym.spaces.MultiDiscrete([2, 3], start=[0, 4]), 6),
        (gym.spaces.MultiBinary((2, 2)), 16),
        (gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.MultiBinary(2)]), 8),
        (gym.spaces.Tuple([gym.spaces.Discrete(2), BOX]), None),
    ],
    ids=str,
)
def test_observations_are_counted_where_they_can_be(space, count):
    assert observations_of(space).count == count
    if count is not None and not isinstance(space, gym.spaces.Box):
        met = {str(space.sample()) for _ in range(2000)}
        assert len(met) == count


def test_bounds_of_whole_numbers_are_those_that_are_met():
    observations = observations_of(gym.spaces.MultiDiscrete([2, 3], start=[0, 4]))
    met = [pair for pair in itertools.product(range(-1, 9), repeat=2) if observations.has(np.array(pair))]
    assert met == list(itertools.product([0, 1], [4, 5, 6]))


def test_a_picture_is_made_ready_at_once():
    began = time.process_time()
    observations = observations_of(gym.spaces.Box(0, 255, (210, 160, 3), np.uint8))
    assert observations.has(np.zeros((210, 160, 3), np.uint8))
    assert time.process_time() - began < 1


@pytest.mark.parametrize("space", [gym.spaces.Text(3), gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Text(3)])])
def test_observations_that_are_no_numbers_are_refused(space):
    with pytest.raises(es.InvalidProblem, match="wrap the environment"):
        observations_of(space)


def test_an_array_for_a_tuple_is_read_row_by_row():
    """A candidate acted at the array and was judged at the tuple: 2 of 2 lives."""
    observations = observations_of(gym.spaces.Tuple([gym.spaces.Discrete(9), gym.spaces.Box(0, 1, (1,))]))
    for made in (np.array([3, 1], np.uint8), Like([3, 1]), [3, 1]):
        assert is_same_state(observations.read(made), (3, (1.0,)))


def sampled(first):
    """A problem of states like the first one."""
    return es.SampledCMDP(
        lambda state: np.eye(2), None, None, None, 2, 2, first, 0.5, lambda h, state: [0.0, 1.0], 0.5,
        move=lambda h, state, action, w: (state, 0.0, 1.0), chance=lambda h, past, rng: 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (3, [1, 2]), ((5, 0), ([3, 0],)), ((5, 0), {"a": 3}),
        (np.zeros(2), np.array([3j, 1], object)), (np.zeros(2), ("a", "b")), (np.zeros(2), {1.0, 2.0}),
        (np.zeros((2, 3)), np.ones((3, 2))), (gym.spaces.Box(0, 9, (2, 3)), np.ones((3, 2))),
        (gym.spaces.Tuple([gym.spaces.MultiBinary(2)]), (("1", "0"),)),
        (gym.spaces.Tuple([gym.spaces.Box(0, 9, (2, 3))]), (np.ones((3, 2)),)),
        (5, "3"), ((5, 0), ["3", "0"]), (0.5, b" 0.3"), ("a", b"b"), (5, 3j), ((5, 0), frozenset([5, 0])),
        ((5, 0), iter([3, 0])), ("a", Plain.X), (np.zeros(2), ["1", "2"]),
        (np.zeros(2), MASKED), ((5, 0), MASKED), (gym.spaces.Box(0, 9, (2,)), MASKED),
        (gym.spaces.Discrete(9), 2.5), (gym.spaces.Discrete(9), "3"), (gym.spaces.Discrete(9), [3, 4]),
        (gym.spaces.Box(0, 9, (2,)), [1, 2, 3]), (gym.spaces.Box(0, 9, (2,)), {"a": 1, "b": 2}),
        (gym.spaces.Tuple([gym.spaces.Discrete(9)] * 2), [[3, 0]]),
        (gym.spaces.Tuple([gym.spaces.Discrete(9)] * 2), (3,)),
    ],
)  # fmt: skip
def test_a_policy_is_not_asked_at_what_cannot_be_read(first, said):
    """Candidates and incumbents acted there and were judged where it was reported: 3 of 3 lives of 16 kinds."""
    asked_at = observations_of(first).asked_at if isinstance(first, gym.Space) else sampled(first).task.asked_at
    with pytest.raises((es.InvalidEpisode, es.InvalidProblem), match=r"give |use a tuple"):
        asked_at(said)
    assert asked_at(START) is START


def test_arrays_of_objects_are_no_states():
    """They were looked up by the addresses of their parts, which are given to others."""
    with pytest.raises(es.InvalidProblem, match="whose bytes are addresses: use a tuple"):
        sampled(np.array([1, "a"], object))


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), gym.spaces.Tuple([gym.spaces.Discrete(3)])], ids=str)
def test_an_array_that_is_one_whole_number_is_that_number(space):
    """It was looked up as an array, where nobody had been."""
    observations, number = observations_of(space), np.array(2)
    said = (number,) if isinstance(space, gym.spaces.Tuple) else number
    assert same(observations.read(said), (2,) if isinstance(space, gym.spaces.Tuple) else 2)


@pytest.mark.parametrize(
    ("example", "said", "read"),
    [
        (3, np.uint8(5), 5), (3, np.array(5), 5), (3, 5, 5), (0.5, 3, 3.0),
        (0.5, np.float32(0.7), float(np.float32(0.7))),
        ((3, 0.5), (np.uint8(4), 1), (4, 1.0)), ((3, (True, "a")), (4, (np.True_, np.str_("b"))), (4, (True, "b"))),
        ((5, 0), np.array([3, 1], np.uint8), (3, 1)), ((0.5, 0), np.array([3, 1], np.int8), (3.0, 1)),
        ((1, 2), [3, 4], (3, 4)), (5, np.array([3], np.uint8), 3), (0.5, np.array([[3]], np.uint8), 3.0),
        ((5, (1, 2)), (3, np.array([1, 2])), (3, (1, 2))), (3, Like([5]), 5), ((5, 0.5), Like([3, 1]), (3, 1.0)),
        ((0.5, 0.5), np.array([(1, 2)], "u1,u1")[0], (1.0, 2.0)), ((5, 0), deque([3, 1]), (3, 1)),
        ((0.5, 0.5), np.array((1, 2), "u1,u1"), (1.0, 2.0)), ((5, "a"), np.array([3, "b"], object), (3, "b")),
        (np.zeros(2), Like([1, 2]), np.array([1.0, 2.0])),
        (np.zeros(2), np.array([1, 2], object), np.array([1.0, 2.0])),
        (np.array([5, 1]), pd.Series([3, 2**53 + 1], dtype=object), np.array([3, 2**53 + 1])),
        (np.zeros(2), [10**20, 1], np.array([1e20, 1.0])),
        ("a", np.str_("b"), "b"), (START, (np.uint8(1), np.float32(0.5)), (1, 0.5)), (0.5, True, 1.0), (3, 0.5, 0.5),
        (3, 5.0, 5), (3, True, 1), (3, math.inf, math.inf), (0.5, 10**400, 10**400), (True, 1, True), (True, 3, 3),
        ((5, 0.5), pd.DataFrame({"a": [3], "b": [0.5]}).iloc[0], (3, 0.5)),
        (0.5, Decimal("0.3"), 0.3), (5, [np.uint8(3)], 3),
        ((0.5, 1), (Fraction(1, 4), Decimal(2)), (0.25, 2)), (5, (3,), 3), ((5,), 3, (3,)),
        (Decimal("0.5"), Decimal("0.3"), Decimal("0.3")),
        (np.zeros(1), np.array([3, 5], np.uint8), np.array([3.0, 5.0])),
        (np.zeros(2), np.array([[1, 2]], np.uint8), np.array([1.0, 2.0])),
        (np.zeros(2), np.array([(1, 2)], "u1,u1")[0], np.array([1.0, 2.0])),
        ((5, 0), {"a": 3, "b": 1}.values(), (3, 1)),
        (np.zeros(2), (Decimal("0.5"), 1), np.array([0.5, 1.0])), (0.5, np.longdouble(0.25), 0.25),
        ((np.zeros(2), 1), ([1, 2], np.int8(3)), (np.array([1.0, 2.0]), 3)), (3, [1, 2], [1, 2]), (3, None, None),
    ],
)  # fmt: skip
def test_without_a_space_what_is_said_is_read_like_the_first_state(example, said, read):
    """np.uint8(3) − 5 is 254: a candidate acted at it and was judged at 3, in 6 of 6 lives."""
    found = reader_like(example)(said)
    assert is_same_state(found, read)
    assert is_same_state(reader_like(example)(found), read)


@pytest.mark.parametrize(
    "said", [np.uint8(2), np.uint16(2), np.array(2, np.uint8), np.array([2], np.uint8), Like(2), 2]
)
@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), gym.spaces.Tuple([gym.spaces.Discrete(3)])], ids=str)
def test_whole_numbers_of_a_space_are_of_one_type(space, said):
    is_tuple = isinstance(space, gym.spaces.Tuple)
    (read,) = observations_of(space).read((said,)) if is_tuple else (observations_of(space).read(said),)
    assert type(read) is int and read == 2


@pytest.mark.parametrize("said", [Pair(3, 4), Level.HIGH, Name.X, (1, Level.LOW), (Pair(1, 2), 3)])
def test_a_state_with_a_class_of_its_own_is_refused_with_the_remedy(said):
    """Made plain without a word it was another state to an incumbent that asks `state is Level.LOW`: 24 of 24 lives."""
    with pytest.raises(es.InvalidProblem, match=r"give a plain (int|str|tuple), here and wherever"):
        reader_like(said)(said)


@pytest.mark.parametrize("start", [np.uint8(5), (np.uint8(5), 0), np.float32(0.5)])
def test_replays_and_runs_begin_at_the_first_state_as_it_is_read(start):
    """np.uint8(5) − 7 is 254: replays began there, and reports at 5, in 4 of 4 lives."""
    asked = []

    def move(h, state, action, w):
        asked.append(state)
        return state, 0.0, 1.0

    told = {
        "features": lambda state: np.eye(2), "reward": None, "utility": None, "horizon": 2, "num_actions": 2,
        "initial_state": start, "threshold": 0.5, "slack": 0.5, "safe_policy": lambda h, state: [0.0, 1.0],
    }  # fmt: skip
    problem = es.SampledCMDP(sample=None, move=move, chance=lambda h, past, rng: 1, **told)
    problem.task.replay(problem.task.safe_policy, (None, (1, 1)), np.random.default_rng(0))
    traces = SampledTraces(problem.task)
    traces.take_in((None, (1, 1)))
    traces.totals(problem.task.safe_policy)
    assert len(asked) == 4
    assert not any(
        isinstance(part, np.generic) for state in asked for part in (state if type(state) is tuple else [state])
    )


def test_states_of_a_run_are_not_the_buffer_of_the_world():
    """`out[:] = …; return out` made all states of an episode the last one: 4 of 4 lives."""
    out = np.zeros(1)

    def sample(h, state, action, rng):
        out[:] = h + 1
        return out

    problem = es.SampledCMDP(
        features=lambda state: np.eye(2), reward=lambda h, state: np.zeros(2), utility=lambda h, state: np.ones(2),
        sample=sample, horizon=3, num_actions=2, initial_state=np.zeros(1), threshold=0.5, slack=0.5,
        safe_policy=lambda h, state: [0.0, 1.0],
    )  # fmt: skip
    world = world_of(problem)
    world.begin(0, 0)
    (played,) = world.play(0, [(None, problem.task.safe_policy)])
    assert [float(state[0]) for state in played.report[0].states] == [0.0, 1.0, 2.0, 3.0]


def test_arrays_that_are_read_cannot_be_written_to():
    """A candidate that normalised its state in place changed where the incumbent was asked: 7 of 8 lives below b."""
    space = gym.spaces.Box(0, 9, (2,), np.float64)
    given = np.array([3.0, 4.0])
    for read in (observations_of(space).read(given), reader_like(given)(given), reader_like((given, 1))((given, 2))[0]):
        with pytest.raises(ValueError, match="read-only"):
            read /= 10
        assert read.tolist() == [3.0, 4.0]
    assert observations_of(space).read(read) is read  # once read it stays the same
    assert observations_of(gym.spaces.Box(0, 9, (2, 1), np.float64)).read([3, 4]).flags.owndata
    given /= 10  # whose it is may write to it
