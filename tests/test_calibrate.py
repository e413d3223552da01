"""`episafe calibrate` on families whose answer is known."""

import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.experiments.executors import Here
from episafe.stats import rate_bound, rate_interval
from episafe.tools.calibration import calibrate, family_of

GRID = (8.0, 4.0, 2.0, 1.0, 0.5, 0.0)


def shape(task):
    return es.Constants(1, 1, 1, 1, kappa=0.01, lam_max=300, num_halvings=30, growth=0.3)


def gamble(chance):
    """Step 0: wait (state 1 for sure) or gamble (state 1 with `chance`, else 2) for reward; utility is being in 1."""
    P = np.zeros((2, 3, 2, 3))
    P[1, :, :, 0] = 1
    P[0, :, 0, 1] = 1
    P[0, :, 1, 1], P[0, :, 1, 2] = chance, 1 - chance
    reward, utility = np.zeros((2, 3, 2)), np.zeros((2, 3, 2))
    reward[0, :, 1], utility[1, 1] = 1, 1
    return es.LinearCMDP(P, reward, utility, threshold=0.8)


def certain(seed):
    """Nothing is random: shrunken frequencies are never above the truth, so no multiplier violates."""
    return gamble(0.0)


def even(seed):
    """A gamble that is as often good as not: without pessimism, luck is believed and the threshold broken."""
    return gamble(0.5)


def test_the_bound_is_the_textbooks():
    """0 of n: 1 − (1 − confidence)^{1/n}; 1 of 2 at 95 %: p with (1−p)² + 2p(1−p) = 0.05."""
    assert rate_bound(0, 59, 0.95) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert rate_bound(1, 2, 0.95) == pytest.approx(np.sqrt(0.95))
    assert rate_bound(3, 3, 0.95) == 1
    assert rate_interval(0, 100) == (0, pytest.approx(1 - 0.025**0.01))
    low, high = rate_interval(3, 300)  # as in any table
    assert (round(low, 4), round(high, 4)) == (0.0021, 0.0289)


def test_where_nothing_can_go_wrong_the_smallest_multiplier_is_found():
    found = calibrate(certain, "certain", shape=shape, num_problems=60, num_episodes=300, grid=GRID)
    assert found.multiplier == 0
    assert [trial.num_violating for trial in found.trials] == [0] * 6


def test_where_luck_decides_the_last_safe_multiplier_is_found_and_stamped():
    """Without pessimism nearly every run violates and at 8 none does; the answer passes, the next one fails."""
    found = calibrate(even, "even", shape=shape, num_problems=60, num_episodes=300, grid=GRID)
    *passed, failed = found.trials
    assert failed.rate_bound > 0.05 >= max(trial.rate_bound for trial in passed)
    assert found.multiplier == passed[-1].multiplier
    assert 0 < found.multiplier < 8
    task = even(0).task
    made = found.constants(task)
    assert (made.level, made.C_u) == ("calibrated", found.multiplier)
    assert "on the family even at most 0.05 of all problems violate in 300 episodes" in made.statement
    assert "Clopper-Pearson" in made.statement
    assert es.OPSE(task, made).plan().level == "calibrated"
    assert made.replace(C_u=0.1).level == "heuristic"
    fresh = [es.run(even(seed), es.OPSE(task, made), 300, seed).violating().any() for seed in range(1000, 1200)]
    assert np.mean(fresh) < 0.1
    control = shape(task).replace(C_u=0, C_r=0, C_dagger=0, B_dagger=0)
    assert np.mean([es.run(even(s), es.OPSE(task, control), 300, s).violating().any() for s in range(40)]) > 0.5


def other(seed):
    """The sizes of `even`, and another family."""
    cmdp = gamble(0.5)
    return es.LinearCMDP(cmdp.P, 0.5 * cmdp.task.reward, cmdp.task.utility, threshold=0.8)


def long(seed):
    """Gambles with a step more."""
    cmdp = gamble(0.5)
    last = np.zeros((1, 3, 2))
    return es.LinearCMDP(
        np.concatenate([cmdp.P, cmdp.P[:1]]), np.concatenate([cmdp.task.reward, last]),
        np.concatenate([cmdp.task.utility, last]), threshold=0.8,
    )  # fmt: skip


@pytest.fixture(scope="module")
def calibration():
    return calibrate(even, "even", shape=shape, num_problems=60, num_episodes=300, grid=(8.0,))


def test_calibrated_is_bound_to_its_task_rule_agent_and_certifier(calibration):
    task = even(0).task
    made = calibration.constants(task)
    assert "for OPSE with Doubling(growth=0.3) and horizon 2, and for nothing else" in made.statement
    ours = es.OPSE(task, made)
    assert (ours.level, ours.plan().level, ours.settings()["statement"]) == ("calibrated", "calibrated", made.statement)
    elsewhere = [
        es.OPSE(other(0).task, made),
        es.OPSE(long(0).task, made),
        es.OPSE(task, made, es.Every()),
        es.OPSE(task, made, es.Doubling(0.5)),
        es.OPSE(task, made, search=es.WarmStart()),
        es.OPSE(task, made, num_safe_episodes=5),
        es.Ghosh2024(task, made),
    ]
    for agent in elsewhere:
        assert {agent.level, agent.plan().level, agent.settings()["level"]} == {"heuristic"}
        assert agent.settings()["statement"] == ""
    certified = es.OPSE(task, made, certifier=es.certify.Observation())
    assert certified.level == "theorem" and "family" not in certified.settings()["statement"]


def test_only_problems_of_the_family_get_calibrated_constants(calibration):
    assert calibration.constants(even(7)).level == "calibrated"
    assert calibration.constants(long(0)).level == calibration.constants(long(0).task).level == "heuristic"
    released = calibrate(
        family_of("streaming", {}), "streaming", num_problems=59, num_episodes=20, first_seed=0, grid=(4.0,)
    )  # fmt: skip
    assert released.constants(es.make("streaming", 900)).level == "calibrated"
    assert released.constants(es.make("streaming", 900, "text")).level == "heuristic"
    assert released.constants(es.make("streaming", 900, horizon=5)).level == "heuristic"
    assert released.constants(es.make("tabular", 900)).level == "heuristic"


def test_a_run_longer_than_the_calibration_is_heuristic(calibration):
    made = calibration.constants(even(0).task)
    for length, level in ((300, "calibrated"), (301, "heuristic")):
        agent = es.OPSE(even(0).task, made)
        record = es.run(even(0), agent, length)
        assert record.settings["level"] == level
        assert record.settings["statement"] == (made.statement if level == "calibrated" else "")
    agent.learn(es.Episode([0, 1, 0], [0, 0]))
    assert agent.as_plan(agent.planner.decide()).level == agent.incumbent_plan("halted").level == "heuristic"
    logged = es.OPSE(even(0).task, made)
    logged.logs.append("the hash of a log")
    assert logged.plan().level == "heuristic"


def test_a_folder_keeps_what_the_constants_were_calibrated_for(calibration, tmp_path):
    cmdp = even(0)
    es.run(cmdp, es.OPSE(cmdp.task, calibration.constants(cmdp)), 50, folder=tmp_path / "kept")
    assert es.resume(tmp_path / "kept", 60).settings["level"] == "calibrated"


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match=r"20 problems cannot show a rate below 0\.05 .* use at least 59"):
        calibrate(even, "even", num_problems=20)
    with pytest.raises(ValueError, match="of 60 problems violate: give a grid with larger multipliers"):
        calibrate(even, "even", shape=shape, num_problems=60, num_episodes=300, grid=(0.0,))
    with pytest.raises(ValueError, match="no environment 'maze'"):
        family_of("maze", {})
    with pytest.raises(ValueError, match="cannot be imported"):
        family_of("no_such_module:make", {})


def test_the_command_takes_a_constructor_and_says_its_level(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])  # which the pool below knows
    monkeypatch.setattr("episafe.experiments.executors.pool_on", lambda on, workers: nullcontext(Here()))
    words = ["calibrate", "mine:certain", "--problems", "59", "--episodes", "50", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["level"] == "calibrated"
    assert shown["multiplier"] == 0.125
    few = CliRunner().invoke(app, [*words[:2], "--problems", "5"])
    assert few.exit_code == 2
