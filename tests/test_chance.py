"""Limits on bad episodes: the running total in the state, exactly, and what certificates make of it."""

import importlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.envs.gymnasium import RulesEnv
from episafe.envs.inventory import Inventory
from episafe.logs.tables import read_rows
from episafe.problems.rules import listed
from episafe.problems.states import ENDED

gymnasium = pytest.importorskip("gymnasium")


def lost(h, state, action, w):
    """Sales lost on a day of the inventory: demand less what is on the shelf."""
    return max(w[0] - state[0] - state[1], 0)


@pytest.fixture(scope="module")
def shop():
    return es.chance(Inventory(2.0), cost=lost, total_cost_at_most=4, probability=0.9)


@pytest.fixture(scope="module")
def kiosk():
    """A small one: 63 states, a week."""
    return es.chance(Inventory(2.0, levels=(3, 5), horizon=7), cost=lost, total_cost_at_most=4, probability=0.75)


def random_problem(seed, costs):
    """Three steps, three states, two actions, and costs of some values."""
    rng = np.random.default_rng(seed)
    P, (reward, utility) = rng.dirichlet(np.ones(3), (3, 3, 2)), rng.random((2, 3, 3, 2))
    policy = rng.dirichlet(np.ones(2), (3, 3))
    problem = es.LinearCMDP(P, reward, utility, threshold=0.1, safe_policy=policy)
    return problem, rng.choice(costs, (3, 3, 2)), policy


def share_within(problem, cost, policy, at_most):
    """ℙ(total cost ≤ at_most) by going through all paths, with nothing of the library."""
    (H, S, A), share = cost.shape, 0.0
    for actions, states in product(product(range(A), repeat=H), product(range(S), repeat=H)):
        path, p, total = (0, *states), 1.0, 0.0
        for h in range(H):
            p *= policy[h, path[h], actions[h]] * problem.P[h, path[h], actions[h], path[h + 1]]
            total += cost[h, path[h], actions[h]]
        share += p * (total <= at_most + 1e-9)
    return share


def test_the_inventory_of_the_issue(shop):
    assert shop.task.num_states == 330 and shop.task.threshold == 0.9 and shop.task.is_exogenous
    broken = [1 - shop.evaluate(np.broadcast_to(np.eye(4)[a], shop.task.reward.shape))[1] for a in (3, 2, 1)]
    assert np.round(broken, 2).tolist() == [0.0, 0.03, 0.32]


def test_the_inventory_by_a_simulation_of_its_own(shop):
    rules, rng, kept = Inventory(2.0), np.random.default_rng(0), 0
    for _ in range(4_000):  # always level 5, without a line of the library's
        stock, due, total = *rules.start, 0
        for h in range(14):
            mean = 2.0 * (0.8, 0.8, 0.9, 1.0, 1.2, 1.4, 0.9)[h % 7]
            demand, shelf = min(rng.poisson(mean), 6), stock + due
            total += max(demand - shelf, 0)
            stock, due = max(shelf - demand, 0), max(5 - shelf, 0)
        kept += total <= 4
    value = shop.evaluate(np.broadcast_to(np.eye(4)[1], shop.task.reward.shape))[1]
    assert abs(kept / 4_000 - value) < 4 * np.sqrt(value * (1 - value) / 4_000)


@pytest.mark.parametrize("seed", range(6))
def test_values_are_probabilities_of_paths(seed):
    problem, cost, policy = random_problem(seed, [0.0, 0.25, 0.5, 1.0])
    made = es.chance(problem, cost=cost, total_cost_at_most=1.25, probability=0.02)
    exact = share_within(problem, cost, policy, 1.25)
    assert made.evaluate(made.task.safe_policy)[1] == pytest.approx(exact, abs=1e-12)
    assert made.evaluate(made.task.safe_policy)[0] == pytest.approx(problem.evaluate(policy)[0], abs=1e-12)
    assert "total_overstated_by" not in made.origin


@pytest.mark.parametrize("seed", range(4))
def test_rounded_totals_keep_the_limit_a_fortiori(seed):
    problem, _, policy = random_problem(seed, [0.0])
    cost = np.random.default_rng(seed + 100).random((3, 3, 2))
    made = es.chance(problem, cost=cost, total_cost_at_most=1.5, probability=0.02)
    over, value = made.origin["total_overstated_by"], made.evaluate(made.task.safe_policy)[1]
    assert 0 < over < 0.02 and made.task.num_states <= 1_000
    assert share_within(problem, cost, policy, 1.5 - over) - 1e-12 <= value
    assert value <= share_within(problem, cost, policy, 1.5) + 1e-12


def test_the_optimum_against_another_solver(kiosk):
    assert kiosk.optimal_value() == pytest.approx(kiosk.optimal_value("lp"), abs=1e-7)
    assert kiosk.evaluate(kiosk.optimal_policy())[1] >= 0.75


def test_replays_have_the_indicator(shop):
    rng, task = np.random.default_rng(3), shop.task
    for _ in range(20):
        trace = shop.draw_trace(rng)
        episode = task.replay(np.full(task.reward.shape, 0.25), trace, rng)
        total = sum(
            lost(h, shop.state_names[s][0], 0, w)
            for h, (s, w) in enumerate(zip(episode.states[:-1], trace[1], strict=True))
        )
        assert episode.utilities.sum() == float(total <= 4)
        assert task.replay_fault(episode) == ""


def test_it_is_added_to_what_is_there():
    plain = listed(Inventory(2.0, levels=(3, 5), horizon=7), 5.0)
    both = es.chance(plain, cost=lost, total_cost_at_most=4, probability=0.75, name="lost sales", keep=True)
    assert both.task.constraint_names == ("utility", "lost sales")
    assert both.task.limits.tolist() == [plain.task.threshold, 0.75]
    assert both.task.constraints[0].slack == plain.task.slack
    reward, (served, kept) = both.evaluate(both.task.safe_policy)
    assert (reward, served) == pytest.approx(plain.evaluate(plain.task.safe_policy), abs=1e-9) and kept > 0.75
    assert both.optimal_value() == pytest.approx(both.optimal_value("lp"), abs=1e-7)
    rng, trace = np.random.default_rng(0), both.draw_trace(np.random.default_rng(1))
    episode = both.task.replay(both.task.safe_policy, trace, rng)
    assert episode.utilities.shape == (7, 2) and both.task.replay_fault(episode) == ""
    first = both.task.of_constraint(0).replay(both.task.safe_policy, trace, rng, episode.actions)
    assert np.array_equal(first.utilities, episode.utilities[:, 0])


def test_it_is_saved_with_the_names_of_its_states(kiosk, tmp_path):
    kiosk.save(tmp_path / "kiosk.npz")
    back = es.LinearCMDP.load(tmp_path / "kiosk.npz")
    assert back.state_names == kiosk.state_names and back.state_names[0] == ((3, 2), 0)
    assert back.task.constraint_names == ("chance",) and back.task.is_exogenous


def test_the_cost_is_what_utility_lacks():
    problem, _, policy = random_problem(1, [0.0])
    utility = np.round(problem.task.utility * 4) / 4
    problem = es.LinearCMDP(problem.P, problem.task.reward, utility, threshold=0.1, safe_policy=policy)
    made = es.chance(problem, total_cost_at_most=1.5, probability=0.05)
    exact = share_within(problem, 1 - utility, policy, 1.5)
    assert made.evaluate(made.task.safe_policy)[1] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cost": np.full((3, 3, 2), -1.0)}, "costs of 0 or more"),
        ({"cost": np.ones((3, 2))}, r"cost must have shape \(3, 3, 2\)"),
        ({"probability": 1.5}, "probability"),
        ({"total_cost_at_most": -1}, "0 or more"),
        ({"name": ""}, "name must be a word"),
        ({"probability": 0.999, "cost": np.ones((3, 3, 2)), "total_cost_at_most": 1}, "cannot be reached"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    problem = random_problem(0, [0.0])[0]
    with pytest.raises(ValueError, match=said):
        es.chance(problem, **{"total_cost_at_most": 1.0} | given)


def test_what_it_cannot_do_says_what_can():
    with pytest.raises(es.InvalidProblem, match="list them first"):
        es.chance(Inventory(2.0), cost=lost, total_cost_at_most=4, keep=True)
    with pytest.raises(es.InvalidProblem, match="got dict"):
        es.chance({}, total_cost_at_most=4)
    several = es.make("tabular", num_constraints=2)
    with pytest.raises(es.InvalidProblem, match="say which cost"):
        es.chance(several, total_cost_at_most=2)
    cost = np.random.default_rng(0).random((4, 200, 2))
    P = np.full((4, 200, 2, 200), 1 / 200)
    wide = es.LinearCMDP(P, cost, cost, threshold=0.1)
    with pytest.raises(es.InvalidProblem, match="coarser steps"):
        es.chance(wide, cost=cost, total_cost_at_most=2)


def test_every_deployed_mixture_keeps_it(kiosk):
    agent = es.OPSE(kiosk.task, es.Constants.proposing(), certifier=es.certify.Observation(delta=0.05))
    record = es.run(kiosk, agent, 300)
    assert record.violating().sum() == 0 and record.utility_values.min() >= 0.75
    assert "search" in record.sources


# ---- bounds of chances cover, and controls must fail; `benchmarks/chance.py coverage` has hundreds of runs


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    return importlib.import_module("chance")


def test_a_chance_is_bounded_by_traces_that_did_not_choose_the_policy(bench):
    omens = bench.kiosk(30)
    assert sum(bench.chosen_after(omens, seed, 30, after=False) for seed in range(6)) == 0
    assert sum(bench.chosen_after(omens, seed, 30, after=True) for seed in range(6)) >= 4


def test_a_chance_is_bounded_where_episodes_are_independent(bench):
    cmdp = bench.kiosk()
    assert sum(bench.live(cmdp, cmdp.task, seed, 60) for seed in range(3)) == 0
    assert sum(bench.live(cmdp, cmdp.task, seed, 60, regime=0.98) for seed in range(4)) >= 2


def test_an_incumbent_that_breaks_it_too_often_is_refused():
    with pytest.raises(es.Infeasible, match="of chance"):
        es.chance(Inventory(2.0, levels=(3, 5)), cost=lost, total_cost_at_most=4, probability=0.9)


class TestEnvironment:
    """The same limit on a live environment."""

    def wrapped(self, at_most=4, **given):
        env = RulesEnv(Inventory(2.0))
        return es.chance(env, cost=lost, total_cost_at_most=at_most, probability=0.9, **given)

    def test_a_cost_of_one_is_reported_once_where_the_limit_breaks(self):
        env = self.wrapped()
        for seed in range(30):
            (_, level), _ = env.reset(seed=seed)
            shelf, total, costs, ended = Inventory(2.0).start, 0, [], False
            while not ended:
                (state, level), _, _, ended, info = env.step(0)
                total += lost(0, shelf, 0, info["chance"])
                shelf = tuple(int(x) for x in state)
                costs.append(info["cost"])
                assert level == min(total, 5) and "utility" not in info
            assert sum(costs) == float(total > 4)

    def test_it_is_learned_on(self):
        rules, env = Inventory(2.0), self.wrapped()
        problem = es.from_gymnasium(
            env, features=es.features.OneHot(), horizon=14, cost_limit=env.cost_limit, slack=0.05,
            episode_cost_max=env.episode_cost_max, safe_policy=lambda h, state: rules.incumbent(h, state[0]),
        )  # fmt: skip
        agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(delta=0.05))
        record = es.run(problem, agent, 20)
        assert record.utility_totals.shape == (20,) and record.utility_totals.min() >= 13

    @pytest.mark.parametrize("at_most", [0, 4])
    def test_its_move_is_what_it_does(self, at_most):
        """Where nothing at all may be lost, ten units of it kept the limit: replays proved what failed in 28 %."""
        env, rng = self.wrapped(at_most), np.random.default_rng(0)
        (state, level), _ = env.reset(seed=5)
        for h in range(14):
            action = int(rng.integers(4))
            before = (state, level)
            (state, level), reward, _, _, info = env.step(action)
            (following, after), promised, utility = env.move(h, before, action, info["chance"])
            assert np.array_equal(following, state) and after == level
            assert promised == reward and utility == 1 - info["cost"]

    def test_an_episode_that_ends_early_is_what_move_makes_of_it(self):
        """The first one refuted all replays, 3 of 3: its last state was the end and a level."""

        class Ending(RulesEnv):
            def move(self, h, state, action, w):
                following, reward, utility = super().move(h, state, action, w)
                return (ENDED if w[0] > 2 else following), reward, utility

            def step(self, action):
                state, reward, ended, cut, info = super().step(action)
                return state, reward, ended or info["chance"][0] > 2, cut, info

        env = es.chance(Ending(Inventory(2.0)), cost=lost, total_cost_at_most=4, probability=0.9)
        problem = es.from_gymnasium(
            env, features=es.features.OneHot(), horizon=14, cost_limit=env.cost_limit, slack=0.05, move=env.move,
            episode_cost_max=env.episode_cost_max, safe_policy=lambda h, state: Inventory(2.0).incumbent(h, state[0]),
        )  # fmt: skip
        problem.seed(1)
        episodes = [es.play(problem, problem.task.safe_policy, np.random.default_rng(0)) for _ in range(20)]
        assert any(ENDED in episode.states for episode in episodes)
        assert [problem.task.replay_fault(episode) for episode in episodes] == [""] * 20

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_its_episodes_travel(self, tmp_path, suffix):
        """Its observations are tuples of an array and a level: no file could hold them."""
        rules, env = Inventory(2.0), self.wrapped()
        problem = es.from_gymnasium(
            env, features=es.features.OneHot(), horizon=14, cost_limit=env.cost_limit, slack=0.05,
            episode_cost_max=env.episode_cost_max, safe_policy=lambda h, state: rules.incumbent(h, state[0]),
        )  # fmt: skip
        new = lambda: es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())  # noqa: E731
        problem.seed(0)
        rng, episodes = np.random.default_rng(0), []
        with es.open(tmp_path / "shop", agent=new()) as session:
            for _ in range(3):
                made = session.deploy(rng)
                episodes.append(es.play(problem, made.policy, rng))
                session.learn(episodes[-1], deployment=made.id)
            assert session.export_episodes(tmp_path / f"log{suffix}") == 3
        with (tmp_path / f"log{suffix}").open("rb") as file:
            read = list(read_rows(tmp_path / f"log{suffix}", file, problem.task))
        assert [list(one.states) for one in read] == [list(one.states) for one in episodes]
        assert es.learn_log(new(), tmp_path / f"log{suffix}") == 3

    def test_costs_that_are_no_multiples_cannot_be_replayed(self):
        env = es.chance(RulesEnv(Inventory(2.0)), total_cost_at_most=3)
        with pytest.raises(es.InvalidProblem, match="no multiple"):
            env.move(0, (np.array([1, 0]), 0), 0, (3,))

    def test_what_else_there_is_is_kept_by_name(self):
        env = self.wrapped(name="lost sales", keep=True)
        env.reset(seed=0)
        info = env.step(3)[4]
        assert info["utility"] == {"utility": 1.0} and info["cost"] == {"lost sales": 0.0}
        assert env.cost_limit == pytest.approx({"lost sales": 0.1})

    def test_what_makes_no_sense_is_refused(self):
        with pytest.raises(es.InvalidProblem, match="must be a function"):
            es.chance(RulesEnv(Inventory()), cost=np.ones(3), total_cost_at_most=1)
        env = es.chance(RulesEnv(Inventory()), cost=lambda h, s, a, w: -1.0, total_cost_at_most=1)
        env.reset(seed=0)
        with pytest.raises(es.InvalidProblem, match="0 or more"):
            env.step(0)
        problem = es.from_gymnasium(
            RulesEnv(Inventory()), features=es.features.OneHot(), horizon=14, threshold=1.0, slack=None,
            safe_policy=lambda h, state: np.full(4, 0.25),
        )  # fmt: skip
        with pytest.raises(es.InvalidProblem, match="wrap that"):
            es.chance(problem, total_cost_at_most=1)


def test_rules_with_several_utilities():
    class Both(Inventory):
        names = ("served", "thrift")

        def move(self, h, state, action, luck):
            following, reward, served = super().move(h, state, action, luck)
            return following, reward, (served, 1 - following[0] / 9)

    plain, both = listed(Inventory(2.0), 12.0), listed(Both(2.0), [12.0, 1.0])
    assert both.task.constraint_names == ("served", "thrift") and both.task.is_exogenous
    assert np.array_equal(both.task.utilities[0], plain.task.utility) and np.array_equal(both.P, plain.P)
    assert both.state_names == plain.state_names


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e-9, 1e-12])
def test_small_costs_are_not_nothing(scale):
    """A policy that spends 3 of 1.5 allowed never keeps the limit, whatever the unit is."""
    shape = (3, 1, 2)
    cost = np.broadcast_to(scale * np.array([0.0, 1.0]), shape)
    incumbent = np.broadcast_to([1.0, 0.0], shape)
    base = es.LinearCMDP(
        np.ones((*shape, 1)), cost / scale, np.ones(shape), threshold=1.0, safe_policy=incumbent, initial_state=0
    )
    limited = es.chance(base, cost=cost, total_cost_at_most=1.5 * scale, probability=0.9)
    always = np.zeros((3, limited.task.num_states, 2))
    always[..., 1] = 1.0
    assert limited.evaluate(always)[1] == 0
    assert limited.evaluate(limited.task.safe_policy)[1] == 1
