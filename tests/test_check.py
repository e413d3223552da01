"""`episafe check`: each fault is found and named, and a sound problem is not blamed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from broken import GOOD, Walk, returning
from episafe.cli import app
from episafe.experiments.checking import check


def made(env, **changes):
    return es.from_gymnasium(env, **{**GOOD, "features": es.features.OneHot(), **changes})


def verdicts(problem):
    return {finding.what: (finding.verdict, finding.found) for finding in check(problem, 100)}


def test_a_sound_problem_is_not_blamed():
    assert {verdict for verdict, _ in verdicts(made(Walk())).values()} == {"ok"}


@pytest.mark.parametrize(
    ("problem", "what", "verdict", "message"),
    [
        (lambda: made(Walk(), safe_policy=lambda h, s: [0.2, 0.8]), "incumbent", "error", "it is not safe"),
        (lambda: made(Walk(), safe_policy=lambda h, s: [0.8, 0.2], slack=0.9), "incumbent", "error", "slack is not"),
        (lambda: made(returning(lambda o, r, d, t, i: (o, r, o == 2, t, i))), "early ends", "warning", "looks safe"),
        (lambda: made(Walk(), features=lambda s: np.array([0.1])), "features", "warning", "learn slowly"),
        (lambda: made(returning(lambda o, r, d, t, i: (o, 9.0, d, t, i))), "episodes", "error", "reward_range"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(problem, what, verdict, message):
    found = verdicts(problem())[what]
    assert found[0] == verdict
    assert message in found[1]


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

    assert verdicts(made(Noisy()))["reward and utility"][0] == "warning"
    found = verdicts(made(Drifting(), random_start=True))["start"]
    assert found[0] == "error"
    assert "drifts" in found[1]


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
