"""Limits on bad episodes: the running total in the state is exact, and certificates hold for it."""

from itertools import product

import gymnasium
import numpy as np
import pytest

import episafe as es
import episafe.core.policy
import oracles
from episafe.certify.replays import ListedReplays, replays_of
from episafe.core.types import ENDED, is_outside
from episafe.envs.real import Inventory
from episafe.problems.rules import listed
from episafe.simulation.worlds import make_streams, world_of


def lost(h, state, action, w):
    """Return the sales lost on a day of the inventory: demand less what is on the shelf."""
    return max(w[0] - state[0] - state[1], 0)


def by_linear_program(cmdp):
    task = cmdp.task
    return oracles.lp_optimum(cmdp.P, task.reward, task.utilities, task.thresholds, task.initial_state)


@pytest.fixture(scope="module")
def shop():
    return es.chance(listed(Inventory(2.0), 1.0), cost=lost, total_cost_at_most=4, probability=0.9)


@pytest.fixture(scope="module")
def kiosk():
    """Return a small one: 126 states, a week."""
    return es.chance(
        listed(Inventory(2.0, levels=(3, 5), horizon=7), 1.0), cost=lost, total_cost_at_most=4, probability=0.75
    )


def random_problem(seed, costs):
    rng = np.random.default_rng(seed)
    P, (reward, utility) = rng.dirichlet(np.ones(3), (3, 3, 2)), rng.random((2, 3, 3, 2))
    policy = rng.dirichlet(np.ones(2), (3, 3))
    problem = es.LinearCMDP(P, reward, utility, threshold=0.1, safe_policy=policy)
    return problem, rng.choice(costs, (3, 3, 2)), policy


def share_within(problem, cost, policy, at_most):
    """Return ℙ(total cost ≤ at_most) by all paths."""
    (H, S, A), share = cost.shape, 0.0
    for actions, states in product(product(range(A), repeat=H), product(range(S), repeat=H)):
        path, p, total = (0, *states), 1.0, 0.0
        for h in range(H):
            p *= policy[h, path[h], actions[h]] * problem.P[h, path[h], actions[h], path[h + 1]]
            total += cost[h, path[h], actions[h]]
        share += p * (total <= at_most + 1e-9)
    return share


@pytest.mark.parametrize("seed", range(4))
def test_values_are_probabilities_of_paths(seed):
    problem, cost, policy = random_problem(seed, [0.0, 0.25, 0.5, 1.0])
    made = es.chance(problem, cost=cost, total_cost_at_most=1.25, probability=0.02)
    reward, value = made.evaluate(made.task.incumbent)
    assert value == pytest.approx(share_within(problem, cost, policy, 1.25), abs=1e-12)
    assert reward == pytest.approx(problem.evaluate(policy)[0], abs=1e-12)
    assert "total_overstated_by" not in made.origin
    stated = es.chance(problem, cost=cost, total_cost_at_most=1.25, probability=0.02, slack=0.01)
    assert stated.task.slacks.tolist() == [0.01]


@pytest.mark.parametrize("seed", range(3))
def test_rounded_totals_keep_the_limit_in_any_case(seed):
    problem, _, policy = random_problem(seed, [0.0])
    cost = np.random.default_rng(seed + 100).random((3, 3, 2))
    made = es.chance(problem, cost=cost, total_cost_at_most=1.5, probability=0.02)
    over, value = made.origin["total_overstated_by"], made.evaluate(made.task.incumbent)[1]
    assert 0 < over < 0.02 and made.task.num_states <= 1_000
    assert share_within(problem, cost, policy, 1.5 - over) - 1e-12 <= value
    assert value <= share_within(problem, cost, policy, 1.5) + 1e-12


def test_the_default_cost_is_one_minus_utility():
    problem, _, policy = random_problem(1, [0.0])
    utility = np.round(problem.task.utilities[0] * 4) / 4
    problem = es.LinearCMDP(problem.P, problem.task.reward, utility, threshold=0.1, safe_policy=policy)
    made = es.chance(problem, total_cost_at_most=1.5, probability=0.05)
    exact = share_within(problem, 1 - utility, policy, 1.5)
    assert made.evaluate(made.task.incumbent)[1] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e-12])
def test_small_costs_are_not_nothing(scale):
    shape = (3, 1, 2)
    cost, incumbent = np.broadcast_to(scale * np.array([0.0, 1.0]), shape), np.broadcast_to([1.0, 0.0], shape)
    base = es.LinearCMDP(np.ones((*shape, 1)), cost / scale, np.ones(shape), threshold=1.0, safe_policy=incumbent)
    limited = es.chance(base, cost=cost, total_cost_at_most=1.5 * scale, probability=0.9)
    always = np.zeros((3, limited.task.num_states, 2))
    always[..., 1] = 1.0
    assert limited.evaluate(always)[1] == 0 and limited.evaluate(limited.task.incumbent)[1] == 1


def test_an_exogenous_problem_stays_exogenous_and_is_simulated_right(shop):
    assert shop.task.num_states == 330 and shop.task.thresholds == 0.9 and shop.task.move is not None
    rng, kept, level_5 = np.random.default_rng(0), 0, es.TablePolicy(np.tile(np.eye(4)[1], (14, 330, 1)))
    for _ in range(4_000):  # always level 5, without the library
        stock, due, total = *Inventory(2.0).start, 0
        for h in range(14):
            mean = 2.0 * (0.8, 0.8, 0.9, 1.0, 1.2, 1.4, 0.9)[h % 7]
            demand, shelf = min(rng.poisson(mean), 6), stock + due
            total += max(demand - shelf, 0)
            stock, due = max(shelf - demand, 0), max(5 - shelf, 0)
        kept += total <= 4
    value = shop.evaluate(level_5)[1]
    assert abs(kept / 4_000 - value) < 4 * np.sqrt(value * (1 - value) / 4_000)
    replays = ListedReplays(shop.task)
    traces = [replays.read(shop.draw_trace(rng)) for _ in range(300)]
    totals = replays.totals([level_5], traces)[0]
    assert set(totals[:, 1].tolist()) == {0.0, 1.0} and abs(totals[:, 1].mean() - value) < 0.11


def test_the_optimum_agrees_with_another_solver(kiosk):
    assert kiosk.optimal_value() == pytest.approx(by_linear_program(kiosk), abs=1e-7)
    assert kiosk.evaluate(kiosk.optimal_policy())[1] >= 0.75


def test_it_is_added_to_the_limits_that_are_there():
    plain = listed(Inventory(2.0, levels=(3, 5), horizon=7), 5.0)
    both = es.chance(plain, cost=lost, total_cost_at_most=4, probability=0.75, name="lost sales", keep=True)
    assert [one.name for one in both.task.constraints] == ["utility", "lost sales"]
    assert both.task.thresholds.tolist() == [5.0, 0.75] and both.task.slacks[0] == plain.task.slacks[0]
    reward, (served, kept) = both.evaluate(both.task.incumbent)
    assert (reward, served) == pytest.approx(plain.evaluate(plain.task.incumbent), abs=1e-9) and kept > 0.75
    assert both.optimal_value() == pytest.approx(by_linear_program(both), abs=1e-7)


def test_it_is_saved_with_the_names_of_its_states(kiosk, tmp_path):
    kiosk.save(tmp_path / "kiosk.npz")
    back = es.LinearCMDP.load(tmp_path / "kiosk.npz")
    assert back.task.state_names == kiosk.task.state_names and back.task.state_names[0] == ((3, 2), 0)
    assert back.task.constraints[0].name == "chance" and back.task.move is not None


@pytest.mark.parametrize("certifier", [es.certify.Observation, es.certify.Hindsight])
def test_every_deployed_mixture_keeps_it(kiosk, certifier):
    record = es.run(kiosk, es.SafeAgent(kiosk, certifier(delta=0.05)), 300)
    assert record.utility_values.min() >= 0.75 and "search" in record.sources
    if certifier is es.certify.Hindsight:
        start = kiosk.evaluate(kiosk.task.incumbent)[0]
        assert record.reward_values[-1] - start > 0.2 * (kiosk.optimal_value() - start)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cost": np.full((3, 3, 2), -1.0)}, "costs of 0 or more"),
        ({"cost": np.ones((3, 2))}, r"cost must have shape \(3, 3, 2\)"),
        ({"probability": 1.5}, "probability"),
        ({"total_cost_at_most": -1}, ">= 0"),
        ({"name": ""}, "name must be a text"),
        ({"probability": 0.999, "cost": np.ones((3, 3, 2)), "total_cost_at_most": 1}, "cannot be reached"),
    ],
)
def test_invalid_limits_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        es.chance(random_problem(0, [0.0])[0], **{"total_cost_at_most": 1.0} | given)


def test_errors_name_a_remedy():
    with pytest.raises(es.InvalidProblem, match="got dict"):
        es.chance({}, total_cost_at_most=4)
    with pytest.raises(es.InvalidProblem, match="say which cost"):
        es.chance(es.make("tabular", num_constraints=2), total_cost_at_most=2)
    with pytest.raises(es.Infeasible, match="cannot be reached"):
        es.chance(listed(Inventory(2.0, levels=(3, 5)), 1.0), cost=lost, total_cost_at_most=4, probability=0.9)
    cost = np.random.default_rng(0).random((4, 200, 2))
    wide = es.LinearCMDP(np.full((4, 200, 2, 200), 1 / 200), cost, cost, threshold=0.1)
    with pytest.raises(es.InvalidProblem, match="coarser steps"):
        es.chance(wide, cost=cost, total_cost_at_most=2)


class ShopEnv(gymnasium.Env):
    """The inventory as an environment that says what chance brought; with `ends`, a day of large demand is the last."""

    def __init__(self, ends=False):
        self.rules, self.ends = Inventory(2.0), ends
        self.observation_space = gymnasium.spaces.MultiDiscrete([10, 10])
        self.action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h, self.state = 0, self.rules.start
        return np.array(self.state), {}

    def step(self, action):
        values, p = self.rules.chances(self.h, self.state)[0]
        w = (int(self.np_random.choice(list(values), p=p)),)
        self.state, reward, utility = self.rules.move(self.h, self.state, int(action), w)
        self.h += 1
        ended = self.ends and w[0] > 4
        return np.array(self.state), reward, ended, False, {"utility": utility, "chance": w}

    def move(self, h, state, action, w):
        following, reward, utility = self.rules.move(h, tuple(int(x) for x in state), action, w)
        return (ENDED if self.ends and w[0] > 4 else following), reward, utility


def environment(ends=False, random_start=None, **given):
    """Return the shop as a problem, whose limit is replaced."""
    return es.from_gymnasium(
        ShopEnv(ends), horizon=14, threshold=5.0, slack=0.1, move=ShopEnv(ends).move, features=es.features.OneHot(),
        incumbent=lambda h, state: Inventory(2.0).incumbent(h, state), random_start=random_start, **given,
    )  # fmt: skip


def sampled(**given):
    """Return the shop as a problem given by functions."""
    rules = Inventory(2.0)
    draw = lambda h, past, rng: (int(rng.choice(7, p=rules.chances(h, rules.start)[0][1])),)  # noqa: E731
    return es.SampledCMDP(
        es.features.OneHot(tuple, 100), None, None, None, 14, 4, rules.start, 5.0, rules.incumbent, 0.1,
        move=rules.move, chance=draw, **given,
    )  # fmt: skip


PLAYED = {
    "environment": environment,
    "that ends early": lambda: environment(True),
    "with a random start": lambda: environment(random_start=True),
    "functions": sampled,
    "functions with a random start": lambda: sampled(start=lambda rng: (int(rng.integers(4, 8)), 2)),
}


@pytest.mark.parametrize("make", PLAYED.values(), ids=PLAYED)
class TestPlayed:
    """The same limit on problems that are played: an environment, and functions."""

    def episodes(self, problem, policy, number=30):
        world = world_of(problem, make_streams(3))
        return [problem.task.read(world.play(k, policy, None), encoded=True) for k in range(number)]

    def test_utility_is_zero_once_where_the_limit_breaks(self, make):
        problem, broken = es.chance(make(), cost=lost, total_cost_at_most=4, probability=0.9, slack=0.05), 0
        first = int(problem.task.random_start)
        lowest = es.core.policy.FunctionPolicy(lambda h, state: [1, 0, 0, 0], 4)
        for episode in self.episodes(problem, lowest):
            total, breaks = 0, []
            for h in range(first, 14 + first):
                if is_outside(state := episode.states[h]):
                    break
                assert state[1] == total
                spent = lost(h, state[0], 0, episode.trace[1][h])
                breaks.append(total <= 4 < total + spent)
                total += spent
            found = episode.utilities[first:, 0]
            assert found.tolist() == [1.0 - one for one in breaks] + [1.0] * (14 - len(breaks))
            broken += total > 4
        assert broken > 0 and problem.task.thresholds == pytest.approx([13.9]) and problem.task.least_totals == [13.0]

    def test_episodes_are_what_move_makes_of_their_traces(self, make):
        problem = es.chance(make(), cost=lambda *given: 0.3 * lost(*given), total_cost_at_most=1.1, slack=0.01)
        replays = replays_of(problem.task, "salt")
        for episode in self.episodes(problem, problem.task.incumbent, 10):
            assert replays.fault_of(episode, replays.read(episode.trace)) == ""

    def test_hindsight_learns_on_it_in_runs_and_sessions(self, make):
        problem = es.chance(make(), cost=lost, total_cost_at_most=4, probability=0.9, slack=0.05)
        record = es.run(problem, es.SafeAgent(problem, es.certify.Hindsight()), 25)
        assert record.utility_totals.min() >= 13 and len(record.utility_totals) == 25
        session, rules, rng = es.open(None, es.SafeAgent(problem)), Inventory(2.0), np.random.default_rng(0)
        for _ in range(3):
            state, total = rules.start, 0
            with session.deploy() as d:
                for h in range(14):
                    action, before = d.act(state), state
                    w = (min(int(rng.poisson(2.0)), 4),)
                    state, reward, utility = rules.move(h, state, action, w)
                    total += lost(h, before, action, w)
                    d.record(reward, utility, w)
            read = problem.task.read(d.episode(), encoded=True)
            assert read.total_utility.tolist() == [14.0 - (total > 4)] and read.states[-1][1] == total
        assert session.status()["reports"] == 3 and session.status()["invalid"] == ""


def test_an_environment_has_the_units_of_its_limit_and_keeps_the_others():
    both = es.chance(environment(), cost=lost, total_cost_at_most=4, probability=0.5, name="lost sales", keep=True)
    assert [one.name for one in both.task.constraints] == ["utility", "lost sales"]
    assert both.raw_totals([7.0, 13.0]) == [7.0, 1.0] and 0.2 < both.task.slacks[1] < 0.5
    ranged = environment(utility_range=(0.0, 2.0))
    limited = es.chance(ranged, total_cost_at_most=2, slack=0.01)
    state, utility = (limited.task.initial_state[0], 0.5), np.array([0.25])
    assert limited.task.carry.step(0, state, 0, None, utility)[0] == 0.5 + (1 - 2 * 0.25)
    wide = es.chance(sampled(), cost=lost, total_cost_at_most=2.5, slack=0.01)
    assert wide.task.features.size == 1200 and wide.task.key(((3, 2), 1.0)) == ((3, 2), 4)


def test_invalid_costs_of_played_problems_are_refused():
    with pytest.raises(es.InvalidProblem, match="must be a function"):
        es.chance(environment(), cost=np.ones(3), total_cost_at_most=1)
    with pytest.raises(es.InvalidProblem, match=">= 0"):
        es.chance(environment(), cost=lambda h, s, a, w: -1.0, total_cost_at_most=1)
    with pytest.raises(es.InvalidProblem, match="got ShopEnv"):
        es.chance(ShopEnv(), total_cost_at_most=1)


# tails


def tail_of(totals, share):
    """Return the mean of the worst share of totals with equal weight."""
    ranked = np.sort(totals)
    return ranked[: round(share * len(ranked))].mean()


def test_the_limit_on_the_cut_total_bounds_the_mean_of_the_worst_episodes(rng):
    """E[min(X, t)] ≥ t − α(t − c) implies that the mean of the worst α is at least c; at the quantile they agree."""
    for _ in range(200):
        totals, share, cut = rng.random(100) ** rng.uniform(0.2, 3), rng.integers(5, 60) / 100, rng.uniform(0.1, 1.0)
        implied = cut - (cut - np.minimum(totals, cut).mean()) / share
        assert tail_of(totals, share) >= implied - 1e-12
        quantile = np.quantile(totals, share, method="inverted_cdf")
        exact = quantile - (quantile - np.minimum(totals, quantile).mean()) / share
        assert tail_of(totals, share) == pytest.approx(exact)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cut", [1.75, 2.0, 2.6, 3.0])
def test_values_are_expected_cut_totals_of_paths(seed, cut):
    problem, cost, policy = random_problem(seed, [0.0, 0.25, 0.5, 1.0])
    problem = es.LinearCMDP(problem.P, cost, 1 - cost, threshold=0.1, safe_policy=policy)
    made = es.tail(problem, 0.99, 0.05, cut=cut)
    value, levels = 0.0, np.arange(0, 3.25, 0.25)
    below = [share_within(problem, cost, policy, level) for level in levels]
    for level, share in zip(levels, np.diff(below, prepend=0.0), strict=True):
        value += share * min(3 - level, cut)
    assert made.evaluate(made.task.incumbent)[1] == pytest.approx(value + 3 - cut, abs=1e-12)
    assert made.task.thresholds == pytest.approx([3 - 0.99 * (cut - 0.05)]) and made.task.least_totals == 3 - cut


@pytest.mark.parametrize("make", PLAYED.values(), ids=PLAYED)
def test_utilities_of_played_problems_add_up_to_the_cut_total(make):
    problem = es.tail(make(), 0.2, 9.0, cut=12.0, slack=0.05)
    first, world, plain = (
        int(problem.task.random_start),
        world_of(problem, make_streams(3)),
        make().task.num_constraints,
    )
    assert plain == 1 and problem.task.thresholds == pytest.approx([14 - 0.2 * 3])
    for k in range(20):
        episode = problem.task.read(world.play(k, problem.task.incumbent, None), encoded=True)
        outside = [is_outside(state) for state in episode.states[first:-1]]
        if not any(outside):
            shortfall = episode.states[-1][1]
            assert episode.total_utility[0] == pytest.approx(14 - max(shortfall - 2.0, 0.0))
        replays = replays_of(problem.task, "salt")
        assert replays.fault_of(episode, replays.read(episode.trace)) == ""


@pytest.mark.parametrize("certifier", [es.certify.Observation, es.certify.Hindsight])
def test_deployed_mixtures_keep_the_tail(certifier):
    problem = es.tail(es.make("inventory"), 0.3, 8.0)
    assert problem.origin["tail"].startswith("tail: mean of the worst 0.3 at least 8, cut at 1")
    record = es.run(problem, es.SafeAgent(problem, certifier(delta=0.05)), 120)
    assert record.utility_values.min() >= problem.task.thresholds[0] - 1e-9 and "search" in record.sources


def test_a_rollout_cuts_the_totals_that_are_reported(tmp_path):
    def agent():
        return es.Rollout(es.tail(None, 0.2, 0.5, cut=0.8), 0.05, {"v2": "v2"}, "v1")

    assert agent().task.thresholds == pytest.approx([0.74])
    with es.open(tmp_path, agent()) as session:
        d = session.deploy()
        session.report(d.id, es.Episode.of_totals(1.0))
        assert session.state.recent[-1].episode.total_utility == (0.8,)
    assert es.audit(tmp_path, agent()).passed and es.audit(tmp_path).passed


def test_tails_that_cannot_be_kept_are_refused():
    problem = random_problem(0, [0.0])[0]
    with pytest.raises(es.Infeasible, match="not above at_least"):
        es.tail(problem, 0.1, 2.9)
    with pytest.raises(es.InvalidProblem, match="needs cut"):
        es.tail(None, 0.1, 0.5)
    with pytest.raises(es.InvalidProblem, match=r"not in \(0, 3\]"):
        es.tail(problem, 0.1, 0.5, cut=7.0)
    with pytest.raises(ValueError, match="share must be"):
        es.tail(problem, 1.5, 0.5)
