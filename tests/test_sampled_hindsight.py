"""Hindsight where states are not listed: replays step by step, proposals that go by the step, and how it is kept."""

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pytest

import episafe as es
from episafe.envs.gymnasium import RulesEnv
from episafe.envs.inventory import Inventory
from episafe.learning.step_proposals import proposals
from episafe.learning.traces import SampledTraces
from episafe.problems.policy import StepPolicy
from episafe.storage.json_values import as_text
from episafe.testing.assertions import require_same_arrays


def shop(horizon=6, threshold=0.85, **others):
    rules = Inventory(levels=(3, 5, 7, 9), horizon=horizon)
    env = RulesEnv(rules)
    given = {
        "features": es.features.OneHot(lambda s: int(s.sum()) // 3, size=8),
        "slack": 0.8,
        "move": env.move,
    } | others
    return es.from_gymnasium(
        env, horizon=horizon, threshold=threshold * horizon, time_homogeneous=True,
        safe_policy=lambda h, state: rules.incumbent(h, tuple(state)), **given,
    )  # fmt: skip


def traces_of(problem, num, seed=0):
    """Traces of the incumbent's episodes."""
    made, rng = SampledTraces(problem.task), np.random.default_rng(seed)
    problem.seed(seed)
    for _ in range(num):
        made.take_in(es.play(problem, problem.task.safe_policy, rng).trace)
    return made


def constant(problem, action):
    return StepPolicy(np.tile(np.eye(problem.task.num_actions)[action], (problem.task.horizon, 1)))


def test_totals_are_those_of_replays():
    problem = shop()
    traces, rng = traces_of(problem, 12), np.random.default_rng(0)
    found = traces.totals(constant(problem, 2))
    for trace, (reward, utility) in zip(traces._traces, found, strict=True):
        episode = problem.task.replay(constant(problem, 2), (problem.task.initial_state, trace), rng)
        assert (reward, utility) == pytest.approx((episode.rewards.sum(), episode.utilities.sum()))
    np.testing.assert_array_equal(traces.totals(constant(problem, 2), 5), found[5:])
    np.testing.assert_array_equal(traces.beginning(4).totals(constant(problem, 2)), found[:4])


def test_a_policys_own_randomness_is_drawn_for_each_trace_by_itself():
    """By one seed for all a policy that flips one coin an episode would seem to have no spread."""
    problem, flips = shop(), []

    class Coin(es.Policy):
        def probabilities(self, h, state):
            return np.array([0.5, 0.0, 0.0, 0.5])

        def table(self):
            raise TypeError

        def act(self, h, state, rng):
            flips.append(rng.random())
            return 0

    traces = traces_of(problem, 10)
    first, again = traces.totals(Coin()), traces.totals(Coin())
    assert len(set(flips)) == 10 * problem.task.horizon and flips[:60] == flips[60:]
    np.testing.assert_array_equal(first, again)


@dataclass(frozen=True)
class Sold:
    """What chance brings, as no journal could hold it."""

    number: float


@pytest.mark.parametrize(
    "unseen",
    [
        None, np.nan, (np.nan,), np.array([0.0, np.nan]), np.float32("nan"), {"sold": np.nan}, {np.nan: 1},
        ({"sold": [{"bread": np.nan}]},), np.array([1, np.nan], dtype=object), {1.0, np.nan}, Decimal("nan"),
        Sold(np.nan),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_counts_as_nothing_from_there_on(unseen):
    """NaN, as some write what was not seen: `move` would be asked, and `w > stock` is False of it."""
    problem = shop()
    whole, torn = traces_of(problem, 1), SampledTraces(problem.task)
    chances = whole._traces[0]
    torn.take_in((problem.task.initial_state, (*chances[:3], unseen, *chances[4:])))
    assert torn.totals(constant(problem, 3))[0, 1] < whole.totals(constant(problem, 3))[0, 1]
    assert "does not show what chance brought at step 3" in torn.fault


def test_proposals_reach_their_aim_on_the_traces_and_earn_more_the_lower_it_is():
    problem = shop()
    traces = traces_of(problem, 30)
    found = list(proposals(traces, [4.9, 5.4, 5.8]))
    utilities, rewards = ([totals[:, g].mean() for _, totals in found] for g in (1, 0))
    assert all(utility >= aim for utility, aim in zip(utilities, [4.9, 5.4, 5.8], strict=True))
    assert rewards[0] >= rewards[1] > rewards[2] > traces.totals(constant(problem, 3))[:, 0].mean()
    best = max(traces.totals(constant(problem, a)).mean(axis=0).tolist() for a in range(4))
    assert rewards[0] >= best[0]  # no worse than the best constant action


def test_it_learns_a_shop_in_tens_of_episodes_and_every_bound_is_below_the_truth():
    problem = shop()
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Hindsight())
    record = es.run(problem, agent, 80, seed=3)
    judged = traces_of(problem, 400, seed=99)
    incumbent = judged.totals(problem.task.safe_policy).mean(axis=0)
    assert record.reward_totals[-20:].mean() > incumbent[0] + 0.3
    for name, bound in agent.bounds().items():
        if name != "incumbent":
            mean = judged.totals(agent.certificate.ledger.policy(name))[:, 1].mean()
            assert bound <= mean + 0.1


def test_a_move_that_is_wrong_raises_an_alarm_and_ends_what_replays_proved():
    def wrong(h, state, action, w):
        following, reward, _ = RulesEnv(Inventory(levels=(3, 5, 7, 9), horizon=6)).move(h, state, action, w)
        return following, reward, 1.0

    problem = shop(move=wrong)
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Hindsight())
    with pytest.warns(RuntimeWarning, match="replay: an episode is not what move makes of its trace"):
        es.run(problem, agent, 30, seed=0)
    assert "move gives the utility" in agent.certificate.refuted


def test_its_state_is_restored_and_its_policies_travel(tmp_path):
    problem = shop()
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Hindsight())
    es.run(problem, agent, 40, seed=1)
    again = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Hindsight())
    again.restore(agent.state())
    require_same_arrays(agent.state(), again.state(), "the states differ")
    assert again.bounds() == agent.bounds()
    policy = constant(problem, 1)
    policy.save(tmp_path / "steps.json")
    np.testing.assert_array_equal(es.load_policy(tmp_path / "steps.json").rows, policy.rows)
    with pytest.raises(TypeError, match="knows no states"):
        policy.table()


@pytest.mark.parametrize("kind", [np.array, list, lambda pair: dict(enumerate(pair)), lambda pair: (np.array(pair),)])
def test_a_move_that_uses_up_what_chance_brought_leaves_it_to_the_next_policy(kind):
    """All policies were replayed on the same array: the second on what the first had left, 18 of 18 lives below b."""

    def move(h, state, action, w):
        demand = w[0] if isinstance(w, tuple) else w
        served = 0.0
        for i in range(2):
            sold = min(demand[i], action)
            demand[i] -= sold
            served += sold
        return 0, 0.0, served / 2

    problem = es.SampledCMDP(
        features=lambda state: np.eye(2), reward=None, utility=None, sample=None, horizon=2, num_actions=2,
        initial_state=0, threshold=0.5, slack=0.5, safe_policy=lambda h, state: [0.0, 1.0], move=move,
        chance=lambda h, past, rng: kind([1.0, 1.0]),
    )  # fmt: skip
    traces, trace = SampledTraces(problem.task), (0, (kind([1.0, 1.0]), kind([1.0, 0.0])))
    traces.take_in(trace)
    for _ in range(2):
        assert traces.totals(constant(problem, 1)).tolist() == [[0.0, 1.5]]
        assert traces.totals(constant(problem, 0)).tolist() == [[0.0, 0.0]]
        assert problem.task.replay(constant(problem, 1), trace, np.random.default_rng(0)).utilities.tolist() == [
            1.0,
            0.5,
        ]


def test_what_is_masked_was_not_seen():
    """A masked number came back as the 1e20 that fills its place, and was replayed: 4 of 4 lives were below b."""
    problem = shop()
    hidden = np.ma.array([3.0, 4.0], mask=[False, True])
    chances = problem.task.read_trace((None, (1.0, hidden, np.ma.masked, {"a": hidden}, (hidden,), np.ma.array([1.0]))))
    assert [w is None for w in chances] == [False, True, True, True, True, False]
    with pytest.raises(es.InvalidEpisode, match="None for what was not seen"):
        as_text([hidden])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_states_that_are_numbers_are_exported_and_learned(tmp_path, suffix):
    """They came back as arrays of one number, and were refused."""
    problem = es.SampledCMDP(
        features=lambda state: np.eye(2), reward=None, utility=None, sample=None, horizon=2, num_actions=2,
        initial_state=10, threshold=0.5, slack=0.5, safe_policy=lambda h, state: [0.0, 1.0],
        move=lambda h, state, action, w: (state - w, 0.5, 1.0), chance=lambda h, past, rng: int(rng.integers(3)),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    with es.open(tmp_path / "live", es.OPSE(problem.task)) as session:
        for _ in range(6):
            made = session.deploy(rng)
            trace = (None, tuple(int(w) for w in rng.integers(3, size=2)))
            session.learn(problem.task.replay(made.policy, trace, rng), deployment=made.id)
    file = tmp_path / f"episodes.{suffix}"
    assert es.export_episodes(tmp_path / "live", file, task=problem.task) == 6
    assert es.learn_log(es.OPSE(problem.task), file) == 6
