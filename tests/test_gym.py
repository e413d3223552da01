"""Live environments: broken ones are refused with the remedy, sound ones are learned safely."""

import json
import pickle
import re
import subprocess
import sys
import threading
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
from broken import BROKEN, BROKEN_VECTORS, GOOD, UTILITY, H, Walk, psi, returning
from conftest import constants
from episafe.gym.observations import observations_of
from episafe.problems.policy import Component, StepPolicy, TablePolicy
from episafe.problems.states import ENDED, START, Outside, is_same_state, key
from episafe.tools import environment_check


def problem(env, **changes):
    arguments = {**GOOD, **changes}
    if isinstance(arguments["features"], str):
        arguments["features"] = es.features.OneHot()
    return es.from_gymnasium(env, **arguments)


def played(made, actions):
    """States, rewards, utilities of one episode with these actions."""
    states, seen = [made.reset()], []
    for action in actions:
        state, *signals = made.step(action)
        states.append(state)
        seen.append(signals)
    return states, *np.array(seen).T


ALL_BROKEN = BROKEN | BROKEN_VECTORS
PLACES = (
    "at step|at state|at reset|after step|episode|sub-environment|env must|action space|observation|start|"
    "time limit|horizon|features|policy|slack|_range|threshold|cost_limit|the limit|autoreset_mode|"
    "AsyncVectorEnv|reset must"
)
REMEDIES = (
    "give|set|return|leave|convert|divide|wrap|correct|mend|widen|relax|report|use|add|make|normalise|rescale|split"
)


@pytest.mark.parametrize("name", ALL_BROKEN)
def test_a_broken_environment_is_refused_with_the_place_and_the_remedy(name):
    env, changes, message = ALL_BROKEN[name]
    with pytest.raises((es.InvalidProblem, es.Infeasible), match=message) as refusal:
        made = problem(env, **changes)
        agent = es.OPSE(made.task, constants())
        for episode in made.episodes([agent.plan().policy] * made.num_envs, np.random.default_rng(0)):
            agent.learn(episode)
    said = str(refusal.value)
    assert re.search(rf"({PLACES})", said), said
    assert re.search(rf"(^|[:;].*)\b({REMEDIES})\b", said, re.DOTALL), said
    assert "invalid" not in said.lower()


def test_there_are_a_hundred_broken_ones_and_each_is_told_apart():
    assert len(ALL_BROKEN) >= 100
    assert len({message for _, _, message in ALL_BROKEN.values()}) >= 80


@pytest.mark.parametrize("features", ["one-hot", lambda s: psi([s / 50])], ids=["one-hot", "features"])
def test_the_sound_one_runs_and_the_same_seed_gives_the_same_record(features):
    def run():
        made = problem(Walk(), features=features)
        return es.run(made, es.OPSE(made.task, constants()), num_episodes=30, seed=4)

    record, again = run(), run()
    assert np.isnan(record.utility_values).all()
    assert record.utility_totals.min() >= 0
    assert record.settings["signal"] == "cost"
    np.testing.assert_array_equal(record.utility_totals, again.utility_totals)


def test_a_cost_limit_is_a_threshold_on_one_minus_the_cost():
    made = problem(Walk())
    assert made.task.threshold == H - 1.0
    _, rewards, utilities = played(made, [0, 1, 1])
    assert rewards.tolist() == [0, 1, 1]
    assert utilities.tolist() == [1, 0, 0]


def test_ranges_scale_signals_threshold_and_slack():
    """Rewards −10..10, utilities 0..4, at least 6 of them in 3 steps: 1.5 of 3 in units of [0, 1]."""
    env = returning(lambda o, r, d, t, i: (o, 10 * r, d, t, {"utility": 4 * r}))
    made = problem(env, **UTILITY | {"threshold": 6.0}, reward_range=(-10, 10), utility_range=(0, 4), slack=1.0)
    assert (made.task.threshold, made.task.slack) == (1.5, 0.25)
    _, rewards, utilities = played(made, [0, 1, 0])
    assert rewards.tolist() == [0.5, 1.0, 0.5]
    assert utilities.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("name", "limit", "left"), [("cost", {}, 1.0), ("utility", UTILITY, 0.0)])
def test_an_early_end_is_absorbing_with_zero_reward_and_zero_signal(name, limit, left):
    env = returning(lambda o, r, d, t, i: (o, r, o == 2, t, {name: 1.0}))
    states, rewards, utilities = played(problem(env, **limit), [1, 1, 1])
    assert states == [0, 1, ENDED, ENDED]
    assert rewards.tolist() == [1, 1, 0]
    assert utilities[2] == left


@pytest.mark.parametrize("random_start", [False, True])
def test_a_function_as_a_policy_is_asked_for_observations_alone_and_counts_from_the_first(random_start):
    env, asked, rng = returning(lambda o, r, d, t, i: (o, r, o == 2, t, {"cost": 1.0})), [], np.random.default_rng(0)
    made = problem(env, random_start=random_start)
    policy = made.task.as_policy(lambda h, observation: asked.append((h, observation)) or np.array([0.0, 1.0]))
    assert ENDED in es.play(made, policy, rng).states
    assert list(dict.fromkeys(asked)) == [(0, 0), (1, 1)]
    np.testing.assert_array_equal(policy.probabilities(H, ENDED), [0.5, 0.5])


class Lucky(Walk):
    """A cost that only luck decides."""

    def returned(self, observation, reward, *rest):
        return observation, reward, *rest[:-1], {"cost": self.np_random.random()}


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("lanes", [None, 3], ids=["one", "vector"])
def test_whoever_makes_a_problem_anew_and_seeds_nothing_has_other_luck(random_start, lanes):
    def luck(directly):
        env = Lucky() if lanes is None else gym.vector.SyncVectorEnv([Lucky] * lanes)
        made = problem(env, random_start=random_start)
        if directly:  # in a loop of one's own, which uses the environment itself
            env.reset()
            return tuple(np.ravel(env.step(0 if lanes is None else [0] * lanes)[-1]["cost"]))
        rng = np.random.default_rng(0)
        return tuple(u for e in made.episodes([made.task.safe_policy] * made.num_envs, rng) for u in e.utilities)

    for directly in (False, True):
        assert len({luck(directly) for _ in range(4)}) == 4

    def seeded():
        made = problem(
            Lucky() if lanes is None else gym.vector.SyncVectorEnv([Lucky] * lanes), random_start=random_start
        )
        return es.run(made, es.Fixed(made.task, "incumbent"), 6, seed=3).utility_totals

    np.testing.assert_array_equal(seeded(), seeded())


class ByStep:
    """An object of somebody's own: action h % 2 at step h, whatever is observed."""

    def probabilities(self, h, observation):
        assert observation in range(9), "no observation"
        return np.eye(2)[h % 2]


def test_after_a_random_start_a_policy_counts_as_the_task_and_all_else_from_the_first_observation(tmp_path):
    rows = np.eye(2)[[0, 0, 1, 0]]  # the dummy step, then action h % 2
    StepPolicy(rows).save(tmp_path / "steps.json")
    table = TablePolicy(np.repeat(rows[:, None], 9, axis=1))
    loaded, function = es.load_policy(tmp_path / "steps.json"), ByStep().probabilities
    for policy in (loaded, StepPolicy(rows), Component(loaded), table, function, ByStep()):
        made = problem(Walk(), random_start=True, safe_policy=policy)
        again = problem(Walk(), random_start=True, safe_policy=made.task.safe_policy)
        for acting in (made.task.safe_policy, again.task.safe_policy):
            assert es.play(made, acting, np.random.default_rng(0)).actions[1:] == [0, 1, 0], policy
        if policy in (function, table):  # a candidate has probabilities, also where no state is observed
            continue
        agent = es.OPSE(made.task, certifier=es.certify.Observation(0.05))
        agent.add_candidate("v2", policy)
        assert es.play(made, agent.candidates["v2"], np.random.default_rng(0)).actions[1:] == [0, 1, 0], policy
        assert es.estimate(made, policy, 2).reward == 1, policy


def test_after_a_random_start_an_incumbent_without_a_row_for_the_dummy_step_is_refused():
    with pytest.raises(es.InvalidProblem, match=f"cannot act at step {H} .* give it a row for each, or a function"):
        problem(Walk(), random_start=True, safe_policy=StepPolicy(np.eye(2)[[0, 1, 0]]))


def test_six_values_have_the_cost_third():
    env = returning(lambda o, r, d, t, i: (o, r, i["cost"] / 2, d, t, {}))
    assert played(problem(env), [1, 0, 1])[2].tolist() == [0.5, 1, 0.5]


def test_a_random_start_is_a_dummy_first_step():
    class Random(Walk):
        def start(self):
            return int(self.np_random.integers(1, 4))

    made = problem(Random(), random_start=True)
    assert made.task.horizon == H + 1
    assert made.task.initial_state is START
    states, rewards, utilities = played(made, [1, 0, 1, 0])
    assert states[0] is START
    assert states[1] in (1, 2, 3)
    assert (rewards[0], utilities[0]) == (0, 0)
    agent = es.OPSE(made.task, constants())
    rng = np.random.default_rng(0)
    for _ in range(50):
        agent.learn(es.play(made, made.task.safe_policy, rng))
    known = agent.planner.regression
    np.testing.assert_array_equal(known.model.visits[0, :, 0], [50, 50])  # every action of the dummy step learned
    agent.plan()
    np.testing.assert_allclose(agent.plan().policy.probabilities(0, START).sum(), 1)


def test_actions_of_other_finite_spaces_are_numbered():
    taken = []

    def note(self, action):
        taken.append(np.array(action).tolist())
        return Walk.step(self, 0)

    for space in (gym.spaces.Discrete(3, start=5), gym.spaces.MultiDiscrete([2, 3])):
        env = type("Noting", (Walk,), {"action_space": space, "step": note})()
        made = problem(env, safe_policy=lambda h, s, n=3 if space.shape == () else 6: np.full(n, 1 / n))
        played(made, [0, 2, 1])
    assert taken == [5, 7, 6, [0, 0], [0, 2], [0, 1]]


def test_importing_the_library_does_not_import_gymnasium():
    code = "import sys, episafe; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_continuous_environment_keeps_visited_states_only():
    """CartPole from a random start, tile coding of angle and speed; and one-hot cells of the same."""

    class Upright(gym.Wrapper):
        def step(self, action):
            state, reward, terminated, truncated, info = self.env.step(action)
            return state, reward, terminated, truncated, {**info, "utility": float(abs(state[2]) < 0.1)}

    def run(features):
        made = es.from_gymnasium(
            Upright(gym.make("CartPole-v1", max_episode_steps=12)),
            features=features,
            horizon=12,
            threshold=6.0,
            slack=1.0,
            safe_policy=lambda h, state: np.eye(2)[int(state[2] + 0.5 * state[3] > 0)],
            random_start=True,
        )
        agent = es.OPSE(made.task, constants(), es.Doubling(0.5))
        record = es.run(made, agent, num_episodes=60)
        assert np.isfinite(record.utility_totals).all()
        assert np.isfinite(record.utility_bounds).all()
        return agent.planner.regression.support.size

    tiles = es.features.Tiles([-0.2, -2.0], [0.2, 2.0], bins=4, tilings=2)
    assert run(lambda state: tiles(state[2:])).max() <= 61
    cells = es.features.Cells([-0.2, -2.0], [0.2, 2.0], bins=4)
    assert run(es.features.OneHot(lambda state: cells(state[2:]), cells.size)).max() <= 17


def test_one_step_is_an_episode_too():
    made = problem(Walk(), horizon=1, cost_limit=0.5, slack=0.1)
    record = es.run(made, es.OPSE(made.task, certifier=es.certify.Observation()), 5)
    assert record.reward_totals.shape == (5,)


def test_a_reported_state_must_be_an_observation():
    made = problem(Walk())
    agent, good = es.OPSE(made.task, constants()), es.play(made, made.task.safe_policy, np.random.default_rng(0))
    for state in (99_999, -5, "hot", 3.5, None):
        with pytest.raises(es.InvalidEpisode, match=r"state .* at step 1 is not in the observation space"):
            agent.learn(replace(good, states=[good.states[0], state, *good.states[2:]]))
    assert agent.num_learned == 0
    agent.learn(good)
    assert agent.num_learned == 1


def test_what_passes_the_quick_test_is_in_the_space_and_finite():
    spaces = [
        gym.spaces.Discrete(3, start=5),
        gym.spaces.Box(np.array([-1, -np.inf], np.float32), np.array([1, np.inf], np.float32)),
        gym.spaces.Box(0, 9, (2,), np.int64),
        gym.spaces.MultiDiscrete([2, 3], start=[0, 4]),
        gym.spaces.MultiBinary(2),
        gym.spaces.Tuple([gym.spaces.Discrete(2)]),
        type("Odd", (gym.spaces.Discrete,), {"contains": lambda self, x: x == 1})(4),
    ]
    numbers = [0, 1, 5, 7, 8, -1, True, 5.0, np.int64(5), np.int32(5), "5", None, (1,)]
    pairs = [[0, 0], [1, 4], [1, 6], [2, 7], [-2, 0], [np.nan, 0], [0, np.inf], [0.5, 1e30]]
    kinds = (np.float32, np.float64, np.int64, np.int8)
    with np.errstate(invalid="ignore"):
        arrays = [np.array(pair).astype(kind) for pair in pairs for kind in kinds]
    others = [
        np.zeros(3, np.float32),
        np.zeros((1, 2), np.float32),
        np.ma.masked_array(np.zeros(2, np.float32), [1, 0]),
    ]
    for space in spaces:
        passes, passed = observations_of(space).passes, 0
        for value in [*numbers, *arrays, *others, *(space.sample() for _ in range(20))]:
            if passes(value):
                passed += 1
                assert space.contains(value)
                assert np.isfinite(value).all()
        assert passed == 0 if type(space).__name__ in ("Tuple", "Odd") else passed >= 20


def test_a_problem_is_shown_in_one_line():
    shown = repr(problem(Walk()))
    assert shown.startswith("GymCMDP(Walk, ")
    assert len(shown) < 120
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("space", "seen", "says"),
    [
        (gym.spaces.MultiDiscrete([3, 4]), np.array([2, 1]), [(2, 1), [2, 1], np.array([2, 1], dtype=np.int32)]),
        (
            gym.spaces.Box(-1, 1, (2,), np.float32),
            np.array([0.1, 0.5], dtype=np.float32),
            [(float(np.float32(0.1)), 0.5), [0.1, 0.5], np.array([0.1, 0.5])],
        ),
    ],
)
def test_a_state_that_is_said_in_plain_numbers_is_the_array_that_was_met(space, seen, says):
    """Over HTTP a list, elsewhere numbers of another type: what was proved acted as in a state that nobody met."""
    env = returning(lambda o, r, d, t, i: (seen, r, d, t, {"cost": 0.0}), start=lambda self: seen)
    env.observation_space = space
    task = problem(env, features=es.features.OneHot(key, 12)).task
    for said in says:
        assert task.key(said) == task.key(seen) == key(seen)
        states = [said] * (H + 1)
        (read, _), _ = task.read_report(es.Episode(states, [0] * H, [0.5] * H, [0.5] * H))
        assert all(key(state) == key(seen) for state in read)
    for wrong in ((2.5, 1), (9, 9), (1,), "ab", ((1, 2), 3)):
        if wrong == (2.5, 1) and space.dtype.kind == "f":
            continue
        with pytest.raises(es.InvalidEpisode, match="is not in the observation space"):
            task.read_report(es.Episode([wrong] * (H + 1), [0] * H, [0.5] * H, [0.5] * H))


def test_a_run_an_estimate_and_a_check_leave_luck_that_nobody_chose():
    """Left with theirs, a loop had the same episodes in every process, and counted them as new: 4 of 8 lives."""

    def after(look):
        made = problem(Walk())
        made.env.returned = lambda o, r, d, t, i: (int(made.env.np_random.integers(50)), r, d, t, {"cost": 0.0})
        look(made)
        rng = np.random.default_rng(0)
        return [es.play(made, made.task.safe_policy, rng).states for _ in range(5)]

    looks = {
        "estimate": lambda made: es.estimate(made, made.task.safe_policy, 3),
        "run": lambda made: es.run(made, es.Fixed(made.task, "incumbent"), 3, seed=1),
        "slack": lambda made: es.measure_slack(made, most_episodes=64),
        "check": lambda made: environment_check.check(made, 5),
    }
    for name, look in looks.items():
        assert after(look) != after(look), name
    assert after(lambda made: made.seed(3)) == after(lambda made: made.seed(3))


@pytest.mark.parametrize(
    ("space", "seen", "says", "wrong"),
    [
        (gym.spaces.Box(0, 3, (), np.int64), np.array(2), [2, 2.0, np.int32(2)], [(2, 1), 2.5]),
        (
            gym.spaces.Tuple([gym.spaces.MultiBinary([2, 2]), gym.spaces.Discrete(3)]),
            (np.array([[0, 1], [1, 1]], dtype=np.int8), 2),
            [(((0, 1), (1, 1)), 2), [[0, 1, 1, 1], 2]],
            [
                ((0, 1), 2),
                (0, 1, 1, 1, 2),
                3,
                ((0, 1, 1, 1), (2, 2)),
                ((0, 1, 1, 2), 2),
                ((0, 1, 1, 1), 3),
                ("0111", 2),
            ],
        ),
        (
            gym.spaces.Tuple([gym.spaces.Box(0, 3, (), np.float32), gym.spaces.Discrete(3)]),
            (np.array(0.1, dtype=np.float32), 1),
            [(0.1, 1), ((0.1,), 1), [np.float64(0.1), 1], (0.1, np.array([1]))],
            [((0.1, 0.2), 1), (0.1, 1, 1), (0.1, "1"), ("0.1", 1), (None, None), (3.5, 1), (0.1, np.array([1, 1]))],
        ),
    ],
)
def test_numbers_and_tuples_that_are_said_plainly_are_the_states_that_were_met(space, seen, says, wrong):
    """Over HTTP a list of lists, or one number: 2 of 2 lives were unsafe for each of these."""
    env = returning(lambda o, r, d, t, i: (seen, r, d, t, {"cost": 0.0}), start=lambda self: seen)
    env.observation_space = space
    made = problem(env, features=es.features.OneHot(key, 12))
    task, met = made.task, made.reset()
    report = lambda state: es.Episode([state] * (H + 1), [0] * H, [0.5] * H, [0.5] * H)  # noqa: E731
    for said in [*says, met]:
        assert task.key(said) == task.key(met)
        assert {task.key(state) for state in task.read_report(report(said))[0][0]} == {task.key(met)}
    for said in wrong:
        with pytest.raises(es.InvalidEpisode, match="is not in the observation space"):
            task.read_report(report(said))


def test_what_an_earlier_version_learned_of_lists_is_learned_anew_and_its_policies_are_read_as_arrays(tmp_path):
    """Its states over HTTP had the names of tuples: what was proved acted as where nobody was, 3 of 3 lives."""
    seen = np.array([2, 1])
    env = returning(lambda o, r, d, t, i: (seen, r, d, t, {"cost": 0.0}), start=lambda self: seen)
    env.observation_space = gym.spaces.MultiDiscrete([3, 4])
    before, now = (problem(env).task for _ in range(2))
    before.__dict__["read"] = lambda said: said
    agents = [es.OPSE(task, constants()) for task in (before, now)]
    report = es.Episode([seen] + [(2, 1)] * H, [0] * H, [0.5] * H, [0.5] * H)
    object.__setattr__(before, "reading", None)
    agents[0].learn(report)
    agents[1].learn(report)
    states = [agent.state() for agent in agents]
    es.OPSE(now, constants()).restore(states[1])
    with pytest.raises(es.DamagedFile, match="lists for observations that are arrays"):
        es.OPSE(now, constants()).restore(states[0])
    scales = {"C_r": 1, "utility_bonus": 0, "C_dagger": 0, "B_dagger": 0, "kappa": 1, "curve": 0, "spread": 0}
    said = {
        "episafe_policy": 1, "name": "", "certificate": {}, "kind": "rows", "horizon": H, "num_actions": 2, "lam": 0.0,
        "scales": scales, "learned": ["reward", "utility"], "signal_scales": [0, 0], "outside": {"ended": [0, 1]},
        "beta": 1.0, "bonus": 1.0, "rows": [{'{"tuple":[2,1]}': [0.25, 0.75]}] * H,
    }  # fmt: skip
    (tmp_path / "policy.json").write_text(json.dumps(said))
    assert es.load_policy(tmp_path / "policy.json", now).probabilities(0, seen).tolist() == [0.25, 0.75]


def test_a_look_waits_for_a_run_of_another_thread_and_is_refused_in_the_midst_of_one():
    """It seeded the environment of the run, whose record was then another one, and could not be resumed."""
    made = problem(Walk())
    agent = lambda: es.Fixed(made.task, "incumbent")  # noqa: E731
    look = lambda k: es.estimate(made, made.task.safe_policy, 2)  # noqa: E731
    with pytest.raises(es.InvalidProblem, match="in the midst of it"):
        es.run(made, agent(), 5, on_progress=look)
    made.seed(5)
    with made.one_run():
        waiting = threading.Thread(target=look, args=(0,))
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive() and made._seed == 5
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_learned_policy_acts_in_no_state_that_is_none_also_after_a_new_one():
    """The first new one was remembered for all others: "3" for 3 then acted as where nobody was."""
    task = problem(Walk()).task
    agent = es.OPSE(task, constants())
    agent.learn(es.Episode(list(range(H + 1)), [0] * H, [0.5] * H, [0.5] * H))
    agent.plan()
    policy = agent.planner.policy(0.5)
    for _ in range(2):
        assert policy.probabilities(1, 30).sum() == pytest.approx(1)
        for wrong in ("3", (3, 3), 3.5, 103, None, np.array([3, 3])):
            with pytest.raises(es.InvalidEpisode, match="is not in the observation space"):
                policy.probabilities(1, wrong)


def test_features_and_signals_are_of_the_array_that_was_met():
    """float32(0.7) lies in another tile than 0.7: in one's own loop what was proved acted as where nobody was."""
    seen = np.array([0.7], dtype=np.float32)
    env = returning(lambda o, r, d, t, i: (seen, r, d, t, {"cost": 0.0}), start=lambda self: seen)
    env.observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    tiles = es.features.Tiles(bins=10, tilings=1, low=[0.0], high=[1.0])
    task = problem(env, features=tiles, reward=lambda h, state: np.full(2, float(state[0]) % 0.5)).task
    for said in ([0.7], (0.7,), np.array([0.7])):
        np.testing.assert_array_equal(task.features(said), task.features(seen))
        np.testing.assert_array_equal(task.reward_at(0, said), task.reward_at(0, seen))
    assert not np.array_equal(tiles(np.array([0.7])), tiles(seen))


def test_a_policy_of_features_acts_in_no_state_that_is_none():
    env = returning(lambda o, r, d, t, i: (np.array([0.5]), r, d, t, {"cost": 0.0}), start=lambda self: np.array([0.5]))
    env.observation_space = gym.spaces.Box(0, 1, (1,), np.float64)
    task = problem(env, features=es.features.Fourier(low=[0.0], high=[1.0])).task
    policy = es.OPSE(task, constants()).planner.policy(0.5)
    assert policy.probabilities(1, np.array([0.25])).sum() == pytest.approx(1)
    for wrong in (np.array([25.0]), np.array([-0.5]), "0.5", np.array([0.5, 0.5])):
        with pytest.raises(es.InvalidEpisode, match="is not in the observation space"):
            policy.probabilities(1, wrong)


class Asked:
    """A candidate that notes what it is asked at."""

    def __init__(self):
        self.at = []

    def probabilities(self, h, state):
        if not isinstance(state, Outside):
            self.at.append(state)
        return np.array([0.9, 0.1])


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (gym.spaces.Box(0, 1, (1,), np.float64), np.array([0.7], np.float32)),
        (gym.spaces.Box(0, 9, (2,), np.float32), np.array([3, 4], np.uint8)),
        (gym.spaces.MultiDiscrete([5, 5]), np.array([3, 4], np.int8)),
        (gym.spaces.MultiBinary(2), np.array([0, 1], np.int64)),
        (gym.spaces.Discrete(9), np.uint8(3)),
        (gym.spaces.Discrete(2), True),
        (gym.spaces.Tuple([gym.spaces.Discrete(9), gym.spaces.Discrete(9)]), (np.array(3), np.uint8(4))),
        (gym.spaces.Tuple([gym.spaces.Box(0, 1, (1,), np.float64), gym.spaces.Discrete(3)]), (np.float32([0.7]), 2)),
    ],
    ids=str,
)
def test_whoever_acts_is_asked_at_the_states_that_it_is_judged_at(space, seen):
    """np.float32(0.7) ≥ 0.7, and its value is not: what acted at one was judged at the other, 3 of 3 runs."""
    env = returning(lambda o, r, d, t, i: (seen, r, d, t, {"cost": 0.0}), start=lambda self: seen)
    env.observation_space = space
    incumbent, candidate = Asked(), Asked()
    made = problem(env, features=es.features.OneHot(key, 12), safe_policy=incumbent)
    met, rng = made.reset(), np.random.default_rng(0)

    def new():
        agent = es.OPSE(made.task, certifier=es.certify.Observation())
        agent.add_candidate("mine", candidate)
        return agent

    es.run(made, new(), 30, seed=0)
    session, raw = es.open(None, new()), [seen] * (H + 1)
    for _ in range(30):
        one = session.deploy(rng)
        actions = [one.policy.act(h, raw[h], rng) for h in range(H)]
        report = es.Episode(raw, actions, [0.5] * H, [0.5] * H, component=one.component)
        session.learn(report, deployment=one.id)
    for policy in (incumbent, candidate):
        assert len(policy.at) > 60
        assert all(is_same_state(state, met) for state in policy.at)


def test_a_policy_that_reads_states_can_be_sent_to_another_process():
    made = problem(Walk(), safe_policy=StepPolicy(np.tile([0.5, 0.5], (H, 1))))
    policy = made.task.as_policy(StepPolicy(np.tile([0.5, 0.5], (H, 1))))
    assert pickle.loads(pickle.dumps(policy)).probabilities(0, np.array(3)).tolist() == [0.5, 0.5]
