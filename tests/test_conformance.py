"""One battery for every agent, whatever its algorithm."""

import gc

import numpy as np
import pytest

import episafe as es
from conftest import constants
from episafe.problems.policy import components_of

AGENTS = {
    "opse": lambda task: es.OPSE(task, constants()),
    "opse-doubling": lambda task: es.OPSE(task, constants(), es.Doubling(0.5)),
    "ghosh": lambda task: es.Ghosh2024(task, constants()),
    "dope": lambda task: es.DOPE(task, constants(C_u=0.02)),
    "dope-doubling": lambda task: es.DOPE(task, constants(C_u=0.02), es.Doubling(0.5)),
    "opse-observation": lambda task: es.OPSE(task, constants(), certifier=es.certify.Observation()),
    "opse-fresh-data": lambda task: es.OPSE(task, constants(), certifier=es.certify.FreshData()),
    "uniform": lambda task: es.Fixed(task, "uniform"),
    "incumbent": lambda task: es.Fixed(task, "incumbent"),
}
PROBLEMS = {
    "tabular": lambda: es.make("tabular", seed=3),
    "streaming": lambda: es.make("streaming", seed=3),
    "linear": lambda: es.make("linear", seed=3, num_states=12),
}


def table_of(plan):
    """The table of the policy, or of the first component of a mixture."""
    return components_of(plan.policy)[0][0].table()


@pytest.fixture(params=AGENTS)
def build(request):
    return AGENTS[request.param]


@pytest.fixture(params=PROBLEMS)
def cmdp(request):
    return PROBLEMS[request.param]()


def test_every_plan_is_a_policy_and_every_certified_one_passed_the_check(build, cmdp):
    agent = build(cmdp.task)
    record = es.run(cmdp, agent, num_episodes=150)
    table = table_of(agent.plan())
    assert table.shape == cmdp.task.reward.shape
    assert (table >= 0).all()
    np.testing.assert_allclose(table.sum(axis=-1), 1, atol=1e-12)
    if agent.certified:
        passed = record.utility_bounds >= cmdp.task.threshold
        assert ((record.sources == "safe") | passed).all()
        assert not (passed & (record.sources == "safe")).any()


def test_plans_are_deterministic_and_planning_changes_nothing(build, cmdp):
    agents = build(cmdp.task), build(cmdp.task)
    rng = np.random.default_rng(0)
    for _ in range(40):
        first, again, other = agents[0].plan(), agents[0].plan(), agents[1].plan()
        assert first is again
        np.testing.assert_array_equal(table_of(first), table_of(other))
        np.testing.assert_array_equal([first.lam, first.utility_bound], [other.lam, other.utility_bound])
        states = rng.integers(cmdp.task.num_states, size=cmdp.task.horizon + 1)
        states[0] = cmdp.task.initial_state
        actions = rng.integers(cmdp.task.num_actions, size=cmdp.task.horizon)
        if first.level == "theorem":  # an episode that the deployed policy never has is refused
            actions = [rng.choice(len(row), p=row) for row in table_of(first)[np.arange(len(actions)), states[:-1]]]
        for agent in agents:
            agent.learn(es.Episode(states, actions, component=0), plan_id=first.id)


def test_the_same_seed_gives_the_same_record_bit_for_bit(build, cmdp):
    records = [es.run(cmdp, build(cmdp.task), num_episodes=60, seed=5) for _ in range(2)]
    for name in ("reward_values", "utility_values", "sources", "lams", "utility_bounds", "plan_ids"):
        np.testing.assert_array_equal(getattr(records[0], name), getattr(records[1], name))


@pytest.mark.parametrize("name", ["opse", "ghosh", "dope"])
def test_another_seed_gives_another_run(name):
    cmdp = PROBLEMS["streaming"]()
    first, second = (es.run(cmdp, AGENTS[name](cmdp.task), num_episodes=200, seed=seed) for seed in (5, 6))
    assert (first.reward_values != second.reward_values).any()


def test_no_path_leads_from_an_agent_to_the_kernel(build, cmdp):
    """Nothing that an agent refers to, however indirectly, is the problem or its kernel."""
    agent = build(cmdp.task)
    seen, waiting = set(), [agent]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type) or type(thing).__name__ in ("module", "function"):
            continue
        seen.add(id(thing))
        assert thing is not cmdp
        assert thing is not cmdp.P
        assert not np.shares_memory(thing, cmdp.P) if isinstance(thing, np.ndarray) else True
        waiting.extend(gc.get_referents(thing))
    assert len(seen) > 10


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        ([0, 0, 0, 0], [0, 0, 0, 0], "states must have length 5"),
        ([0, 0, 0, 0, 0], [0, 0, 0], "actions must have length 4"),
        ([0, 0, 99999, 0, 0], [0, 0, 0, 0], r"states must be in \[0, "),
        ([0, 0, 0, 0, 0], [0, -1, 0, 0], r"actions must be in \[0, "),
        ([0.5, 0, 0, 0, 0], [0, 0, 0, 0], "states must be whole numbers"),
    ],
)
def test_an_episode_that_does_not_fit_is_refused_and_changes_nothing(build, cmdp, states, actions, message):
    agent = build(cmdp.task)
    good = es.Episode([cmdp.task.initial_state, 0, 1, 0, 1], [0, 1, 0, 1])
    agent.learn(good)
    before = agent.plan()
    with pytest.raises(es.InvalidEpisode, match=message):
        agent.learn(es.Episode(states, actions))
    assert agent.plan() is before
    for plan_id in (7, -1, "a"):
        with pytest.raises(es.InvalidEpisode, match="was not issued"):
            agent.learn(good, plan_id=plan_id)
    for rewards in ([float("nan")] * 4, "abcd", [0.1]):
        with pytest.raises(es.InvalidEpisode, match="rewards"):
            agent.learn(es.Episode(good.states, good.actions, rewards=rewards))
    with pytest.raises(es.InvalidEpisode, match="states"):
        agent.learn(es.Episode([[0], [0, 1]], good.actions))
    agent.learn(es.Episode(good.states, good.actions, rewards=[0.0] * 4, utilities=[1.0] * 4))


def test_a_problem_in_place_of_its_task_is_refused_with_the_remedy(build, cmdp):
    with pytest.raises(TypeError, match=r"got LinearCMDP: pass its \.task"):
        build(cmdp)


def test_learning_may_come_before_any_plan_and_many_times(build, cmdp):
    agent = build(cmdp.task)
    for _ in range(3):
        agent.learn(es.Episode([cmdp.task.initial_state, 0, 1, 0, 1], [0, 1, 0, 1]))
    assert agent.plan().source in ("safe", "zero", "search", "fixed")


def test_logs_from_another_start_are_learned_too(build, cmdp):
    agent = build(cmdp.task)
    start = (cmdp.task.initial_state + 1) % cmdp.task.num_states
    agent.learn(es.Episode([start, 0, 1, 0, 1], [0, 1, 0, 1]))
    assert table_of(agent.plan()).shape == cmdp.task.reward.shape


@pytest.mark.parametrize("name", ["opse", "opse-observation", "opse-fresh-data", "dope"])
def test_any_failure_inside_deploys_the_incumbent_and_says_why(name, cmdp, monkeypatch):
    agent = AGENTS[name](cmdp.task)

    def broken(*_):
        raise FloatingPointError("overflow in a bonus")

    monkeypatch.setattr(agent, "_propose", broken)
    plan = agent.plan()
    assert plan.source == "safe"
    assert plan.policy is cmdp.task.safe_policy
    assert "FloatingPointError: overflow in a bonus" in plan.reason


@pytest.mark.parametrize("name", ["opse", "opse-observation", "opse-fresh-data"])
def test_a_bound_that_is_not_a_number_never_passes(name, cmdp):
    agent = AGENTS[name](cmdp.task)
    known = agent.planner.regression
    known.support.reward[0, 0, 0] = np.nan
    plan = agent.plan()
    assert plan.source == "safe"
    assert np.isnan(plan.utility_bound)
