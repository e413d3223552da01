"""The environments of other papers: published optima, an independent linear program, kernels by hand, long horizons."""

import re
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.envs.random_tables import boltzmann
from episafe.types import amounts
from oracles import lp_optimum

ZOO = ("media", "ring", "jobs", "rover", "box", "cliff", "riverswim", "dirichlet", "queue", "stepmix")
PAGE = (Path(__file__).parent.parent / "docs" / "environments.md").read_text()


@pytest.mark.parametrize("name", ZOO)
def test_the_optimum_is_that_of_a_linear_program(name):
    cmdp = es.make(name, seed=2)
    task = cmdp.task
    expected = lp_optimum(cmdp.P, task.reward, task.utility, task.threshold, task.initial_state)
    assert cmdp.optimal_value() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", ZOO)
def test_there_is_something_to_gain_and_something_to_lose(name):
    """The incumbent is safe with slack and below the optimum; but for stepmix, the best policy of all is not safe."""
    cmdp = es.make(name, seed=2)
    reward, utility = cmdp.evaluate(cmdp.task.safe_policy)
    assert utility == pytest.approx(cmdp.task.threshold + cmdp.task.slack, abs=1e-12)
    assert cmdp.task.slack > 0.05
    assert cmdp.optimal_value() > reward + 0.03
    without = es.LinearCMDP(cmdp.P, cmdp.task.reward, cmdp.task.utility, None, cmdp.task.initial_state, threshold=0)
    assert (without.optimal_value() > cmdp.optimal_value() + 0.05) == (name != "stepmix")


@pytest.mark.parametrize(
    ("name", "options", "optimum", "incumbent"),
    [
        ("media", {}, 10 - 6.7467, 10 - 8.9835),  # Bura et al., costs in place of rewards
        ("media", {"limit": 10}, 10 - 5.3931, None),  # no constraint
        ("ring", {}, 2.0, 0.4),
        ("ring", {"limit": 6}, 4.0, None),
        ("jobs", {}, 9.1765, None),  # Ghosh et al. 2024
        ("cliff", {"num_rows": 3, "num_columns": 4, "horizon": 20, "limit": 1}, 20 - 6, None),  # tests of AlwaysSafe
        ("cliff", {"num_rows": 3, "num_columns": 4, "horizon": 20, "limit": 2}, 20 - 5, None),
        ("cliff", {"num_columns": 12, "horizon": 20, "limit": 20}, 20 - 13, None),
    ],
)
def test_the_optimum_is_the_published_one(name, options, optimum, incumbent):
    cmdp = es.make(name, **options)
    assert cmdp.optimal_value() == pytest.approx(optimum, abs=5e-5)
    if incumbent is not None:
        assert cmdp.evaluate(cmdp.task.safe_policy)[0] == pytest.approx(incumbent, abs=5e-5)


def test_the_largest_utility_of_jobs_is_the_published_one():
    with pytest.raises(es.errors.Infeasible, match=r"the largest utility of any policy is 4\.4997912"):
        es.make("jobs", slack=1.0)


def test_media_by_hand():
    cmdp = es.make("media")
    np.testing.assert_allclose(cmdp.P[3, 4, 0, 3:6], [0.1 * 0.8, 0.9 * 0.8 + 0.1 * 0.2, 0.9 * 0.2], atol=1e-15)
    np.testing.assert_allclose(cmdp.P[3, 0, 1, :2], [1 - 0.1 * 0.2, 0.1 * 0.2], atol=1e-15)
    assert (cmdp.task.reward[:, 0] == 0).all()
    assert (cmdp.task.reward[:, 1:] == 1).all()
    assert (cmdp.task.utility == [0, 1]).all()


def test_jobs_by_hand():
    cmdp = es.make("jobs")
    assert cmdp.task.initial_state == 9
    np.testing.assert_allclose(cmdp.P[0, 5, 1, 3:6], [0.8, 0.1, 0.1])
    np.testing.assert_allclose(cmdp.P[0, 1, 1, :2], [0.9, 0.1])
    np.testing.assert_allclose(cmdp.task.reward[:, 2, 1], [0.8, 0.8, 0.1, 0.1, 0.1, 0.1, 0.8, 0.8, 0.8, 0.8])
    np.testing.assert_allclose(cmdp.task.utility[0, [0, 1, 5]], [[0, 0], [0, 0.45], [0, 0.85]], atol=1e-15)


def test_riverswim_by_hand():
    cmdp = es.make("riverswim", num_states=4, horizon=8)
    np.testing.assert_array_equal(cmdp.P[0, :, 0], np.eye(4)[[0, 0, 1, 2]])
    expected = [[0.4, 0.6, 0, 0], [0.05, 0.6, 0.35, 0], [0, 0.05, 0.6, 0.35], [0, 0, 0.4, 0.6]]
    np.testing.assert_array_equal(cmdp.P[7, :, 1], expected)
    np.testing.assert_array_equal(cmdp.task.reward[0], [[0.005, 0], [0, 0], [0, 0], [0, 1]])


def test_queue_by_hand():
    """Service 0.5 and admission 0.9 are levels 2 and 2, action 8; a full buffer lets nobody in."""
    cmdp = es.make("queue")
    np.testing.assert_allclose(cmdp.P[0, 2, 8, 1:4], [0.5 * 0.1, 0.5, 0.9 * 0.5], atol=1e-15)
    np.testing.assert_allclose(cmdp.P[0, 0, 8, :2], [1 - 0.9 * 0.5, 0.9 * 0.5], atol=1e-15)
    np.testing.assert_allclose(cmdp.P[0, 5, 8, 4:], [0.5, 0.5], atol=1e-15)
    np.testing.assert_allclose(cmdp.task.utility[0, [0, 5], 8], [0.9, 0])
    np.testing.assert_allclose(cmdp.task.reward[0, :, 3], [1, 0.8, 0.6, 0.4, 0.2, 0])


def test_the_queue_has_a_second_constraint_on_the_service():
    one, two = es.make("queue"), es.make("queue", num_constraints=2)
    assert two.task.constraint_names == ("throughput", "service")
    np.testing.assert_array_equal(two.task.constraints[0].utility, one.task.utility)
    np.testing.assert_allclose(two.task.constraints[1].utility[0, 3, [0, 8]], [0.9, 0.5])
    reward, utilities = two.evaluate(two.task.safe_policy)
    assert (utilities >= two.task.limits + 2.5 - 1e-9).all()
    assert reward < two.optimal_value() < one.optimal_value() + 1e-9
    with pytest.raises(ValueError, match="num_constraints must be 1 or 2"):
        es.make("queue", num_constraints=3)
    with pytest.raises(ValueError, match=r"no policy has slack 2\.5 above the threshold 20 and 2\.5 above"):
        es.make("queue", num_constraints=2, effort=0.1)


def test_rover_by_hand():
    """One row: start, a free cell, a pit, the goal. States are the cells in order; moves are up, down, left, right."""
    cmdp = es.make("rover", grid=("S.PG",), horizon=10, slip=0.2, slack=0.1)
    slipped = 0.2 / 4
    np.testing.assert_allclose(cmdp.P[0, 1, 3], [slipped, 2 * slipped, 0.85, 0], atol=1e-15)
    np.testing.assert_allclose(cmdp.P[0, 0, 2], [1 - slipped, slipped, 0, 0], atol=1e-15)
    np.testing.assert_allclose(cmdp.P[0, 2:, 0], np.eye(4)[2:], atol=1e-15)
    np.testing.assert_allclose(cmdp.task.reward[0, :, 3], [0, 0.85, 0.1, 0.1], atol=1e-15)
    np.testing.assert_allclose(cmdp.task.utility[0, :, 3], [1, 1 - 0.85, 1 - 0.1, 1], atol=1e-15)


def test_the_limit_of_the_rover_binds_only_where_pits_pay():
    """As in the released code; by the rule that only the goal pays, the best rover of all has cost 0.09."""
    careful = es.make("rover", pit_reward=0.0)
    assert careful.evaluate(careful.optimal_policy())[1] == pytest.approx(30 - 0.0898, abs=1e-4)


def test_a_box_is_pushed_and_gets_stuck():
    """Without slips: the short way of five moves, the box in a corner from the first on, and the long way of seven."""
    cmdp = es.make("box", slip=0.0, limit=0.05, slack=0.05 - 1e-3)
    assert cmdp.task.num_states == 60
    assert cmdp.evaluate(cmdp.optimal_policy())[1] == pytest.approx(30 - 0.05, abs=1e-9)
    short, long = 1 + 25 / 30, 1 + 23 / 30
    assert cmdp.optimal_value() == pytest.approx(0.95 * long + 0.05 * short, abs=1e-9)


def test_dirichlet_signals_are_opposed_so_that_the_optimum_is_known():
    """V^r + V^u = H, and the largest V^r with V^u ≥ b is H − b."""
    cmdp = es.make("dirichlet", seed=4)
    np.testing.assert_array_equal(cmdp.task.reward + cmdp.task.utility, 1)
    assert abs(cmdp.task.reward.mean() - 0.5) < 5 * 0.5 / np.sqrt(cmdp.task.reward.size)
    assert cmdp.optimal_value() == pytest.approx(10 - cmdp.task.threshold, abs=1e-9)
    assert cmdp.evaluate(cmdp.task.safe_policy)[1] == pytest.approx(2 * cmdp.task.threshold, abs=1e-9)


def test_stepmix_has_one_signal_and_a_boltzmann_incumbent():
    cmdp = es.make("stepmix", seed=5, sharpness=10.0)
    np.testing.assert_array_equal(cmdp.task.reward, cmdp.task.utility)
    policy, value = boltzmann(cmdp.P, cmdp.task.reward, 10.0)
    np.testing.assert_array_equal(cmdp.task.safe_policy.table(), policy)
    assert cmdp.evaluate(policy)[0] == pytest.approx(value[0], abs=1e-12)
    Q = cmdp.task.reward[2]  # at the last step
    np.testing.assert_allclose(policy[2, 1] / policy[2, 1, 0], np.exp(10 * (Q[1] - Q[1, 0])))
    sharpest = boltzmann(cmdp.P, cmdp.task.reward, 1e6)[1][0]
    assert sharpest == pytest.approx(cmdp.optimal_value(), abs=1e-9)


def test_stepmix_draws_again_until_the_incumbent_has_slack():
    origins = [es.make("stepmix", seed=seed, slack=0.3).origin["redraws"] for seed in range(10)]
    assert max(origins) > 0
    with pytest.raises(ValueError, match="lower threshold or slack"):
        es.make("stepmix", threshold=2.9)


def test_a_homogeneous_stepmix_has_one_step():
    cmdp = es.make("stepmix", num_states=4, num_actions=2, threshold=1.5, time_homogeneous=True)
    assert cmdp.task.time_homogeneous
    np.testing.assert_array_equal(cmdp.task.reward[0], cmdp.task.reward[2])


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("media", {"num_states": 15, "horizon": 30}, (15, 2, 30)),
        ("ring", {"num_states": 8, "horizon": 20}, (8, 2, 20)),
        ("jobs", {"num_jobs": 14, "horizon": 20}, (15, 2, 20)),
        ("rover", {"grid": ("S..", ".P.", "..G"), "horizon": 12}, (9, 4, 12)),
        ("box", {"grid": ["S...", ".X..", "...G"], "horizon": 12, "limit": 0.3, "slack": 0.1}, (132, 4, 12)),
        ("cliff", {"num_rows": 5, "num_columns": 5}, (22, 4, 15)),
        ("riverswim", {"num_states": 12, "horizon": 40}, (12, 2, 40)),
        ("dirichlet", {"num_states": 7, "num_actions": 4, "horizon": 5, "slack": 0.5}, (7, 4, 5)),
        ("queue", {"buffer_length": 8, "num_levels": 2, "horizon": 30}, (9, 4, 30)),
        ("stepmix", {"num_states": 6, "num_actions": 4, "horizon": 4}, (6, 4, 4)),
    ],
)
def test_sizes_are_open(name, options, sizes):
    task = es.make(name, **options).task
    assert (task.num_states, task.num_actions, task.horizon) == sizes


@pytest.mark.parametrize("name", [name for name in ZOO if name not in ("dirichlet", "stepmix")])
def test_the_learner_is_told_that_steps_are_alike_where_asked(name):
    assert es.make(name, time_homogeneous=True).task.time_homogeneous
    assert not es.make(name).task.time_homogeneous


@pytest.mark.parametrize("name", ["media", "jobs", "dirichlet"])
def test_slack_is_that_of_the_incumbent(name):
    assert es.make(name, slack=0.25).task.slack == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("media", {"num_states": 0}, "num_states must be a whole number >= 1"),
        ("media", {"fast_rate": 1.5}, r"fast_rate must be a number in \[0, 1\]"),
        ("media", {"limit": 11}, r"limit must be a number in \[0, 10\]"),
        ("media", {"slack": 7}, "no policy has slack 7 above the threshold 5: .* largest utility of any policy is 10"),
        ("ring", {"slack": -1}, "slack must be a finite number > 0"),
        ("jobs", {"done": (0.5, 0.6, 0.1)}, "done must be three probabilities that sum to 1"),
        ("riverswim", {"num_states": 1}, "num_states must be at least 2"),
        ("rover", {"grid": ("SG", "...")}, "grid must be rows of one length"),
        ("rover", {"grid": ("S?G",)}, r"grid\[0\]\[1\] is '\?': use one of S, G"),
        ("rover", {"grid": ("SSG",)}, "grid has 2 cells 'S': give one"),
        ("box", {"grid": ("S.G",)}, "grid has 0 cells 'X': give one"),
        ("cliff", {"num_rows": 2}, "num_rows and num_columns must be at least 3"),
        ("queue", {"service": (0.9, 0.1)}, "service must be a number in"),
        ("queue", {"throughput": 0.9}, "no policy has slack"),
        ("dirichlet", {"dirichlet": 0}, "dirichlet must be a number > 0"),
        ("stepmix", {"sharpness": -1}, "sharpness must be a number > 0"),
        ("stepmix", {"time_homogeneous": "yes"}, "time_homogeneous must be True or False"),
    ],
)
def test_bad_options_are_refused_by_name(name, option, message):
    with pytest.raises(ValueError, match=message):
        es.make(name, **option)


LONG = {
    "media": {},
    "ring": {},
    "jobs": {},
    "riverswim": {},
    "queue": {},
    "cliff": {},
    "rover": {},
    "box": {"slack": 0.04},
}


@pytest.mark.parametrize("name", LONG)
def test_a_hundred_steps_are_no_trouble(name):
    cmdp = es.make(name, horizon=100, **LONG[name])
    agents = [
        es.OPSE(cmdp.task, es.Constants.paper("tabular")),
        es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation()),
    ]
    for agent in agents:
        record = es.run(cmdp, agent, 20)
        assert record.violation()[-1] == 0
        assert np.isfinite(record.reward_values).all()


def figures(name, **options):
    """A row of docs/environments.md: sizes, optimum, the incumbent's values, the threshold."""
    cmdp = es.make(name, **options)
    task, (reward, utility) = cmdp.task, cmdp.evaluate(cmdp.task.safe_policy)
    sizes = f"{task.num_states} | {task.num_actions} | {task.horizon}"
    kept, limits = (", ".join(f"{one:.4f}" for one in amounts(values)) for values in (utility, task.limits))
    return f"{sizes} | {cmdp.optimal_value():.4f} | {reward:.4f} | {kept} | {limits}"


@pytest.mark.parametrize("name", es.envs.ENVIRONMENTS)
def test_the_page_has_the_figures(name):
    row = re.search(rf"^\| `{name}` \| (.*?) \|[^|]*\|$", PAGE, flags=re.MULTILINE)
    assert row is not None, f"give docs/environments.md the row | `{name}` | {figures(name)} | where it is from |"
    assert row[1] == figures(name)
