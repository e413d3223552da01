"""Errors that name the place and the remedy, for what people get wrong."""

import subprocess
import sys
import textwrap
import time

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.tools.named_object import named


class Penalised(gym.Env):
    """Action 1 earns, and is reported as a penalty below 0."""

    action_space, observation_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, float(action), False, False, {"cost": -float(action)}


def penalised(**changes):
    given = {"cost_limit": 1.0, "slack": 0.5, "safe_policy": lambda h, s: [1.0, 0.0]} | changes
    return es.from_gymnasium(Penalised(), features=es.features.OneHot(), horizon=4, **given)


def test_a_negative_cost_does_not_lead_to_a_threshold_that_keeps_nothing():
    with pytest.raises(es.InvalidProblem, match="report a penalty as its size, 1"):
        es.play(penalised(), es.Fixed(penalised().task, "uniform").policy, np.random.default_rng(0))
    with pytest.raises(es.InvalidProblem, match=r"no policy can exceed the limit 1 .* report penalties as their size"):
        penalised(cost_range=(-1.0, 0.0))
    with pytest.raises(es.InvalidProblem, match="nothing would be kept"):
        penalised(cost_range=(-1.0, 0.25))
    assert penalised(cost_range=(-1.0, 1.0)).task.threshold == pytest.approx(1.5)  # of 4: costs may exceed 1


def test_constants_that_only_propose_are_refused_without_a_certifier():
    task = es.make("streaming").task
    for constants in (es.Constants.proposing(), es.Constants.proposing().replace(C_r=0.1)):
        with pytest.raises(ValueError, match=r"C_u = 0, .* give it a certifier, such as es\.certify\.Observation"):
            es.OPSE(task, constants)
        assert es.OPSE(task, constants, certifier=es.certify.Observation()).level == "theorem"
    assert es.OPSE(task, es.Constants.proposing().replace(C_u=2.0)).level == "heuristic"  # a choice of one's own


def test_a_folder_of_an_agent_with_a_certifier_keeps_its_constants(tmp_path):
    cmdp = es.make("streaming")
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
    es.run(cmdp, agent, 30, folder=tmp_path / "kept")
    assert es.audit(tmp_path / "kept").recomputed == 30


@pytest.mark.parametrize("wrong", [lambda s: [1.0, 0.0], lambda: [1.0, 0.0], lambda h, s, more: [1.0, 0.0]])
def test_an_incumbent_of_another_signature_is_refused(wrong):
    with pytest.raises(es.InvalidProblem, match=r"safe_policy is called as safe_policy\(h, observation\), and takes"):
        penalised(safe_policy=wrong)
    with pytest.raises(es.InvalidProblem, match=r"a policy is called as policy\(h, state\)"):
        penalised().task.as_policy(wrong)
    with pytest.raises(es.InvalidProblem, match=r"safe_policy is a function, .* give a table \(1, 1, 2\)"):
        es.LinearCMDP(np.ones((1, 1, 2, 1)), [[[1, 0]]], [[[0, 1]]], threshold=0.2, safe_policy=wrong)


def test_functions_of_the_round_take_the_round():
    arms = lambda k: np.eye(2)  # noqa: E731
    for actions, incumbent, name in ((arms, lambda: [1.0, 0.0], "safe_policy"), (lambda: np.eye(2), arms, "actions")):
        with pytest.raises(es.InvalidProblem, match=rf"{name} is called as {name}\(round\)"):
            es.bandits.BanditTask(2, actions, 0.1, incumbent, 0.1, 0.5, 1.0)


@pytest.mark.parametrize("given", [[[[[0.0, 1.0]]], 0.25, 0.5], ([[[0.0, 1.0]]], 0.25, 0.5), None])
def test_a_task_with_a_list_for_its_constraint_is_told_what_to_give(given):
    with pytest.raises(es.InvalidProblem, match=r"constraint must be one es\.Constraint\(utility, threshold, slack\)"):
        es.Task(1, 1, 2, [[[1.0, 0.0]]], None, 0, given, [[[0.0, 1.0]]])


def test_an_estimate_of_a_function_is_told_how_to_make_a_policy():
    problem = penalised(cost_range=(-1.0, 1.0))
    with pytest.raises(
        TypeError, match=r"got function: make one of a function .* problem\.task\.as_policy\(function\)"
    ):
        es.estimate(problem, lambda h, s: [1.0, 0.0], 10)
    with pytest.raises(TypeError, match=r"plays a live environment.*LinearCMDP.*problem.evaluate"):
        es.estimate(es.make("streaming"), es.make("streaming").task.safe_policy, 10)
    assert es.estimate(problem, problem.task.as_policy(lambda h, s: [1.0, 0.0]), 10).reward == 0


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into a folder that is the current one, under a name of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])

    def write(name, text):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return f"{name}:problem"

    yield write
    for name in list(sys.modules):
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import episafe\n\nimport no_such\n", "line 3: ModuleNotFoundError: No module named 'no_such'"),
        ("problem = object().task\n", "line 1: AttributeError: 'object' object has no attribute 'task'"),
        ("x = 1\nproblem = x / 0\n", "line 2: ZeroDivisionError: division by zero"),
        ("def problem(:\n", "line 1: SyntaxError"),
        ("def problem():\n    settings = {}\n    return settings['shop']\n", "line 3: KeyError: 'shop'"),
        ("import numpy as np\nproblem = np.zeros(-1)\n", "line 2: ValueError: negative dimensions"),
        ("import episafe as es\nproblem = es.from_gymnasium(object(), features=None, horizon=1, safe_policy=None, "
         "slack=None)\n", "line 2: InvalidProblem: env must be a Gymnasium environment"),
    ],
)  # fmt: skip
def test_an_error_inside_the_users_module_is_the_one_that_is_told(module, tmp_path, text, said):
    done = CliRunner().invoke(app, ["check", module("broken_shop", text)])
    told = " ".join(done.output.split())
    assert done.exit_code == (3 if "InvalidProblem" in said else 2), done.output
    assert f"{tmp_path / 'broken_shop.py'}, {said}" in told
    assert "run from the folder" not in told and "has no 'problem'" not in told


def test_what_is_not_there_is_told_as_such(module):
    module("half_a_shop", "x = 1\n")
    with pytest.raises(ValueError, match=r"half_a_shop has no 'problem': it is .*half_a_shop\.py"):
        named("half_a_shop:problem")
    with pytest.raises(ValueError, match=r"there is no module 'no_shop'; run from the folder of no_shop\.py"):
        named("no_shop:problem")


def test_a_file_of_the_users_folder_does_not_take_the_place_of_a_package(module):
    """The folder comes last: `sheet` imports Python's own `wave`, and not the file beside it."""
    module("wave", "raise RuntimeError('the file beside it was imported')\n")
    module("sheet", "import wave\n\nproblem = wave.Wave_read\n")
    assert named("sheet:problem").__name__ == "Wave_read"
    module("late", "def problem():\n    import beside\n    return beside.value\n")
    module("beside", "value = 7\n")
    assert named("late:problem")() == 7  # what is imported later is found too


def test_an_error_of_the_environment_itself_is_told_with_its_line(module, tmp_path):
    name = module("fragile", """
        import gymnasium as gym
        import episafe as es

        class Fragile(gym.Env):
            action_space, observation_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

            def reset(self, *, seed=None, options=None):
                return 0, {}

            def step(self, action):
                return 0, {}["reward"], False, False, {"cost": 0.0}

        problem = es.from_gymnasium(Fragile(), features=es.features.OneHot(), horizon=2, cost_limit=1.0, slack=0.5,
                                    safe_policy=lambda h, s: [1.0, 0.0])
        """)  # fmt: skip
    done = CliRunner().invoke(app, ["check", name])
    told = " ".join(done.output.split())
    assert done.exit_code == 3 and f"{tmp_path / 'fragile.py'}, line 12: KeyError: 'reward'" in told


BEATING = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from episafe.experiments.worker_pool import run_jobs

@dataclass(frozen=True)
class Beat:
    name: str
    identity = "beat"
    cost = 1.0

    def short(self):
        return self

    def compiled_as(self):
        return "nothing", "nothing"

    def record(self):
        while True:
            with open(Path(sys.argv[1]) / "beat", "a") as file:
                file.write(".")
            time.sleep(0.02)

if __name__ == "__main__":
    run_jobs([Beat("beat")], Path(sys.argv[1]), 1, print)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "beating.py").write_text(BEATING)
    parent = subprocess.Popen([sys.executable, tmp_path / "beating.py", tmp_path])
    try:
        _until((tmp_path / "beat").exists, 60)
    finally:
        parent.kill()
        parent.wait()
    sizes = [0]
    _until(lambda: sizes.append((tmp_path / "beat").stat().st_size) or sizes[-1] == sizes[-2], 10)
    time.sleep(0.3)
    assert (tmp_path / "beat").stat().st_size == sizes[-1]


def _until(is_so, seconds):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)
