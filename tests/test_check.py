"""`episafe check`: each fault is found and named, and a sound problem is not blamed."""

import json

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from broken import GOOD, Walk, returning
from episafe.cli import app
from episafe.stats import mean_interval
from episafe.tools.environment_check import check


def made(env, **changes):
    return es.from_gymnasium(env, **{**GOOD, "features": es.features.OneHot(), **changes})


def served(threshold):
    """Four steps with all of their utility."""
    env = returning(lambda o, r, d, t, i: (o, r, d, t, {"utility": 1.0}))
    return made(env, cost_limit=None, threshold=threshold, slack=0.01, horizon=4)


def verdicts(problem):
    return {finding.what: (finding.verdict, finding.found) for finding in check(problem, 100)}


def test_a_sound_problem_is_not_blamed_and_every_episode_is_counted():
    done = []
    assert {finding.verdict for finding in check(made(Walk()), 100, on_progress=done.append)} == {"ok"}
    assert done == list(range(1, 101))


@pytest.mark.parametrize(
    ("problem", "what", "verdict", "message"),
    [
        (lambda: made(Walk(), safe_policy=lambda h, s: [0.2, 0.8]), "incumbent", "error", "it is not safe"),
        (lambda: made(Walk(), safe_policy=lambda h, s: [0.8, 0.2], slack=0.9), "incumbent", "error", "slack is not"),
        (lambda: made(returning(lambda o, r, d, t, i: (o, r, o == 2, t, i))), "early ends", "confirm", "early-end"),
        (lambda: made(Walk(), features=lambda s: np.array([0.1])), "features", "warning", "norm_bound >= 10"),
        (lambda: made(Walk(), cost_limit=100.0), "incumbent", "warning", "no policy can break the limit 100"),
        (lambda: served(0.9), "incumbent", "warning", "is that a total of an episode, and not a mean of its steps?"),
        (lambda: served(3.6), "incumbent", "ok", "threshold 3.6"),
        (lambda: made(returning(lambda o, r, d, t, i: (o, 9.0, d, t, i))), "episodes", "error", "reward_range"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(problem, what, verdict, message):
    found = verdicts(problem())[what]
    assert found[0] == verdict
    assert message in found[1]


def test_the_interval_holds_where_a_normal_one_does_not():
    """200 totals that are 0.9 but for one in a hundred: 99 % intervals, 300 of each. A normal one fails often."""
    rng, mean, failed, normal = np.random.default_rng(0), 0.891, 0, 0
    for _ in range(300):
        x = np.where(rng.random(200) < 0.01, 0.0, 0.9)
        low, high = mean_interval(x, 0.01)
        half = 2.576 * x.std(ddof=1) / len(x) ** 0.5
        failed, normal = failed + (not low <= mean <= high), normal + (abs(x.mean() - mean) > half)
    assert failed <= 8  # more have probability 0.004 at a rate of 1 %
    assert normal > 15
    assert 0 < high - low < 0.08


def test_intervals_of_ends_and_constants():
    """All ones: by hand, (1 + 0.9(1 − m)/m)ⁿ = 2/δ at the lower end, the bets being as bold as they may."""
    low, high = mean_interval(np.ones(20), 0.01)
    assert high == 1
    assert 0 < low < 1
    low_of_zeros, high_of_zeros = mean_interval(np.zeros(20), 0.01)
    assert low_of_zeros == pytest.approx(0, abs=1e-12)
    assert high_of_zeros == pytest.approx(1 - low)
    rng = np.random.default_rng(1)
    widths = [np.diff(mean_interval(rng.random(n), 0.01))[0] for n in (50, 500, 5000)]
    assert widths[0] > 2.5 * widths[1] > 6 * widths[2]


ENDING = lambda: returning(lambda o, r, d, t, i: (o, r, o == 2, t, i))  # noqa: E731


def test_early_ends_ask_for_a_word_only_where_they_look_safe():
    assert {f.what: f.verdict for f in check(made(ENDING()), 20, confirmed=["early-end"])}["early ends"] == "ok"
    with pytest.raises(ValueError, match="give early-end"):
        check(made(ENDING()), 20, confirmed=["everything"])
    utility = returning(lambda o, r, d, t, i: (o, r, o == 2, t, {"utility": 1.0}))
    found = {f.what: f for f in check(made(utility, cost_limit=None, threshold=1.0), 20)}["early ends"]
    assert (found.verdict, "do not look safe" in found.found) == ("ok", True)
    gain = returning(lambda o, r, d, t, i: (o, r, o == 2, t, {"utility": -0.2}))
    limits = {"cost_limit": None, "threshold": -2.0, "utility_range": (-1.0, 0.0)}
    assert {f.what: f.verdict for f in check(made(gain, **limits), 20)}["early ends"] == "confirm"


@pytest.mark.parametrize(
    ("told", "verdict", "message"),
    [
        ({"reward": lambda h, s: [0.0, 1.0]}, "ok", "as the environment says"),
        ({"reward": lambda h, s: [0.3 * (h == 2), 1.0]}, "error", "step 2, state 2, action 0 it is 0.3, and 0 is seen"),
        ({"utility": lambda h, s: [1.0, 0.0]}, "ok", "as the environment says"),
        ({"utility": lambda h, s: [0.0, 1.0]}, "error", "and 1 is seen, both in [0, 1]: correct the function utility="),
        ({"reward": lambda h, s: [0.0, 1.0], "reward_range": (0.5, 2.0)}, None, "leaves out 0"),
    ],
)  # fmt: skip
def test_functions_are_compared_with_what_the_environment_says(told, verdict, message):
    """Walk pays 0 for action 0, which its incumbent takes, and costs nothing then."""
    if verdict is None:
        with pytest.raises(es.InvalidProblem, match=message):
            made(Walk(), **told)
        return
    found = verdicts(made(Walk(), **told))[f"{next(iter(told))}= given"]
    assert found[0] == verdict
    assert message in found[1]


def test_functions_are_compared_with_the_mean_where_there_is_noise():
    class Noisy(Walk):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, float(self.np_random.random() < 0.2), *rest

    for told, verdict in ((0.2, "ok"), (0.7, "error")):
        found = verdicts(made(Noisy(), reward=lambda h, s, r=told: [r, r]))["reward= given"]
        assert found[0] == verdict, found


def test_a_utility_that_only_a_function_tells_has_nothing_to_be_compared_with():
    silent = returning(lambda o, r, d, t, i: (o, r, d, t, {}))
    found = verdicts(made(silent, utility=lambda h, s: [1.0, 0.0]))["utility= given"]
    assert found == ("ok", "the environment reports no signal to compare it with")


def test_a_sound_vector_environment_is_not_blamed():
    found = verdicts(made(gym.vector.SyncVectorEnv([Walk] * 3), reward=lambda h, s: [0.0, 1.0]))
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    assert {"sub-environments", "sub-environments alike", "reward= given"} <= found.keys()


def test_copies_and_strangers_among_sub_environments_are_found():
    class Random(Walk):
        def start(self):
            return int(self.np_random.integers(9))

    class Twins(gym.vector.SyncVectorEnv):
        def reset(self, *, seed=None, options=None):
            self.k = getattr(self, "k", 0) + 1
            return super().reset(seed=[self.k] * self.num_envs)

    assert verdicts(made(gym.vector.SyncVectorEnv([Random] * 3), random_start=True))["sub-environments"][0] == "ok"
    found = verdicts(made(Twins([Random] * 3), random_start=True))["sub-environments"]
    assert found[0] == "error"
    assert "a seed of its own" in found[1]
    generous = lambda: returning(lambda o, r, d, t, i: (o, 0.7, d, t, i))  # noqa: E731
    found = verdicts(made(gym.vector.SyncVectorEnv([Walk, generous, Walk])))["sub-environments alike"]
    assert found[0] == "error"
    assert "reward of number 1" in found[1]


def test_gymnasiums_checker_says_when_it_cannot_look():
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point", max_episode_steps=5)
    told = {"reward": lambda h, s: [0.5, 0.5], "utility": lambda h, s: [1.0, 1.0]}
    problem = made(env, features=lambda s: np.array([0.5]), random_start=True, horizon=5, **told)
    assert verdicts(problem)["Gymnasium's checker"] == (
        "warning",
        "not run, for the environments are out of sight: check one of them by itself",
    )


def test_noise_and_a_start_that_drifts_are_found():
    class Noisy(Walk):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, float(self.np_random.random()), *rest

    class Drifting(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.k = 0 if seed is not None else self.k + 1
            return self.k // 4, {}

    verdict, said = verdicts(made(Noisy()))["reward and utility"]
    assert verdict == "ok" and said.endswith(": noise; what is kept is the expected utility")
    found = verdicts(made(Drifting(), random_start=True))["start"]
    assert found[0] == "error"
    assert "drifts" in found[1]


def test_a_random_start_of_several_parts_is_looked_at_and_its_dummy_step_is_not_counted():
    pair = gym.spaces.Tuple([gym.spaces.Discrete(50), gym.spaces.Box(-9.0, 9.0, (2,), np.float64)])
    changes = {"observation_space": pair, "start": lambda self: (0, self.np_random.uniform(-1, 1, 2))}
    env = returning(lambda o, *rest: ((o, np.zeros(2)), *rest), **changes)
    found = verdicts(made(env, features=lambda s: np.array([0.9]), random_start=True))
    assert found["start"] == ("ok", "random, no drift seen")
    assert "3 steps each" in found["episodes"][1]
    assert "to 3 (99 %" in found["incumbent"][1]


def test_a_step_that_shows_in_the_reward_is_found_where_steps_are_said_to_be_alike():
    assert verdicts(made(Walk(), time_homogeneous=True))["time_homogeneous"][0] == "ok"
    assert "time_homogeneous" not in verdicts(made(Walk()))
    counting = returning(lambda o, r, d, t, i: (0, 0.25 * o, d, t, i))  # always at 0, and paid by the hour
    found = verdicts(made(counting, time_homogeneous=True))["time_homogeneous"]
    assert found[0] == "error"
    assert "leave out time_homogeneous=True" in found[1]


def test_an_unknown_slack_is_not_blamed():
    assert "es.measure_slack" in verdicts(made(Walk(), slack=None))["incumbent"][1]


def test_the_command_names_the_fault_and_the_exit_code_the_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_for_check.py").write_text(
        "import gymnasium, numpy, episafe as es\n"
        "import episafe.envs.gymnasium\n"
        "env = gymnasium.make('episafe/Streaming-v0')\n"
        "task = env.unwrapped.cmdp.task\n"
        "def problem(b=task.threshold):\n"
        "    return es.from_gymnasium(env, features=es.features.OneHot(), horizon=task.horizon, threshold=b,\n"
        "        slack=task.slack, safe_policy=task.safe_policy)\n"
        "def unsafe():\n"
        "    return problem(task.horizon - task.slack - 1e-3 + 0 * task.threshold + 2)\n"
        "number = 3\n"
    )
    runner = CliRunner()
    done = runner.invoke(app, ["check", "shop_for_check:problem", "--json"])
    assert done.exit_code == 0, done.output
    assert {row["what"] for row in json.loads(done.stdout)} >= {"incumbent", "features", "Gymnasium's checker"}
    for name, code in (("unsafe", 3), ("number", 2), ("nothing", 2)):
        assert runner.invoke(app, ["check", f"shop_for_check:{name}"]).exit_code == code
    assert runner.invoke(app, ["check", "shop_for_check"]).exit_code == 2


def test_the_command_fails_until_early_ends_are_confirmed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ending_for_check.py").write_text(
        "import gymnasium, episafe as es\n"
        "class Lake(gymnasium.Wrapper):\n"
        "    def step(self, action):\n"
        "        state, reward, terminated, truncated, info = self.env.step(action)\n"
        "        return state, reward, terminated, truncated, {**info, 'cost': float(state in (5, 7, 11, 12))}\n"
        "def problem():\n"
        "    env = Lake(gymnasium.make('FrozenLake-v1', max_episode_steps=8))\n"
        "    return es.from_gymnasium(env, features=es.features.OneHot(), horizon=8, cost_limit=6, slack=0.5,\n"
        "        safe_policy=lambda h, state: [0.25] * 4)\n"
    )
    runner, command = CliRunner(), ["check", "ending_for_check:problem"]
    done = runner.invoke(app, [*command, "--json"])
    assert done.exit_code == 3
    assert {row["what"] for row in json.loads(done.stdout) if row["verdict"] == "confirm"} == {"early ends"}
    assert runner.invoke(app, [*command, "--confirm", "early-end"]).exit_code == 0
    assert runner.invoke(app, [*command, "--confirm", "nothing"]).exit_code == 2
    monkeypatch.setattr("episafe.cli.on_terminal", lambda: True)
    assert runner.invoke(app, command, input="n\n").exit_code == 3
    done = runner.invoke(app, command, input="y\n")
    assert done.exit_code == 0
    assert "is that meant?" in done.output


def test_too_little_slack_to_try_anything_is_a_warning():
    found = [{f.what: f for f in check(made(Walk(), slack=slack), 20)}["trials"] for slack in (0.9, 0.05)]
    b = made(Walk()).task.threshold
    assert [f.verdict for f in found] == ["ok", "warning"]
    assert f"{0.9 / (b + 0.9):.1%}" in found[0].found and "relax the limit" in found[1].found
