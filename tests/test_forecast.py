"""Forecasts before a start: they follow the certificate in the mean, and say what would shorten it."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app

B, SLACK, SPREAD = 0.8, 0.1, 0.05


def totals(mean=B + SLACK, spread=SPREAD, num=400):
    """Beta utilities of the incumbent."""
    size = mean * (1 - mean) / spread**2 - 1
    return np.random.default_rng(0).beta(mean * size, (1 - mean) * size, num)


def task(slack=SLACK, threshold=B, **others):
    return es.Rollout(threshold, slack, {}, "now", utility_max=1.0, **others).task


def lived(seed):
    """Episodes until a candidate at b + ξ/3 has half of the way, which is three quarters of its own."""
    law = totals(B + SLACK / 3, SPREAD * (B + SLACK / 3) / (B + SLACK), 10_000)
    agent, rng = es.Rollout(B, SLACK, {"v2": "v2"}, "v1", utility_max=1.0), np.random.default_rng(seed)
    session = es.open(None, agent=agent, false_alarm=0)
    for k in range(3000):
        deployed = session.deploy(rng)
        if deployed.plan.policy.weights[0] >= 0.75:
            return k
        utility = rng.choice(law) if deployed.policy.name == "v2" else B + SLACK
        session.learn(es.Episode.of_totals(utility), deployment=deployed.id)
    return math.inf


def test_a_forecast_is_what_then_happens_to_such_a_candidate():
    measured = np.median([lived(seed) for seed in range(9)])
    assert measured / 1.3 < es.forecast(task(), totals(), has_candidate=True).half < 1.3 * measured


def test_slack_spread_range_and_evidence_move_it_as_they_should():
    plain = es.forecast(task(), totals())
    assert 60 < plain.first < plain.half < 1000
    assert es.forecast(task(0.15, 0.75), totals()).half < plain.half
    assert es.forecast(task(), totals(spread=0.01)).half < plain.half < es.forecast(task(), totals(spread=0.2)).half
    assert es.forecast(task(least_total=0.6), totals(spread=0.02)).half < plain.half
    assert es.forecast(task(), totals(), evidence="hindsight").half < plain.half / 2
    assert es.forecast(task(), totals(), delta=0.001).half > plain.half
    assert es.forecast(task(1e-4, 0.8999), totals(spread=0.2)).half > 1e5


def test_it_asks_whether_a_limit_is_a_total_where_the_incumbent_has_several_times_as_much():
    asks = "is that a total of an episode, and not a mean of its steps?"
    assert asks not in es.forecast(task(), totals()).why
    assert asks in es.forecast(task(0.1, 0.2), totals()).why
    two = es.Rollout([B, 0.2], [SLACK, 0.1], {}, "now", utility_max=1.0).task
    said = es.forecast(two, np.column_stack([totals(), totals()])).why
    assert "the slowest of 2 limits); the incumbent's total of constraint 1 is 0.8" in said and said.count(asks) == 1


def test_it_names_at_most_three_changes_the_best_first_and_what_they_bring_is_a_forecast_too():
    found = es.forecast(task(), totals())
    halves = [one.half for one in found.changes]
    assert 1 <= len(halves) <= 3 and halves == sorted(halves) and halves[-1] < 0.9 * found.half
    named = {one.what: one.half for one in found.changes}
    threshold = B - SLACK
    assert named[f"twice the slack (a threshold of {threshold:.4g})"] == pytest.approx(
        es.forecast(task(2 * SLACK, threshold), totals()).half
    )
    said = str(found)
    assert "half of it after about" in said and "because the slack is 0.1 above 0.8" in said and "Shorter with" in said


def test_the_tightest_of_several_constraints_decides_and_an_unknown_slack_is_the_mean():
    one = es.forecast(task(), totals(), delta=0.025)  # its share
    two = es.Rollout([B, 0.2], [SLACK, 0.7], {}, "now", utility_max=1.0).task
    assert (
        es.forecast(two, np.stack([totals(), totals()], axis=1)).half == one.half > es.forecast(task(), totals()).half
    )
    assert es.forecast(task(None), totals(), delta=0.025).half == pytest.approx(one.half, rel=0.2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"totals": [0.9] * 5}, "20 finite numbers at least"),
        ({"totals": [np.nan] * 50}, "finite"),
        ({"totals": np.ones((30, 2))}, r"shape \(n, 1\)"),
        ({"totals": totals(), "evidence": "tea"}, '"coin" or "hindsight"'),
        ({"totals": totals(), "delta": 2}, "delta must be"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        es.forecast(task(), **arguments)
    with pytest.raises(es.InvalidProblem, match="nothing can be tried"):
        es.forecast(task(None), totals(0.5))
    with pytest.raises(es.InvalidProblem, match="state a true one"):
        es.forecast(task(least_total=0.79), totals(spread=0.2))


def test_a_problem_is_played_and_preflight_says_it():
    cmdp = es.make("streaming", seed=4)
    assert es.forecast(cmdp) == es.forecast(cmdp.task, [4.0] * 20)
    shown = json.loads(CliRunner().invoke(app, ["preflight", "--env", "streaming", "--seed", "4", "--json"]).stdout)
    assert shown["forecast"]["half"] == es.forecast(cmdp).half and len(shown["forecast"]["changes"]) <= 3
    plain = CliRunner().invoke(app, ["preflight", "--env", "streaming"])
    assert "Forecast for es.OPSE(task): a tenth of the gain after about" in plain.stdout


def test_playing_the_incumbent_says_how_much_is_played():
    shares = []
    es.forecast(es.make("streaming"), on_progress=shares.append)
    assert shares == sorted(shares) and len(shares) > 10 and shares[-1] == 1.0
