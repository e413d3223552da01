"""The shared types: what is accepted at the border, in which form, and what an error says."""

import numpy as np
import pytest

from episafe.core.agent import Agent, Doubling, Every, register
from episafe.core.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.core.policy import FunctionPolicy, Mixture, StepPolicy, TablePolicy, as_policy, uniform_table
from episafe.core.task import Constraint, OneHot, TableFeatures, Task, encoder_like, make_constraints
from episafe.core.types import ENDED, START, Episode, Plan, is_outside

H, S, A = 3, 4, 2


def listed(threshold=0.5, slack=0.2, **facts):
    rng = np.random.default_rng(0)
    utility = rng.random((H, S, A))
    return Task(
        H, A, make_constraints(utility, threshold, slack), uniform_table(H, S, A), 0, S, rng.random((H, S, A)), **facts
    )


def test_one_limit_and_several_have_the_same_axis():
    one = listed()
    assert one.thresholds.shape == one.slacks.shape == one.stated_utilities.shape == (1,)
    assert one.utilities.shape == (1, H, S, A)
    utility = np.zeros((H, S, A))
    two = Task(
        H, A, make_constraints([utility, utility], [0.5, 1.0], [0.1, 0.2]), uniform_table(H, S, A), 0, S, utility
    )
    assert two.thresholds.tolist() == [0.5, 1.0]
    assert [one.name for one in two.constraints] == ["limit 1", "limit 2"]
    assert two.utilities.shape == (2, H, S, A)


def test_limits_by_name():
    utility = {"service": np.zeros((H, S, A)), "budget": np.ones((H, S, A))}
    made = make_constraints(utility, {"service": 0.5, "budget": 1.0}, None)
    assert [(one.name, one.threshold, one.slack) for one in made] == [("service", 0.5, None), ("budget", 1.0, None)]
    with pytest.raises(InvalidProblem, match="utility is given for service"):
        make_constraints({"service": None}, {"service": 0.5, "budget": 1.0}, None)


def test_an_unknown_slack_is_an_error_only_where_it_is_needed():
    task = listed(slack=None)
    assert task.stated_utilities.tolist() == [0.5]
    with pytest.raises(InvalidProblem, match=r"es\.measure_slack"):
        _ = task.slacks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": 3.5}, "exceeds the horizon 3"),
        ({"slack": -0.1}, "slack must be a finite number > 0"),
        ({"threshold": np.nan}, "threshold must be a finite number"),
    ],
)
def test_malformed_limits(change, message):
    with pytest.raises(InvalidProblem, match=message):
        listed(**change)
    if "horizon" in message:
        with pytest.raises(Infeasible):
            listed(**change)


def test_one_hot_features_given_in_full_become_counts():
    eye = np.eye(S * A).reshape(S, A, S * A)
    assert listed(features=TableFeatures(eye)).features == OneHot()
    assert listed(features=TableFeatures(eye / 2)).dim == S * A
    with pytest.raises(InvalidProblem, match=r"phi\[0, 0\] has norm 2 > 1"):
        listed(features=TableFeatures(2 * eye))


def test_read_fills_in_known_signals_and_totals():
    task = listed()
    states, actions = [0, 1, 2, 3], [1, 0, 1]
    read = task.read(Episode(states, actions))
    expected = [task.utilities[0, h, states[h], actions[h]] for h in range(H)]
    assert read.utilities[:, 0].tolist() == expected
    assert read.total_utility.shape == (1,)
    assert np.isclose(read.total_utility[0], sum(expected))
    assert read.states.dtype == np.int64
    reported = task.read(Episode(states, actions, utilities=[0.1, 0.2, 0.3]))
    assert reported.utilities.shape == (H, 1)
    assert np.isclose(reported.total_utility[0], 0.6)


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (Episode([0, 1, 2], [0, 0, 0]), "states must have length 4"),
        (Episode([0, 1, 2, 9], [0, 0, 0]), r"states must have length . and hold whole numbers in \[0, 4\)"),
        (Episode([0, 1, 2, 3], [0, 0, 2]), r"actions must have length . and hold whole numbers in \[0, 2\)"),
        (Episode([0, 1, 2, 3], [0, 0.5, 1]), "actions must have length 3 and hold whole numbers"),
        (Episode([0, 1, 2, 3], [0, 0, 1], utilities=[1, np.nan, 0]), "utilities.* is nan"),
        (Episode(), "neither states nor a total utility"),
    ],
)
def test_malformed_episodes(episode, message):
    with pytest.raises(InvalidEpisode, match=message):
        listed().read(episode)


def test_signals_that_the_task_does_not_know_must_be_reported():
    task = Task(H, A, Constraint(None, 0.5, 0.1), lambda h, state: [0.5, 0.5], initial_state=(0, 0))
    with pytest.raises(InvalidEpisode, match="must be reported, because the task does not know"):
        task.read(Episode([(0, 0)] * 4, [0, 1, 0], rewards=[0, 0, 0]))
    assert task.read(Episode([[0, 0]] * 4, [0, 1, 0], [0, 0, 0], [1, 1, 0])).states[0] == (0, 0)


def test_encoding_follows_the_type_of_the_first_state():
    array = encoder_like(np.zeros(2, dtype=np.float32))([0.5, 1])
    assert array.dtype == np.float32 and not array.flags.writeable
    assert encoder_like((0, 0.0))([np.int64(3), np.float64(0.5)]) == (3, 0.5)
    assert listed(state_names=["a", "b", "c", "d"]).encode("c") == 2
    with pytest.raises(InvalidEpisode, match=r"whole number in \[0, 4\)"):
        listed().encode(4)
    assert is_outside(START) and is_outside(ENDED) and not is_outside((1,)) and not is_outside((np.zeros(2),))


def test_policies_of_every_form():
    task = listed()
    assert isinstance(task.as_policy(lambda h, state: [1.0, 0.0]), TablePolicy)  # states are listed
    steps = as_policy(StepPolicy([[0.5, 0.5]] * H), A)
    assert steps.probabilities(1, "anything").tolist() == [0.5, 0.5]
    function = as_policy(lambda h, state: [0.3, 0.7], A)
    assert isinstance(function, FunctionPolicy)
    assert function.probabilities(0, (1, 2)).tolist() == [0.3, 0.7]
    with pytest.raises(InvalidProblem, match=r"sums to 0\.9"):
        as_policy(lambda h, state: [0.3, 0.6], A).probabilities(0, 1)
    with pytest.raises(InvalidProblem, match="give one of its components"):
        as_policy(Mixture([function], [1.0]), A)


def test_functions_of_users_do_not_count_the_dummy_first_step():
    seen = []
    policy = as_policy(lambda h, state: seen.append(h) or [1.0, 0.0], A, first_step=1)
    policy.probabilities(0, START)
    policy.probabilities(1, (5,))
    assert seen == [0]


def test_a_mixture_draws_components_by_their_weights(rng):
    one, other = StepPolicy([[1.0, 0.0]], "one"), StepPolicy([[0.0, 1.0]], "other")
    mixture = Mixture([one, other], [0.25, 0.75])
    assert mixture.names == ("one", "other")
    draws = mixture.draw_many(np.random.default_rng(1), 4000)
    again = np.random.default_rng(1)
    assert draws[:50].tolist() == [mixture.draw(again)[0] for _ in range(50)]
    assert abs(draws.mean() - 0.75) < 0.03
    with pytest.raises(TypeError, match="draw it"):
        mixture.probabilities(0, 0)


class Counting(Agent):
    seen = 0

    def decide(self):
        return self.incumbent_plan("it only counts")

    def observe(self, episode):
        self.seen += 1


def test_an_agent_needs_two_methods():
    register(name="counting", label="Counting", summary="Deploys the incumbent and counts.")(Counting)
    agent = Counting(listed())
    first = agent.plan()
    assert isinstance(first, Plan) and first.source == "safe" and agent.plan() is first
    agent.learn(Episode([0, 1, 2, 3], [0, 0, 1]), first.id)
    assert agent.seen == 1 and agent.plan().id == 1
    assert agent.settings()["agent"] == "counting"


def test_replanning_rules():
    for replan, growth, planned in ((Every(), 0.0, 1), (Doubling(0.3), 0.3, 0), (Doubling(0.3), 0.31, 1)):
        agent = Counting(listed(), replan)
        agent.information = lambda: np.zeros(2)
        agent.plan()
        agent.learn(Episode([0, 1, 2, 3], [0, 0, 1]), 0)
        agent.information = lambda growth=growth: np.array([growth, 0.0])
        assert agent.plan().id == planned
    with pytest.raises(InvalidProblem):
        Doubling(0.0)
