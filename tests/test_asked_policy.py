"""A report is held against the states at which the policy of its deployment was asked, in the same process."""

import copy

import numpy as np
import pytest

import episafe as es
from episafe.deployment.asked_policy import MOST_STATES
from episafe.service.handlers import Handlers

FIRST, NEXT = (5, "a"), (3, "b")


def incumbent(h, state):
    return np.array([0.8, 0.2])


def problem(first=FIRST, following=NEXT):
    return es.SampledCMDP(
        lambda state: np.eye(2), lambda h, state: [0.0, 1.0], lambda h, state: [1.0, 0.5],
        lambda h, state, action, rng: following, 2, 2, first, 1.0, incumbent, 0.5,
    )  # fmt: skip


def opened(folder=None, made=None):
    return es.open(folder, agent=es.OPSE((made or problem()).task, certifier=es.certify.Observation()), false_alarm=0)


def act(deployed, *states):
    rng = np.random.default_rng(0)
    return [int(deployed.policy.act(h, state, rng)) for h, state in enumerate(states)]


@pytest.mark.parametrize(
    "asked", [(3.5, "b"), (3, "B"), (3, None), (3, float("nan")), (1, 3, "b"), ((3, "b"),), "low", None]
)
def test_a_report_of_other_states_than_were_asked_is_refused_and_changes_nothing(asked):
    """The policy acted where it was not judged: 3 of 3 lives below b of 24 kinds, and of 32 others."""
    session = opened()
    deployed = session.deploy(np.random.default_rng(0))
    actions = act(deployed, FIRST, asked)
    with pytest.raises(es.InvalidEpisode, match=r"state .* at step 1, and the policy of this deployment was asked at"):
        session.learn(es.Episode([FIRST, NEXT, NEXT], actions), deployment=deployed.id)
    assert session.status().reported == 0
    session.learn(es.Episode([FIRST, asked, NEXT], actions), deployment=deployed.id)
    assert session.status().reported == 1


@pytest.mark.parametrize("states", [[FIRST, NEXT], [[5, "a"], [3, "b"]], [(np.uint8(5), "a"), (3.0, np.str_("b"))]])
def test_what_is_read_as_the_same_state_is_the_same(states):
    session = opened()
    deployed = session.deploy(np.random.default_rng(0))
    session.learn(es.Episode([FIRST, NEXT, NEXT], act(deployed, *states)), deployment=deployed.id)
    assert session.status().reported == 1


def test_nan_and_arrays_are_held_to_the_last_bit():
    for first, following, other in (
        (0.5, float("nan"), 0.25),
        (np.zeros(2), np.array([0.1 + 0.2, np.nan]), np.array([0.3, np.nan])),
    ):
        session = opened(made=problem(first, following))
        deployed = session.deploy(np.random.default_rng(0))
        buffer = np.array(following)
        actions = act(deployed, first, buffer if isinstance(following, np.ndarray) else float("nan"))
        buffer[...] = 7.0  # a buffer of the environment's
        with pytest.raises(es.InvalidEpisode, match=r"was asked (at|elsewhere)"):
            session.learn(es.Episode([first, other, following], actions), deployment=deployed.id)
        session.learn(es.Episode([first, following, following], actions), deployment=deployed.id)


def test_who_asks_more_often_elsewhere_or_of_a_copy_is_not_refused():
    session = opened()
    rng, report = np.random.default_rng(0), es.Episode([FIRST, NEXT, NEXT], [0, 0])
    tried = session.deploy(rng)  # at what may come, and then at what came
    act(tried, FIRST, (4, "b")), act(tried, FIRST, NEXT)
    session.learn(report, deployment=tried.id)
    many = session.deploy(rng)  # a map of what it would do
    for number in range(MOST_STATES + 1):
        many.policy.probabilities(1, (number + 10, "b"))
    session.learn(report, deployment=many.id)
    copied = session.deploy(rng)
    copy.copy(copied.policy).probabilities(1, (4, "b"))
    copied.policy.probabilities(1, NEXT)
    session.learn(report, deployment=copied.id)
    silent = session.deploy(rng)
    session.learn(report, deployment=silent.id)
    assert session.status().reported == 4


def test_a_deployment_that_is_handed_out_again_remembers_what_was_asked(tmp_path):
    with opened(tmp_path) as session:
        rng = np.random.default_rng(0)
        actions = act(session.deploy(rng, episode_id="monday"), FIRST)
        actions += act(session.deploy(rng, episode_id="monday"), FIRST, (4, "b"))[1:]
        with pytest.raises(es.InvalidEpisode, match="was asked at"):
            session.learn(es.Episode([FIRST, NEXT, NEXT], actions), episode_id="monday")
    with opened(tmp_path) as session:  # another process knows nothing of it
        session.learn(es.Episode([FIRST, NEXT, NEXT], actions), episode_id="monday")


@pytest.mark.parametrize("is_named", [False, True])
def test_reports_by_their_plan_alone_are_not_held_against_the_one_that_is_left(is_named):
    """By its plan nobody knows which deployment it is of, also under a new name; the last one left was taken for it."""
    session, rng, made = opened(), np.random.default_rng(0), []
    while len({deployed.plan.id for deployed in made[-3:]}) != 1 or len(made) < 3:
        made.append(session.deploy(rng))
    for number, deployed in enumerate(made[-3:]):
        act(deployed, FIRST, (number, "b"))
    for number in (2, 0, 1):
        states, plan = [FIRST, (number, "b"), NEXT], made[-1].plan
        report, name = es.Episode(states, [0, 0], component=made[-3 + number].component), f"day {number}"
        session.learn(report, plan_id=plan.id, episode_id=name if is_named else None)
    assert session.status().reported == 3


def test_what_is_abandoned_is_forgotten():
    session = opened()
    deployed = session.deploy(np.random.default_rng(0))
    act(deployed, FIRST, NEXT)
    session.abandon(deployed.id)
    assert not session._asked


def test_over_http_too():
    handlers = Handlers(opened())
    deployment = handlers.plan({})["deployment"]
    for step, state in enumerate(([5, "a"], [["3", "b"]])):
        handlers.act({"deployment": deployment, "step": step, "state": state})
    report = {"states": [[5, "a"], [3, "b"], [3, "b"]], "actions": [0, 0]}
    with pytest.raises((es.InvalidEpisode, ValueError), match="was asked at"):
        handlers.learn({"deployment": deployment, "episode": report})


def test_after_the_end_nobody_acts_and_nothing_is_held():
    gymnasium = pytest.importorskip("gymnasium")
    made = es.from_gymnasium(
        gymnasium.make("FrozenLake-v1", max_episode_steps=9), horizon=9, features=es.features.OneHot(), threshold=0.1,
        slack=0.1, safe_policy=lambda h, state: np.full(4, 0.25), utility=lambda h, state: np.ones(4),
    )  # fmt: skip
    session, rng = opened(made=made), np.random.default_rng(3)
    for _ in range(20):
        deployed, state = session.deploy(rng), made.reset()
        states, actions, rewards, seen = [state], [], [], state
        for h in range(9):
            actions.append(int(deployed.policy.act(h, seen, rng)))  # at the last observation, also after the end
            state, reward, _ = made.step(actions[-1])
            seen = state if isinstance(state, int) else seen
            states.append(state)
            rewards.append(reward)
        session.learn(es.Episode(states, actions, rewards), deployment=deployed.id)
    assert session.status().reported == 20


def test_what_acts_is_still_the_policy_under_its_name():
    session, rng = opened(), np.random.default_rng(0)
    mine = problem().task.as_policy(incumbent)
    session.add_candidate("mine", mine)
    acting = {deployed.policy.name: deployed.policy for deployed in (session.deploy(rng) for _ in range(60))}
    assert acting["mine"].policy is mine
    rollout = es.open(None, es.Rollout(0.7, 0.2, {"v2": "v2"}, "v1", utility_max=1.0))
    assert {rollout.deploy(rng).policy.policy for _ in range(60)} == {"v1", "v2"}
