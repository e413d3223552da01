"""Problems given by functions: the same plans as with arrays, and states of any kind."""

import numpy as np
import pytest

import episafe as es
import oracles
from conftest import constants
from episafe.core.types import START


def sampled_from(cmdp, **changes):
    """Return the same problem by functions of an int state."""
    task = cmdp.task
    functions = {
        "features": task.phi,
        "reward": lambda h, s: task.reward[h, s],
        "utility": lambda h, s: task.utilities[0, h, s],
        "sample": lambda h, s, a, rng: int(rng.choice(task.num_states, p=cmdp.P[h, s, a])),
        "horizon": task.horizon,
        "num_actions": task.num_actions,
        "initial_state": task.initial_state,
        "threshold": task.thresholds[0],
        "safe_policy": lambda h, s: task.incumbent.table()[h, s],
        "slack": task.slacks[0],
    }
    return es.SampledCMDP(**{**functions, **changes})


@pytest.mark.parametrize("build", [es.OPSE, es.Ghosh2024], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["linear", "tabular"])
def test_plans_equal_those_of_the_same_problem_by_arrays(name, build):
    cmdp = es.make(name, seed=2, **{"linear": {"num_states": 25}}.get(name, {}))
    S, H, A = cmdp.task.num_states, cmdp.task.horizon, cmdp.task.num_actions
    by_functions = sampled_from(cmdp, **({"features": es.features.OneHot(size=S)} if name == "tabular" else {}))
    raw = {"P": cmdp.P, "initial_state": cmdp.task.initial_state}
    episodes = oracles.random_episodes(np.random.default_rng(2), raw, np.full((H, S, A), 1 / A), 300)
    agents = [build(problem, constants(C_u=0.5)) for problem in (cmdp, by_functions)]
    for agent in agents:
        for states, actions in episodes:
            agent.learn(es.Episode(states.tolist(), actions))
    listed, sampled = (agent.plan() for agent in agents)
    assert listed.source == sampled.source and listed.lam == pytest.approx(sampled.lam, abs=1e-10)
    np.testing.assert_allclose(sampled.bounds, listed.bounds, atol=1e-10)
    table = listed.policy.table()
    for h in range(H):
        for s in range(S):
            np.testing.assert_allclose(sampled.policy.probabilities(h, s), table[h, s], atol=1e-10)


def test_a_run_holds_nan_for_exact_values_and_the_totals():
    """3000 episodes of the uniform policy: the means lie within four standard errors of the exact values."""
    cmdp = es.make("linear", seed=3, num_states=25)
    problem = sampled_from(cmdp)
    record = es.run(problem, es.Fixed(problem, lambda h, s: np.full(3, 1 / 3)), 3000)
    again = es.run(problem, es.Fixed(problem, lambda h, s: np.full(3, 1 / 3)), 3000)
    np.testing.assert_array_equal(record.utility_totals, again.utility_totals)
    assert np.isnan(record.reward_values).all() and np.isnan(record.optimum)
    exact = cmdp.evaluate(np.full((4, 25, 3), 1 / 3))
    for value, totals in zip(exact, (record.reward_totals, record.utility_totals), strict=True):
        assert abs(totals.mean() - value) < 4 * totals.std() / 3000**0.5


KINDS = {
    "number": lambda x: int(x),
    "text": lambda x: f"at {int(x)}",
    "tuple": lambda x: (int(x), "a"),
    "array": lambda x: np.array([x, 1.0]),
    "numpy number": lambda x: np.uint8(x),
}


def drifting(wrap, **changes):
    """A point that moves by the action; states are what `wrap` makes of it."""
    at = {wrap(x).tobytes() if isinstance(wrap(x), np.ndarray) else wrap(x): x for x in range(5)}
    place = lambda s: at[s.tobytes() if isinstance(s, np.ndarray) else s]  # noqa: E731
    told = {
        "features": es.features.OneHot(place, 5), "reward": lambda h, s: [0.1, 0.2 * place(s)],
        "utility": lambda h, s: [0.9, 0.1], "sample": lambda h, s, a, rng: wrap(place(s) + a), "horizon": 3,
        "num_actions": 2, "initial_state": wrap(0), "threshold": 0.5, "safe_policy": lambda h, s: [1.0, 0.0],
        "slack": 0.5,
    }  # fmt: skip
    return es.SampledCMDP(**told | changes)


@pytest.mark.parametrize("kind", KINDS)
def test_states_may_be_of_any_kind(kind):
    record, reference = (
        es.run(problem, es.OPSE(problem, constants(C_u=0.01, kappa=0.01)), 40)
        for problem in (drifting(KINDS[kind]), drifting(KINDS["number"]))
    )
    np.testing.assert_array_equal(record.reward_totals, reference.reward_totals)
    np.testing.assert_array_equal(record.bounds, reference.bounds)


def test_states_are_encoded_like_the_first_one():
    """np.uint8(3) − 5 is 254: a policy must be asked at the number 3."""
    asked = []
    problem = drifting(np.uint8, safe_policy=lambda h, s: asked.append(s) or [1.0, 0.0])
    es.run(problem, es.Fixed(problem, "incumbent"), 2)
    assert {type(s) for s in asked} == {int}
    out = np.zeros(1)

    def sample(h, state, action, rng):
        out[:] = h + 1
        return out

    seen = []
    told = {"features": lambda s: np.eye(2), "reward": lambda h, s: [0.5, 0.5], "initial_state": np.zeros(1)}
    told |= {"sample": sample, "safe_policy": lambda h, s: seen.append(s) or [1.0, 0.0]}
    problem = drifting(int, **told)
    es.run(problem, es.Fixed(problem, "incumbent"), 1)
    assert [float(s[0]) for s in seen[-3:]] == [0, 1, 2] and not seen[-1].flags.writeable  # no buffer of the user's


def exogenous(start=None, **changes):
    """A stock that chance empties and the action fills; two limits."""

    def move(h, stock, action, demand):
        sold = min(stock, demand)
        return stock - sold + 2 * action, sold / 4, [float(sold == demand), 1 - action / 2]

    told = {
        "features": es.features.OneHot(size=20), "reward": None, "utility": [None, None], "sample": None, "horizon": 4,
        "num_actions": 2, "initial_state": 3, "threshold": [1.0, 2.0], "safe_policy": lambda h, s: [0.5, 0.5],
        "slack": [0.5, 0.5], "move": move, "chance": lambda h, past, rng: int(rng.integers(4)), "start": start,
        "support": lambda h, s: (h, s), "names": ("service", "effort"), "action_names": ("wait", "order"),
        "units": {"reward": "EUR"},
    }  # fmt: skip
    return es.SampledCMDP(**told | changes)


@pytest.mark.parametrize("start", [None, lambda rng: int(rng.integers(5))], ids=["fixed", "random"])
def test_exogenous_chance_is_kept_in_traces_that_replay(start):
    problem, seen = exogenous(start), []
    task, first = problem.task, int(start is not None)

    class Noting(type(es.Fixed(problem, "incumbent"))):
        def learn(self, episode, plan_id=None):
            seen.append(episode)

    es.run(problem, Noting(problem, "incumbent"), 20)
    assert len({str(one.trace) for one in seen}) == 20
    for episode in seen:
        state, chances = episode.trace
        assert len(chances) == task.horizon == 4 + first and (state == START) == bool(first)
        for h, w in enumerate(chances):
            state, reward, utility = task.move(h, state, int(episode.actions[h]), w)
            assert (state, reward) == (episode.states[h + 1], episode.rewards[h])
            np.testing.assert_array_equal(utility, episode.utilities[h])
    drawn = problem.draw_trace(np.random.default_rng(0))
    assert drawn[0] == task.initial_state and len(drawn[1]) == task.horizon
    assert task.support(first, 7) == (0, 7)  # functions of users count from the first state
    assert [one.name for one in task.constraints] == ["service", "effort"]
    assert task.action_names == ("wait", "order") and task.units["reward"].text == "EUR"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": lambda s: np.ones((3, 5))}, "features at .* has norm"),
        ({"features": lambda s: np.zeros((2, 5))}, "A = 3 rows"),
        ({"reward": lambda h, s: [0.0, 0.0, 2.0]}, "signal at step 0, state .* lies outside"),
        ({"utility": lambda h, s: [0.0, np.nan, 0.0]}, "signal at step 0, state .* is nan"),
        ({"safe_policy": lambda h, s: [1.0, 1.0, 1.0]}, "policy at step 0, state .* sums to 3"),
        ({"slack": 0.0}, "slack must be a finite number > 0"),
        ({"threshold": "high"}, "threshold must be a finite number"),
        ({"horizon": 0}, "horizon must be a whole number"),
        ({"sample": None}, "give one of them"),
        ({"reward": None}, "reward and utility are missing"),
    ],
)
def test_bad_functions_are_refused_with_the_place(changes, message):
    cmdp = es.make("linear", seed=0, num_states=12)
    with pytest.raises(es.InvalidProblem, match=message):
        sampled_from(cmdp, **changes)


def test_a_move_out_of_range_is_refused():
    problem = exogenous(move=lambda h, s, a, w: (s, 2.0, [1.0, 1.0]))
    with pytest.raises(es.InvalidProblem, match=r"move at step 0, state 3, action . gives reward 2.0"):
        es.run(problem, es.Fixed(problem, "incumbent"), 1)


def test_a_bad_state_is_refused_and_nothing_is_learned_from_it():
    cmdp = es.make("linear", seed=0, num_states=12)
    bad = sampled_from(cmdp, reward=lambda h, s: cmdp.task.reward[h, s] + (3.0 if s == 7 else 0.0))
    agent, start = es.OPSE(bad, constants()), cmdp.task.initial_state
    agent.learn(es.Episode([start, 1, 2, 3, 4], [0, 0, 0, 0]))
    before = agent.information().copy()
    with pytest.raises(es.InvalidProblem, match="state 7"):
        agent.learn(es.Episode([start, 1, 7, 3, 4], [0, 0, 0, 0]))
    np.testing.assert_array_equal(agent.information(), before)


def test_the_fourier_basis_has_norm_at_most_one_and_reaches_it():
    made = es.features.Fourier([-1.0, 0.0], [1.0, 2.0])
    points = [np.array([x, y]) for x in np.linspace(-1.2, 1.2, 9) for y in np.linspace(-0.2, 2.2, 9)]
    norms = [np.linalg.norm(made(point)) for point in points]
    assert made(points[0]).shape == (made.dim,) and max(norms) == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(made(np.array([-5.0, 9.0])), made(np.array([-1.0, 2.0])))  # beyond: the nearest edge
    np.testing.assert_array_equal(made((-0.3, (0.4,))), made(np.array([-0.3, 0.4])))  # parts of a tuple in order


def test_cells_are_those_of_the_plain_formula():
    cells, rng = es.features.Cells([-1.0, 0.0], [1.0, 2.0], bins=5), np.random.default_rng(0)
    for point in [*rng.uniform([-1.3, -0.3], [1.3, 2.3], (300, 2)), [1.0, 2.0], [-1.0, 0.0], [0.2, 0.4]]:
        unit = np.clip((np.array(point) - [-1.0, 0.0]) / 2.0, 0.0, 1.0)
        expected = tuple(min(int(x), 4) for x in unit * 5)
        assert cells(np.array(point)) == cells(tuple(point)) == expected
    with pytest.raises(es.InvalidProblem, match="finite"):
        cells(np.array([np.nan, 0.0]))
