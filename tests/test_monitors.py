"""Monitors: false alarms stay below their rate, what they test for is found, and what their alarms do."""

from dataclasses import replace

import numpy as np
import pytest

import episafe as es
from episafe.session.monitors import BETS, REMEDIES, Monitors
from episafe.session.monitors import __doc__ as page
from test_session import SHOP, live, play

LIMITS, CEILING = [es.Constraint(None, 0.5, 0.2, "u")], 1.0  # the incumbent reaches 0.7
MIXTURE = {"new": 0.6, "incumbent": 0.4}


def run(delta, number, rng, incumbent=0.7, plan=0.62, coin=0.6, late=None):
    """Return the monitors that raised an alarm: Bernoulli totals, mixtures with a coin, late or lost reports."""
    monitors, waiting = Monitors(LIMITS, CEILING, delta), []
    for k in range(number):
        component = "new" if rng.random() < coin else "incumbent"
        total = float(rng.random() < (incumbent if component == "incumbent" else (plan - 0.4 * incumbent) / 0.6))
        monitors.deployed(k, component, MIXTURE, np.array([0.6]))
        waiting.append((k, total))
        if late is None:
            monitors.reported(*_report(waiting.pop()))
        else:
            waiting = late(monitors, waiting)
    return {one.monitor for one in monitors.alarms()}


def _report(one):
    return one[0], np.array([one[1]])


def lose_good_news(monitors, waiting):
    """Report bad outcomes at once, good ones never."""
    for one in waiting:
        if one[1] == 0:
            monitors.reported(*_report(one))
    return []


def good_news_late(monitors, waiting):
    """Report good outcomes only when twenty of them wait."""
    bad, good = [one for one in waiting if one[1] == 0], [one for one in waiting if one[1] > 0]
    for one in bad + (good if len(good) > 20 else []):
        monitors.reported(*_report(one))
    return [] if len(good) > 20 else good


@pytest.mark.parametrize("late", [None, lose_good_news, good_news_late], ids=["at once", "lost", "late"])
def test_false_alarms_are_rarer_than_stated_whatever_decides_which_reports_arrive(late, rng):
    runs, delta = 60, 0.3
    false = sum(bool(run(delta, 300, rng, plan=0.6, late=late)) for _ in range(runs))
    assert false / runs <= delta  # the bound holds with equality in the means: the hardest case


@pytest.mark.parametrize(
    ("monitor", "change"),
    [("incumbent", {"incumbent": 0.45}), ("bound", {"plan": 0.4, "incumbent": 0.7}), ("draw", {"coin": 0.9})],
)
def test_what_is_tested_is_found(monitor, change, rng):
    found = [run(0.01, 800, rng, **change) for _ in range(10)]
    assert sum(monitor in one for one in found) >= 9


def test_the_wealth_is_the_product_of_its_factors(rng):
    monitors, totals = Monitors(LIMITS, CEILING, 0.01), rng.random(40)
    for k, total in enumerate(totals):
        monitors.deployed(k, "incumbent", {"incumbent": 1.0}, np.full(1, np.nan))
        monitors.reported(k, np.array([total]))
    gains = (0.7 - 1e-9 - totals) / 0.3
    wealth = np.cumprod(1 + np.outer(gains, BETS), axis=0).mean(axis=1)
    assert np.exp(monitors._best[0]) == pytest.approx(max(1.0, wealth.max()), rel=1e-9)
    assert monitors.figures()["incumbent"]["mean"] == pytest.approx(totals.mean())


def test_a_long_wait_keeps_memory_bounded_and_counts_at_its_best():
    monitors = Monitors(LIMITS, CEILING, 0.01)
    for k in range(3000):
        monitors.deployed(k, "incumbent", {"incumbent": 1.0}, np.full(1, np.nan))
    assert len(monitors._waiting) <= 512 and not monitors.alarms()


def test_an_alarm_halts_until_a_person_resumes_and_tells_what_to_do(rng):
    poor = es.Fixed(SHOP, "incumbent")
    session = es.open(None, poor, false_alarm=0.05)
    worst = es.Episode([0] * 5, [int(np.argmin(SHOP.task.utilities[0, h, 0])) for h in range(4)])
    for _ in range(200):
        d = session.deploy()
        session.report(d.id, worst)
        if session.status()["halted"]:
            break
    status = session.status()
    assert "incumbent: " in status["halted"] and REMEDIES["incumbent"] in status["alarms"][0]["message"]
    assert len(status["alarms"]) == 1
    session.resume(reason="the slack was measured again")
    assert not session.status()["halted"] and session.status()["monitors"]["incumbent"]["reports"] == 0


def test_a_reward_out_of_range_does_not_halt_and_a_utility_does(rng):
    session = es.open(None, es.SafeAgent(SHOP))
    d = session.deploy()
    session.report(d.id, replace(play(d, rng), rewards=[0.0, 7.0, 0.0, 0.0]))
    status = session.status()
    assert [one["monitor"] for one in status["alarms"]] == ["reward"] and not status["halted"]
    d = session.deploy()
    session.report(d.id, replace(play(d, rng), utilities=[0.0, 9.0, 0.0, 0.0]))
    assert "range: " in session.status()["halted"]
    d = session.deploy()
    assert d.name == "incumbent" and "outside [0, 4]" in d.plan.reason


def test_without_a_rate_nothing_is_tested(rng):
    session = es.open(None, es.SafeAgent(SHOP), false_alarm=0.0)
    live(session, 20, rng)
    assert session.status()["monitors"] == {}
    with pytest.raises(es.InvalidProblem, match="false_alarm"):
        es.open(None, es.SafeAgent(SHOP), false_alarm=1.5)


def test_each_monitor_is_described_with_its_rate_and_its_remedy():
    for name in REMEDIES:
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert len([cell for cell in row.split("|") if cell.strip()]) == 4
