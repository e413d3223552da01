"""Vector environments: each episode gets its own data in every autoreset mode, and one plan plays N of them."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import episafe as es
from broken import GOOD, Walk
from conftest import constants
from episafe.problems.states import ENDED, START
from gym_problems import WithCost, table
from lanes import H, cost, ends, lanes, reward
from test_gym_learning import fell, lake

MODES = list(AutoresetMode)
Spawned = partial(AsyncVectorEnv, context="spawn")


def problem(env, **changes):
    settings = {"features": es.features.OneHot(), "horizon": H, "cost_limit": 4.0, "slack": 0.5}
    settings |= {"safe_policy": lambda h, state: [1.0, 0.0], "random_start": True}
    return es.from_gymnasium(env, **settings | changes)


class Alternating:
    """Actions that depend on the step, so that a shifted one would show."""

    def probabilities(self, h, state):
        return (
            np.eye(2)[0 if state in (START, ENDED) else h % 2]
            if not isinstance(state, np.ndarray)
            else np.eye(2)[h % 2]
        )


def check_episode(episode, lane, dummy):
    """Everything in the episode is of one episode of one lane, from its first step to its end."""
    states = episode.states[dummy:]
    e = int(states[1][1])
    last = min(ends(lane, e), H)
    early = ends(lane, e) <= H
    assert len(states) == H + 1
    for t, state in enumerate(states):
        if t >= last and early:
            assert state is ENDED
        elif t > 0 or dummy:
            assert state.tolist() == [lane, e, t]
    paid = [reward(e, t) if t <= last else 0.0 for t in range(1, H + 1)]
    kept = [1 - cost(lane, t) if t <= last else 1.0 for t in range(1, H + 1)]
    np.testing.assert_allclose(episode.rewards[dummy:], paid, atol=1e-12)
    np.testing.assert_allclose(episode.utilities[dummy:], kept, atol=1e-12)
    return e


@pytest.mark.parametrize("limit", [True, False], ids=["time limit", "no time limit"])
@pytest.mark.parametrize("fixed", [True, False], ids=["fixed start", "random start"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_each_of_four_episodes_gets_its_own_data(mode, fixed, limit):
    """25 batches of 4 episodes that end after 2 to 5 steps or never; also the actions that the environment was sent."""
    env = lanes(SyncVectorEnv, mode, fixed=fixed, limit=limit)
    made, rng, dummy = problem(env, random_start=not fixed), np.random.default_rng(0), int(not fixed)
    seen = [[], [], [], []]
    for _ in range(25):
        episodes = es.play_batch(made, [Alternating()] * 4, rng)
        for lane, episode in enumerate(episodes):
            e = check_episode(episode, lane, dummy)
            sent = env.envs[lane].played[e]
            assert sent == episode.actions[dummy : dummy + len(sent)]
            seen[lane].append(e)
    assert all(np.diff(one).min() > 0 for one in seen)
    assert {min(ends(lane, e), H + 1) for lane in range(4) for e in seen[lane]} == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_parallel_processes_give_the_same_episodes(mode):
    found = []
    for kind in (Spawned, SyncVectorEnv):
        env = lanes(kind, mode, count=2)
        made, rng = problem(env), np.random.default_rng(0)
        episodes = [episode for _ in range(5) for episode in es.play_batch(made, [Alternating()] * 2, rng)]
        env.close()
        found.append([str((e.states, e.actions, e.rewards.tolist(), e.utilities.tolist())) for e in episodes])
        for k, episode in enumerate(episodes):
            check_episode(episode, k % 2, 1)
    assert found[0] == found[1]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_an_idle_sub_environment_is_played_by_the_incumbent(mode):
    """Where an episode has ended, and in sub-environments that play none; from its own first step."""
    steps = []

    def incumbent(h, state):
        steps.append((h, int(state[2])))
        return [1.0, 0.0]

    env = lanes(SyncVectorEnv, mode)
    made = problem(env, safe_policy=incumbent)
    always = es.problems.sampled_problem.FunctionPolicy(lambda h, state: [0.0, 1.0], 2)
    for _ in range(10):
        steps.clear()
        before = [one.e for one in env.envs]
        episodes = es.play_batch(made, [always] * 3, np.random.default_rng(0))
        assert len(episodes) == 3
        own = [None if k == 3 else e + 1 for k, e in enumerate(before)]
        for lane, one in enumerate(env.envs):
            for e in range(before[lane] + 1, one.e + 1):
                assert set(one.played[e]) <= ({1} if e == own[lane] else {0})
        assert all(h == t for h, t in steps)


def test_one_sub_environment_is_the_environment_itself():
    """The same seed, N = 1: the record of a vector environment is that of the environment."""

    def run(env):
        made = es.from_gymnasium(env, **GOOD | {"features": es.features.OneHot()})
        return es.run(made, es.OPSE(made.task, constants()), num_episodes=40, seed=4)

    alone, vector = run(Walk()), run(SyncVectorEnv([Walk]))
    for name in ("utility_totals", "reward_totals", "plan_ids", "sources", "utility_bounds"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(vector, name))


class Counting(es.Fixed):
    """Learns nothing and notes what it is given."""

    def learn(self, episode, plan_id=None):
        super().learn(episode, plan_id)
        self.__dict__.setdefault("given", []).append((episode, plan_id))


@pytest.mark.parametrize(("K", "batches"), [(8, 2), (10, 3), (3, 1)])
def test_a_run_learns_each_episode_once_with_the_plan_it_was_played_with(K, batches):
    """Where N does not divide K, the last batch has K mod N episodes, in the first sub-environments."""
    env = lanes(SyncVectorEnv, AutoresetMode.NEXT_STEP)
    made = problem(env)
    agent = Counting(made.task, made.task.safe_policy)
    record = es.run(made, agent, num_episodes=K)
    assert len(agent.given) == len(record.plan_ids) == K
    for k, (episode, plan_id) in enumerate(agent.given):
        check_episode(episode, k % 4, 1)
        assert plan_id == record.plan_ids[k]
        assert record.reward_totals[k] == episode.rewards.sum()
    assert record.settings["num_envs"] == 4


def test_a_plan_is_kept_for_a_whole_batch_and_made_anew_after_it():
    made = es.from_gymnasium(SyncVectorEnv([Walk] * 4), **GOOD | {"features": es.features.OneHot()})
    record = es.run(made, es.OPSE(made.task, constants()), num_episodes=24, seed=1)
    np.testing.assert_array_equal(record.plan_ids, np.repeat(np.arange(6), 4))


def test_a_mixture_tosses_one_coin_an_episode():
    """Each of N parallel episodes has its own component; their data reach the certificate as N episodes."""
    made = es.from_gymnasium(
        SyncVectorEnv([Walk] * 4), **GOOD | {"features": es.features.OneHot(), "cost_limit": 2.5, "slack": 2.0}
    )
    agent = es.OPSE(made.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    record = es.run(made, agent, num_episodes=400, seed=3)
    weighted = np.flatnonzero((record.weights[:, 0] < 1) & (record.weights[:, 0] > 0))
    batches = record.components[: len(record.components) // 4 * 4].reshape(-1, 4)
    assert weighted.size > 100
    assert (np.ptp(batches, axis=1) > 0).any()
    assert record.settings["level"] == "theorem"


def test_a_vector_environment_is_learned_as_well_as_an_environment():
    """Walk with 4 parallel episodes: the learner takes the paying action in the end, within the limit."""
    made = es.from_gymnasium(
        SyncVectorEnv([Walk] * 4, autoreset_mode=AutoresetMode.SAME_STEP),
        **GOOD | {"features": es.features.OneHot(), "cost_limit": 2.0, "slack": 1.5},
    )
    record = es.run(made, es.OPSE(made.task, constants(C_theta=0.1, C_r=0.1, C_u=0.1)), num_episodes=400, seed=0)
    assert record.reward_totals[-100:].mean() > 1.0
    assert record.utility_totals[-100:].mean() >= made.task.threshold


def test_single_and_batch_calls_refuse_each_others_environments():
    made = problem(lanes(SyncVectorEnv, AutoresetMode.NEXT_STEP))
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"es\.play_batch"):
        es.play(made, made.task.safe_policy, rng)
    alone = es.from_gymnasium(Walk(), **GOOD | {"features": es.features.OneHot()})
    with pytest.raises(ValueError, match=r"es\.play$"):
        es.play_batch(alone, [alone.task.safe_policy], rng)
    with pytest.raises(es.InvalidProblem, match="give 1 to 4"):
        es.play_batch(made, [made.task.safe_policy] * 5, rng)
    with pytest.raises(es.InvalidProblem, match="3 actions for 4 episodes"):
        made.reset()
        made.step([0, 0, 0])
        made.step([0, 0, 0])


def test_gymnasium_make_vec_and_the_native_vector_environments():
    """CartPole by make_vec, in both of its forms: the time limit is read from the spec."""

    class Upright(gym.vector.VectorWrapper):
        def step(self, actions):
            states, rewards, terminated, truncated, infos = self.env.step(actions)
            every = np.ones(self.num_envs, dtype=bool)
            return (
                states,
                rewards,
                terminated,
                truncated,
                {**infos, "utility": (abs(states[:, 2]) < 0.1) * 1.0, "_utility": every},
            )

    settings = {"features": lambda s: np.array([0.5, 0.1 * s[2]]), "threshold": 6.0, "cost_limit": None, "slack": 1.0}
    for how in ("sync", "vector_entry_point"):
        env = Upright(gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode=how, max_episode_steps=12))
        with pytest.raises(es.InvalidProblem, match="time limit is 12 steps and the horizon 11"):
            problem(env, horizon=11, **settings)
        made = problem(env, horizon=12, **settings)
        record = es.run(made, es.OPSE(made.task, constants()), num_episodes=9)
        assert np.isfinite(record.utility_totals).all()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_plan_of_a_vector_run_is_safe_by_the_exact_problem(mode):
    """FrozenLake as in test_gym_learning, four at a time, 1200 episodes that end early wherever one falls in."""
    _, cmdp = lake()
    env = SyncVectorEnv([lambda: WithCost(gym.make("FrozenLake-v1", max_episode_steps=8, is_slippery=False), fell)] * 4,
                        autoreset_mode=mode)  # fmt: skip
    live = es.from_gymnasium(
        env,
        features=es.features.OneHot(),
        horizon=8,
        cost_limit=0.5,
        safe_policy=lambda h, s: np.eye(4)[0],
        slack=0.5,
    )
    scales = {"C_r": 0.1, "C_u": 0.0, "C_dagger": 0.1, "B_dagger": 1.0, "C_theta": 0.1}
    constants = es.Constants(**scales, kappa=0.01, lam_max=300, num_halvings=25, ridge=0.1)
    agent, rng, values, last = es.OPSE(live.task, constants, es.Doubling(0.5)), np.random.default_rng(12), [], None
    live.seed(12)
    for _ in range(300):
        plan = agent.plan()
        if plan is not last:
            values.append(cmdp.evaluate(table(plan.policy, cmdp)))
            last = plan
        for episode in es.play_batch(live, [plan.policy] * 4, rng):
            agent.learn(episode, plan_id=plan.id)
    values = np.array(values)
    assert values[:, 1].min() >= cmdp.task.threshold
    assert values[:, 1].min() < cmdp.task.horizon  # something was tried that may fall in
