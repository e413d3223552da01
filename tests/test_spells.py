"""A spell below the threshold after good times: seen soon, by bettors who come in late; and no false alarms."""

import numpy as np
import pytest

import episafe as es
from episafe.kernels.confidence_sequence import BETS
from episafe.kernels.spell_wealth import EVERY, follow_spells, new_spell
from episafe.types import Episode, Plan

B, H = 0.6, 1.0


def task():
    """One step, one state, two arms; the utility is reported."""
    arms = np.ones((1, 1, 2, 1))
    return es.LinearCMDP(arms, [[[0.5, 0.5]]], [[[0.9, 0.6]]], threshold=B, safe_policy=[[[1.0, 0.0]]]).task


def lacks(utilities):
    return (B - np.asarray(utilities, dtype=np.float64)) / (H - B)


def by_definition(found, bet):
    """Σ_j w_j Π_{k = EVERY·j}^{s} (1 + λ g_k), slowly."""
    total = 0.0
    for j, start in enumerate(range(0, len(found), EVERY)):
        total += np.prod(1 + bet * found[start:]) / ((j + 1) * (j + 2))
    return total


@pytest.mark.parametrize("length", [1, 15, 16, 17, 90])
def test_the_wealth_is_what_its_definition_says(length):
    found = lacks(np.random.default_rng(length).random(length))
    spell = new_spell()
    follow_spells(spell, found, np.inf)
    np.testing.assert_allclose(spell.wealth, [by_definition(found, bet) for bet in BETS], rtol=1e-12)


def test_deployments_without_a_check_are_passed_by():
    found = lacks([0.2, 0.4, 0.1])
    alone, among = new_spell(), new_spell()
    follow_spells(alone, found, np.inf)
    follow_spells(among, np.array([np.nan, found[0], np.nan, found[1], found[2]]), np.inf)
    assert np.array_equal(alone.wealth, among.wealth) and among.counts[0] == 3


def test_false_alarms_are_no_more_often_than_stated_and_the_test_has_power():
    rng, delta, runs = np.random.default_rng(5), 0.2, 2000
    honest = np.array([_alarms(lacks(rng.random(400) < B), delta) for _ in range(runs)])
    assert honest.mean() <= delta + 3 * np.sqrt(delta * (1 - delta) / runs)
    below = np.array([_alarms(lacks(rng.random(400) < B - 0.15), delta) for _ in range(200)])
    assert below.mean() > 0.95


def _alarms(found, delta):
    spell = new_spell()
    follow_spells(spell, found, np.log(1 / delta))
    return spell.counts[1] > 0


def watched(utilities, monitors):
    plan = Plan(es.problems.policy.TablePolicy([[[0.0, 1.0]]]), "search", utility_bound=B)
    for utility in utilities:
        monitors.watch(plan, Episode([0, 0], [1], utilities=[utility]))
    return monitors


def test_a_bad_season_after_a_good_year_is_seen_when_averages_are_still_fine():
    rng = np.random.default_rng(0)
    monitors = watched(np.r_[rng.random(300) < 0.95, rng.random(150) < 0.3].astype(float), es.Monitors(task()))
    (alarm,) = monitors.alarms
    assert alarm.what == "spell" and alarm.halts and "of late" in alarm.says and 300 < alarm.after < 430
    assert monitors.status()["threshold"]["mean"] > B


def test_a_season_whose_reports_do_not_come_raises_nothing():
    rng, monitors = np.random.default_rng(0), es.Monitors(task())
    watched((rng.random(300) < 0.95).astype(float), monitors)
    plan = Plan(es.problems.policy.TablePolicy([[[0.0, 1.0]]]), "search", utility_bound=B)
    for k in range(200):
        monitors.expect(k, plan)
    for k in range(0, 200, 2):  # the failures are reported first, and the rest are abandoned
        monitors.report(k, Episode([0, 0], [1], utilities=[0.6]))
        monitors.abandon(k + 1)
    assert not monitors.alarms


def test_many_episodes_at_once_are_the_same_as_one_by_one():
    cmdp = es.make("tabular", seed=1)
    rng, H = np.random.default_rng(1), cmdp.task.horizon
    states, actions = rng.integers(0, 3, (200, H + 1)), rng.integers(0, 2, (200, H))
    one, many = es.Monitors(cmdp.task), es.Monitors(cmdp.task)
    table = np.full((H, cmdp.task.num_states, cmdp.task.num_actions), 1 / cmdp.task.num_actions)
    plan = Plan(es.problems.policy.TablePolicy(table), "search", utility_bound=0.0)
    for s, a in zip(states, actions, strict=True):
        one.watch(plan, Episode(s, a))
    many.watch_batch(states, actions, np.zeros(200), np.zeros(200, bool), np.ones(200, bool))
    np.testing.assert_allclose(one.state()["spell.wealth"], many.state()["spell.wealth"], rtol=1e-12)
