"""Live environments and logs with several constraints: signals by name, limits by name."""

import json

import numpy as np
import pytest

import episafe as es
from episafe.envs.shop import Shop

gymnasium = pytest.importorskip("gymnasium")
from episafe.envs.gymnasium import CMDPEnv, RulesEnv  # noqa: E402
from episafe.testing import check_environment  # noqa: E402
from episafe.tools.environment_check import check  # noqa: E402
from episafe.tools.preflight import preflight, tables  # noqa: E402


class Kiosk(gymnasium.Env):
    """Three steps; action 1 earns 1, serves half and wastes 2 units, action 0 earns nothing, serves all, wastes 1."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)
    drop = ""  # a name that is not reported

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h = 0
        return 0, {}

    def step(self, action):
        self.h += 1
        cost = {"waste": 1.0 + action, "noise": float(self.np_random.random())}
        cost.pop(self.drop, None)
        info = {"utility": {"service": 1 - action / 2}, "cost": cost}
        return int(self.np_random.integers(2)), float(action), False, self.h == 3, info


def kiosk(env=None, **given):
    told = {
        "features": es.features.OneHot(), "horizon": 3, "safe_policy": lambda h, s: np.array([0.9, 0.1]),
        "threshold": {"service": 2.0}, "cost_limit": {"waste": 4.5}, "cost_range": {"waste": (0, 3)},
        "slack": {"service": 0.8, "waste": 1.0},
    }  # fmt: skip
    return es.from_gymnasium(env or Kiosk(), **told | given)


def test_limits_are_scaled_and_called_by_their_names():
    problem = kiosk()
    service, waste = problem.task.constraints
    assert (service.name, service.threshold, service.slack) == ("service", 2.0, 0.8)
    assert (waste.name, waste.threshold) == ("waste", 3 - 4.5 / 3) and waste.slack == pytest.approx(1 / 3)
    assert "limit 2 on the utility service" in repr(problem) and "limit 4.5 on the cost waste" in repr(problem)
    assert problem.origin["limit_waste"] == 4.5 and problem.origin["cost_high_waste"] == 3


def test_an_episode_has_a_column_for_each():
    problem = kiosk()
    episode = es.play(problem, problem.task.safe_policy, np.random.default_rng(0))
    assert episode.utilities.shape == (3, 2)
    expected = [[1 - a / 2, 1 - (1 + a) / 3] for a in episode.actions]
    np.testing.assert_allclose(episode.utilities, expected)


def test_it_is_learned_on_and_kept(tmp_path):
    problem = kiosk()
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    record = es.run(problem, agent, 150, folder=tmp_path / "run")
    again = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    assert record.utility_totals.shape == (150, 2) and "search" in record.sources
    assert record.constraint_names == ("service", "waste")
    audited = es.audit(tmp_path / "run", agent=again)
    assert audited.is_whole and audited.recomputed == 150


def test_only_a_certifier_takes_states_that_are_not_listed():
    with pytest.raises(TypeError, match="needs listed states: give a certifier"):
        es.OPSE(kiosk().task, es.Constants.paper("tabular"))


def test_told_utilities_are_a_mapping():
    told = {"service": lambda h, s: np.array([1, 0.5]), "waste": lambda h, s: np.array([2, 1]) / 3}
    problem = kiosk(utility=told)
    episode = es.play(problem, problem.task.safe_policy, np.random.default_rng(0))
    np.testing.assert_allclose(episode.utilities, [[1 - a / 2, 1 - (1 + a) / 3] for a in episode.actions])
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    es.run(problem, agent, 70)
    with pytest.raises(es.InvalidProblem, match="a function for each of service, waste"):
        kiosk(utility=told["service"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"slack": 0.8}, r"give \{name: slack\}"),
        ({"slack": {"sevrice": 1}}, "slack has 'sevrice', and no limit has that name: there are service, waste"),
        ({"threshold": 2.0}, "beside limits by name"),
        ({"cost_limit": {"service": 1.0}}, "a name of its own"),
        ({"cost_range": {"waste": (1, 0)}}, "lowest < highest"),
        (
            {"least_total": {"waste": 1.0}},
            "least_total has 'waste', and its limit is on the cost: give episode_cost_max",
        ),
        ({"episode_cost_max": {"service": 1.0}}, "'service', and its limit is on the utility: give least_total"),
        ({"utility_range": {"waste": (0, 1)}}, "its limit is on the cost: give cost_range"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given, says):
    with pytest.raises(es.InvalidProblem, match=says):
        kiosk(**given)


def test_a_signal_that_is_missing_is_named():
    env = Kiosk()
    env.drop = "waste"
    problem = kiosk(env)
    with pytest.raises(es.InvalidProblem, match=r"""info\["cost"\] at step 1 .* has no 'waste'.*it has 'noise'"""):
        es.play(problem, problem.task.safe_policy, np.random.default_rng(0))


def test_check_says_each_by_its_name():
    found = {one.what: one for one in check(kiosk(), num_episodes=60)}
    assert found["incumbent, service"].verdict in ("ok", "warning") and "incumbent, waste" in found
    assert "trials, waste" in found and not any(one.verdict == "error" for one in found.values())
    false = {one.what: one for one in check(kiosk(threshold={"service": 2.95}, slack={"service": 0.04}), 60)}
    assert false["incumbent, service"].verdict == "error" and false["incumbent, waste"].verdict != "error"


def test_our_own_environments_report_by_name():
    cmdp, rules = CMDPEnv(es.make("shop")), RulesEnv(Shop())
    for env in (cmdp, rules):
        env.reset(seed=0)
        assert set(env.step(0)[4]["utility"]) == {"service", "waste"}


def test_the_shop_is_a_problem_like_any_other():
    problem = es.make("shop", 3)
    assert problem.task.is_exogenous and problem.task.constraint_names == ("service", "waste")
    assert (problem._optimum.lam > 0.1).all()  # both limits bind
    assert len(check_environment(problem)) == 10


def test_the_shop_by_hand():
    shop = Shop()
    # four of yesterday, filled up to six, three customers, two hunters, discounted: all old sold or hunted, 2 left
    (left,), reward, (served, thrift) = shop.move(0, (4,), 5, (3, 2))
    assert (left, served, thrift) == (2, 1.0, 1.0)
    assert reward == pytest.approx((0.4 * 3 + 0.4 * 1 - 0.6 * 2 + 3.6) / (6 + 3.6))
    (left,), _, (served, thrift) = shop.move(0, (4,), 0, (1, 3))  # not discounted: hunters stay away
    assert (left, served, thrift) == (0, 1.0, 1 - 3 / 6)


def test_a_log_has_a_column_for_each(tmp_path):
    problem = kiosk()
    lines = ["episode,step,state,action,next_state,reward,utility_service,utility_waste"]
    for e in range(4):
        lines += [f"{e},{h},0,0,0,0.0,1.0,0.66" for h in range(3)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    assert es.learn_log(agent, path) == 4
    path.write_text("\n".join(lines).replace("utility_waste", "thrift") + "\n")
    with pytest.raises(es.DamagedFile, match="no column 'utility_waste', and has others"):
        es.learn_log(agent, path)


def test_a_chance_is_kept_beside_what_is_there():
    env = es.chance(RulesEnv(Shop()), cost=lambda h, s, a, w: max(w[0] - 4, 0), total_cost_at_most=6, keep=True)
    problem = es.from_gymnasium(
        env, features=es.features.OneHot(), horizon=14, threshold={"service": 13.0, "waste": 13.0},
        cost_limit=env.cost_limit, episode_cost_max=env.episode_cost_max,
        slack={"service": 0.1, "waste": 0.1, "chance": 0.01},
        safe_policy=lambda h, state: Shop().incumbent(h, state[0]),
    )  # fmt: skip
    assert problem.task.constraint_names == ("service", "waste", "chance")
    episode = es.play(problem, problem.task.safe_policy, np.random.default_rng(0))
    assert episode.utilities.shape == (14, 3) and json.dumps(problem.origin)


class Lane(Kiosk):
    """The same, where an episode may end with action 1 at the second step; each has numbers of its own."""

    def __init__(self, lane):
        self.lane = lane

    def step(self, action):
        following, reward, _, truncated, _ = super().step(action)
        info = {
            "utility": {"service": 1 - (self.lane + self.h) / 10},
            "cost": {"waste": self.lane + self.h / 10, "people": 3},
        }
        return following, reward, bool(action) and self.h == 2, truncated, info


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("random_start", [False, True])
def test_a_vector_environment_has_a_column_for_each(mode, random_start):
    env = gymnasium.vector.SyncVectorEnv([lambda lane=lane: Lane(lane) for lane in range(3)], autoreset_mode=mode)
    problem = kiosk(env, random_start=random_start, cost_limit={"waste": 8.0}, safe_policy=lambda h, s: [0.5, 0.5])
    before, early = int(random_start), 0
    rng = np.random.default_rng(1)
    for _ in range(8):
        for lane, episode in enumerate(es.play_batch(problem, [problem.task.safe_policy] * 3, rng)):
            assert episode.utilities.shape == (3 + before, 2)
            actions = episode.actions[before:]
            last = 2 if actions[1] == 1 else 3
            early += last == 2
            own = [[1 - (lane + h) / 10, 1 - (lane + h / 10) / 3] if h <= last else [0.0, 1.0] for h in (1, 2, 3)]
            np.testing.assert_allclose(episode.utilities[before:], own)
    assert early


def test_a_run_of_a_vector_environment_is_kept_and_audited(tmp_path):
    env = gymnasium.vector.SyncVectorEnv([Kiosk] * 2)
    problem = kiosk(env)
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    record = es.run(problem, agent, 60, folder=tmp_path / "run")
    assert record.utility_totals.shape == (60, 2) and record.constraint_names == ("service", "waste")
    again = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    assert es.audit(tmp_path / "run", agent=again).is_whole
    found = {one.what: one for one in check(problem, num_episodes=60)}
    assert found["sub-environments alike, waste"].verdict == "ok"


def test_what_a_sub_environment_leaves_out_is_named():
    def forgetful():
        env = Kiosk()
        env.drop = "waste"
        return env

    problem = kiosk(gymnasium.vector.SyncVectorEnv([Kiosk, forgetful]))
    with pytest.raises(es.InvalidProblem, match=r"""info\["cost"\] .*sub-environment 1 has no 'waste'"""):
        es.play_batch(problem, [problem.task.safe_policy] * 2, np.random.default_rng(0))


def test_the_slack_of_each_is_measured_by_its_name():
    problem = kiosk(slack={"service": None, "waste": None})
    found = es.measure_slack(problem, delta=0.05)
    true = {"service": 2.85 - 2.0, "waste": 4.5 - 3.3}  # in the units of the signals
    for name, value in true.items():
        assert value / 3 < found.lower[name] < value and found.mean[name] == pytest.approx(value, abs=0.15)
    kiosk(slack=found.lower)  # as it is given
    alone = es.measure_slack(kiosk(threshold=None, slack={"waste": None}), delta=0.025)  # a mapping of one
    assert alone.mean == pytest.approx(1.2, abs=0.15) and alone.lower < 1.2
    with pytest.raises(es.Infeasible, match="slack of service is"):
        es.measure_slack(kiosk(threshold={"service": 2.9}, slack=None), most_episodes=2000)


def test_the_share_of_each_slack_is_that_of_delta():
    """Two constraints alike at δ are proved as one at δ/2 is."""
    both = kiosk(threshold={"service": 2.0, "again": 2.0}, cost_limit=None, cost_range=None, slack=None, env=Twice())
    one = kiosk(threshold={"service": 2.0}, cost_limit=None, cost_range=None, slack=None)
    halves, whole = es.measure_slack(both, delta=0.05), es.measure_slack(one, delta=0.025)
    assert halves.lower == {"service": whole.lower, "again": whole.lower}
    assert halves.num_episodes == whole.num_episodes


class Twice(Kiosk):
    """A kiosk that says its service twice."""

    def step(self, action):
        *others, info = super().step(action)
        info["utility"]["again"] = info["utility"]["service"]
        return *others, info


def test_preflight_says_each_by_its_name_at_its_share_of_delta():
    shop = es.make("shop", 0)
    found = preflight(shop, 1000, delta=0.05)
    alone = preflight(shop.of_constraint(1), 1000, delta=0.025)
    assert list(found["constraints"]) == ["service", "waste"] and found["constraints"]["waste"] == alone
    assert found["forecast"]["half"] == max(one["forecast"]["half"] for one in found["constraints"].values())
    assert "the slowest of 2 limits" in found["forecast"]["text"]
    titles = [str(table.title) for table in tables(found)]
    assert (
        sum(title.endswith(", service") for title in titles) == sum(title.endswith(", waste") for title in titles) == 4
    )


def test_a_problem_of_one_constraint_of_several_is_that():
    shop = es.make("shop", 0)
    shop.optimal_value(), shop.evaluate(shop.task.safe_policy)
    alone = shop.of_constraint(1)
    assert alone.task.threshold == shop.task.constraints[1].threshold
    assert alone.optimal_value() > shop.optimal_value()
    assert alone.evaluate(alone.task.safe_policy)[1] == shop.evaluate(shop.task.safe_policy)[1][1]


def test_an_estimate_has_a_utility_for_each():
    """It was the sum of all."""
    problem = kiosk()
    found = es.estimate(problem, problem.task.safe_policy, 20)
    assert found.utility.shape == found.utility_half_width.shape == (problem.task.num_constraints,)
    assert (found.utility <= problem.task.horizon).all() and str(found).count("±") == 1 + problem.task.num_constraints
