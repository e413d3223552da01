"""The environments: their laws, both variants, their randomness."""

import numpy as np
import pytest

import episafe as es
from episafe.envs import ENVIRONMENTS, PAPER, options_of
from episafe.envs.paper_environments import buffer_kernel
from episafe.reports.labels import place_title
from episafe.reports.metrics import summarise
from episafe.reports.tables import to_markdown

NOT_DRAWN = ("media", "ring", "jobs", "rover", "box", "cliff", "riverswim", "queue")


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("variant", ["released", "text"])
def test_every_environment_is_a_proper_linear_problem(name, variant):
    cmdp = es.make(name, seed=3, variant=variant)
    assert cmdp.linearity_gap() < 1e-12
    np.testing.assert_allclose(cmdp.P.sum(axis=-1), 1, atol=1e-12)
    scale = 0.68 if name == "linear" else 0.6
    largest = cmdp.evaluate(cmdp.task.safe_policy)[1]
    assert cmdp.task.threshold == pytest.approx(scale * largest, rel=1e-12)
    assert cmdp.task.slack == pytest.approx((1 - scale) * largest, rel=1e-12)


def test_the_sizes_are_the_papers():
    sizes = {name: (t.num_states, t.num_actions, t.horizon, t.dim) for name in PAPER for t in [es.make(name).task]}
    assert sizes == {"tabular": (5, 3, 4, 15), "streaming": (6, 2, 4, 12), "linear": (100, 3, 4, 5)}


@pytest.mark.parametrize(("variant", "probability"), [("released", 0.1), ("text", 0.9)])
def test_tabular_rewards_are_one_with_the_probability_of_the_variant(variant, probability):
    """20,000 draws: five standard deviations are about 0.011."""
    cmdp = es.make("tabular", seed=0, variant=variant, num_states=100, num_actions=10, horizon=20)
    for g in (cmdp.task.reward, cmdp.task.utility):
        assert set(np.unique(g)) == {0.0, 1.0}
        assert abs(g.mean() - probability) < 5 * np.sqrt(0.1 * 0.9 / g.size)


@pytest.mark.parametrize(("variant", "first"), [("released", 1), ("text", 2)])
def test_streaming_reward_starts_where_the_variant_says(variant, first):
    reward = es.make("streaming", variant=variant).task.reward
    assert (reward[:, :first] == 0).all()
    assert (reward[:, first:] == 1).all()


def test_streaming_kernel_by_hand():
    P = buffer_kernel(arrival=0.7, departure=0.2, buffer_length=2)
    up, down = 0.7 * 0.8, 0.3 * 0.2
    expected = [[1 - up, up, 0], [down, 1 - up - down, up], [0, down, 1 - down]]
    np.testing.assert_allclose(P, expected, atol=1e-15)


def test_streaming_utility_is_slow_service_and_slow_is_slower():
    cmdp = es.make("streaming", seed=5)
    assert (cmdp.task.utility[:, :, 1] == 1).all()
    assert (cmdp.task.utility[:, :, 0] == 0).all()
    assert cmdp.P[0, 0, 0, 1] > cmdp.P[0, 0, 1, 1]
    assert cmdp.evaluate(cmdp.task.safe_policy)[1] == 4


def test_linear_is_rescaled_in_the_released_variant_only():
    released, text = es.make("linear", seed=2), es.make("linear", seed=2, variant="text")
    assert released.task.reward.max() == released.task.utility.max() == 1.0
    assert text.task.reward.max() < 1.0
    np.testing.assert_allclose(text.task.reward / text.task.reward.max(), released.task.reward, atol=1e-12)
    np.testing.assert_array_equal(released.P, text.P)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_seed_fixes_the_draw(name):
    np.testing.assert_array_equal(es.make(name, seed=7).P, es.make(name, seed=7).P)
    assert (es.make(name, seed=7).P != es.make(name, seed=8).P).any() == (name not in NOT_DRAWN)


def test_a_problem_without_utility_is_drawn_again_and_that_is_recorded():
    origins = [es.make("tabular", seed=s, probability_of_one=0.005).origin for s in range(20)]
    assert all(origin["redraws"] >= 0 for origin in origins)
    assert max(origin["redraws"] for origin in origins) > 0
    with pytest.raises(ValueError, match="make utility likelier"):
        es.make("tabular", probability_of_one=0.0)


def test_options_are_open_and_unknown_ones_are_refused():
    cmdp = es.make("streaming", buffer_length=9, horizon=6, threshold_scale=0.5)
    assert (cmdp.task.num_states, cmdp.task.horizon) == (10, 6)
    assert set(options_of("linear")) >= {"num_states", "num_actions", "dim", "horizon", "dirichlet", "threshold_scale"}
    with pytest.raises(ValueError, match="no option 'states'; it has num_states"):
        es.make("tabular", states=3)
    with pytest.raises(ValueError, match="no environment 'gridworld'"):
        es.make("gridworld")
    with pytest.raises(ValueError, match="variant"):
        es.make("tabular", variant="published")
    with pytest.raises(ValueError, match="threshold_scale"):
        es.make("tabular", threshold_scale=1.0)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("tabular", {"num_states": 0}, "num_states must be a whole number >= 1"),
        ("tabular", {"num_states": 2.5}, "num_states must be a whole number >= 1"),
        ("tabular", {"dirichlet": 0}, "dirichlet must be a number > 0"),
        ("tabular", {"probability_of_one": 7}, "probability_of_one must be a number in"),
        ("streaming", {"fast_rate": 0.7}, "fast_rate must be a pair"),
        ("streaming", {"fast_rate": [1.5, 1.9]}, "fast_rate must be a number in"),
        ("linear", {"dim": -1}, "dim must be a whole number >= 1"),
        ("linear", {"threshold_scale": "x"}, "threshold_scale must be a number in"),
        ("linear", {"seed": 1.5}, "seed must be a whole number"),
    ],
)
def test_bad_options_are_refused_by_name(name, option, message):
    with pytest.raises(ValueError, match=message):
        es.make(name, **option)


def test_environment_and_run_do_not_share_a_stream():
    """The same number as problem seed and run seed gives different draws."""
    problem = np.random.default_rng(4).random(8)
    streams = [np.random.default_rng(s).random(8) for s in np.random.SeedSequence(4).spawn(2)]
    for i, first in enumerate([problem, *streams]):
        for second in [problem, *streams][i + 1 :]:
            assert (first != second).all()


def test_options_and_sizes_are_part_of_what_a_record_says():
    plain, longer = es.make("tabular", seed=1), es.make("tabular", seed=1, horizon=6, num_states=np.int64(5))
    assert "options" not in plain.origin
    assert longer.origin["options"] == "horizon=6"
    assert [longer.origin[name] for name in "HSA"] == [6, 5, 3]
    assert es.make("streaming", fast_rate=[0.5, 0.9]).origin.get("options") is None
    assert es.bandits.make("ball", dim=3).origin["options"] == "dim=3"


def test_two_horizons_are_two_rows_of_a_report():
    problems = [es.make("tabular", seed, **options) for seed in range(2) for options in ({}, {"horizon": 6})]
    rows = summarise([es.run(cmdp, es.Fixed(cmdp.task, "uniform"), 3) for cmdp in problems])
    assert [(row.group.where, row.num_runs) for row in rows] == [("tabular", 2), ("tabular (horizon=6)", 2)]
    assert [place_title(row.group.place) for row in rows] == [
        "Tabular, released variant",
        "Tabular (horizon=6), released variant",
    ]
    assert "tabular (horizon=6)" in to_markdown(rows)
