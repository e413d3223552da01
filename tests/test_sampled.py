"""Problems given by functions: the same plans as with arrays, and nothing of the size of the state space."""

import numpy as np
import pytest

import episafe as es
import oracles
from conftest import constants
from episafe.envs.large_linear import huge


def sampled_from(cmdp, **changes):
    """The same problem by functions of an int state."""
    task = cmdp.task
    functions = {
        "features": lambda s: task.phi[s],
        "reward": lambda h, s: task.reward[h, s],
        "utility": lambda h, s: task.utility[h, s],
        "sample": lambda h, s, a, rng: int(rng.choice(task.num_states, p=cmdp.P[h, s, a])),
        "horizon": task.horizon,
        "num_actions": task.num_actions,
        "initial_state": task.initial_state,
        "threshold": task.threshold,
        "safe_policy": lambda h, s: task.safe_policy.table()[h, s],
        "slack": task.slack,
    }
    return es.SampledCMDP(**{**functions, **changes})


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("build", [es.OPSE, es.Ghosh2024])
def test_plans_equal_those_of_the_same_problem_by_arrays(seed, build):
    cmdp = es.make("linear", seed=seed, num_states=25)
    rng = np.random.default_rng(seed)
    raw = {"P": cmdp.P, "initial_state": cmdp.task.initial_state}
    episodes = oracles.random_episodes(rng, raw, np.full((4, 25, 3), 1 / 3), 300)
    agents = [build(task, constants(C_u=0.5)) for task in (cmdp.task, sampled_from(cmdp).task)]
    for agent in agents:
        for states, actions in episodes:
            agent.learn(es.Episode(states.tolist(), actions))
    finite, sampled = (agent.plan() for agent in agents)
    assert (finite.source, finite.lam, finite.utility_bound) == (sampled.source, sampled.lam, sampled.utility_bound)
    table = finite.policy.table()
    for h in range(4):
        for s in range(25):
            np.testing.assert_allclose(sampled.policy.probabilities(h, s), table[h, s], atol=1e-12)


def test_memory_follows_visited_states_and_not_the_state_space():
    shapes = []
    for num_states in (10**2, 10**6):
        problem = huge(num_states)
        agent = es.OPSE(problem.task, constants(), es.Doubling(0.3))
        es.run(problem, agent, num_episodes=150)
        known = agent.planner.regression
        shapes.append(
            sum(array.size for part in (known.support, known.model, known.work[:-1], known.work.rest) for array in part)
        )
        assert known.support.size.max() <= 100
    assert shapes[1] <= 2 * shapes[0]


def test_a_run_holds_nan_for_exact_values_and_what_was_collected(tmp_path):
    problem = huge(10**6)
    record = es.run(problem, es.Fixed(problem.task, "incumbent"), num_episodes=400, seed=1)
    assert np.isnan(record.reward_values).all()
    assert np.isnan(record.regret()).all()
    assert np.isnan(record.optimum)
    (reward, width), (utility, _) = record.observed(last=400)
    assert reward == record.reward_totals.mean()
    assert 0 < width < 0.2
    assert utility > problem.task.threshold
    record.save(tmp_path)
    again = es.Record.load(tmp_path)
    np.testing.assert_array_equal(again.utility_totals, record.utility_totals)
    same = es.run(problem, es.Fixed(problem.task, "incumbent"), num_episodes=400, seed=1)
    np.testing.assert_array_equal(same.utility_totals, record.utility_totals)


def test_estimates_agree_with_exact_values_where_both_are_known():
    """3000 episodes of the uniform policy, seeded: within two half-widths of the exact values."""
    cmdp = es.make("linear", seed=3, num_states=25)
    problem = sampled_from(cmdp)
    record = es.run(problem, es.Fixed(problem.task, "uniform"), num_episodes=3000)
    exact = cmdp.evaluate(np.full((4, 25, 3), 1 / 3))
    for value, (mean, half_width) in zip(exact, record.observed(last=3000), strict=True):
        assert abs(mean - value) < 2 * half_width


def test_states_may_be_arrays_or_tuples():
    """A point on the line that drifts; equal arrays are the same state."""

    def problem(wrap):
        return es.SampledCMDP(
            features=lambda s: np.array([[1.0, 0.0], [0.0, 1.0]]) * 0.5,
            reward=lambda h, s: [0.1, 0.9],
            utility=lambda h, s: [0.9, 0.1],
            sample=lambda h, s, a, rng: wrap(float(np.ravel(s)[0]) + a),
            horizon=2,
            num_actions=2,
            initial_state=wrap(0.0),
            threshold=0.5,
            safe_policy=lambda h, s: [1.0, 0.0],
            slack=0.5,
        )

    sizes = []
    for wrap in (lambda x: np.array([x]), lambda x: (x,)):
        made = problem(wrap)
        agent = es.OPSE(made.task, constants())
        es.run(made, agent, num_episodes=50)
        sizes.append(agent.planner.regression.support.size.tolist())
    assert sizes[0] == sizes[1]
    assert sizes[0][0] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": lambda s: np.ones((3, 5))}, "has norm"),
        ({"features": lambda s: np.zeros((2, 5))}, "features at the initial state must have shape"),
        ({"reward": lambda h, s: [0.0, 0.0, 2.0]}, "reward at step 0, state .* lies outside"),
        ({"utility": lambda h, s: [0.0, np.nan, 0.0]}, "utility at step 0, state .* is nan"),
        ({"safe_policy": lambda h, s: [1.0, 1.0, 1.0]}, "policy at step 0, state .* sums to 3"),
        ({"slack": 0.0}, "slack must be > 0"),
        ({"threshold": "high"}, "threshold must be a number"),
        ({"horizon": 0}, "horizon must be a whole number"),
    ],
)
def test_bad_functions_are_refused_with_the_place(changes, message):
    cmdp = es.make("linear", seed=0, num_states=12)
    with pytest.raises((es.InvalidProblem, IndexError, ValueError), match=message):
        es.OPSE(sampled_from(cmdp, **changes).task, constants())


def test_a_bad_state_met_on_the_way_is_refused_and_nothing_is_learned_from_it():
    cmdp = es.make("linear", seed=0, num_states=12)
    bad = sampled_from(cmdp, reward=lambda h, s: cmdp.task.reward[h, s] + (3.0 if s == 7 else 0.0))
    agent = es.OPSE(bad.task, constants())
    start = cmdp.task.initial_state
    agent.learn(es.Episode([start, 1, 2, 3, 4], [0, 0, 0, 0]))
    before = agent.planner.information.copy()
    with pytest.raises(es.InvalidProblem, match="state 7"):
        agent.learn(es.Episode([start, 1, 7, 3, 4], [0, 0, 0, 0]))
    np.testing.assert_array_equal(agent.planner.information, before)
    with pytest.raises(es.InvalidEpisode, match="states must have length 5"):
        agent.learn(es.Episode([start, 1], [0, 0, 0, 0]))


def test_what_needs_listed_states_says_so():
    problem = huge(10**6)
    with pytest.raises(TypeError, match="listed states"):
        es.DOPE(problem.task, constants())
    plan = es.Ghosh2024(problem.task, constants()).plan()
    assert plan.policy.probabilities(0, 123_456).sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="no table"):
        plan.policy.table()
