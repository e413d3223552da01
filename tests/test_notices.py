"""Being told: log records with stable names, callbacks that cannot break a session, figures for Prometheus."""

import logging

import numpy as np
import pytest

import episafe as es
from episafe import metrics
from episafe.deployment.notices import EVENTS

totals = es.Episode.of_totals


def rollout():
    return es.Rollout(0.5, 0.4, {"v2": ["v2"]}, ["now"], utility_max=1.0)


def live(session, num, utility=lambda name: 1.0):
    rng = np.random.default_rng(0)
    for _ in range(num):
        deployed = session.deploy(rng)
        session.learn(totals(utility(deployed.policy.name)), deployment=deployed.id)


def test_every_event_is_a_record_with_a_stable_name(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "episafe.session")
    session = es.open(tmp_path, agent=rollout())
    live(session, 120)
    session.promote("v2", "good\nvery good")
    session.change("stricter", threshold=0.6)
    session.withdraw("v2", reason="recalled")
    session.halt("night")
    session.resume_exploring("morning")
    session.abandon(session.deploy(np.random.default_rng(0)).id)
    live(session, 500, lambda name: 0.0)
    session._break("the disk is full")
    told = {record.event for record in caplog.records}
    assert told == EVENTS.keys()
    by_event = {record.event: record for record in caplog.records}
    assert by_event["promote"].getMessage() == "promote name=v2 reason=good very good"
    assert by_event["change"].details["dropped"] == [] and by_event["change"].details["thresholds"] == [0.6]
    assert by_event["alarm"].levelno == by_event["halt"].levelno == logging.ERROR


def test_callbacks_are_told_once_it_is_kept_and_in_order():
    plans, reports, alarms = [], [], []
    session = es.open(None, agent=rollout(), on_plan=plans.append, on_report=reports.append, on_alarm=alarms.append)
    live(session, 5)
    assert [deployed.id for deployed in plans] == [reported.deployment for reported in reports] == list(range(5))
    assert reports[0].report[0].total_utility == 1.0 and reports[0].plan_id == plans[0].plan.id
    live(session, 60, lambda name: 0.0)
    assert alarms == session.monitors.alarms and alarms[0].halts and session.stopped
    with pytest.raises(TypeError, match="on_plan must be a function"):
        es.open(None, agent=rollout(), on_plan=3)


def test_what_a_callback_raises_is_logged_and_breaks_nothing(tmp_path, caplog):
    def fails(told):
        raise RuntimeError("the dashboard is down")

    session = es.open(tmp_path, agent=rollout(), on_plan=fails, on_report=fails, on_alarm=fails)
    live(session, 60, lambda name: 0.0)
    status = session.status()
    assert (status.started, status.reported) == (60, 60) and not session.broken and session.stopped
    failed = [record for record in caplog.records if record.event == "callback"]
    assert len(failed) == 120 + len(session.monitors.alarms) and "the dashboard is down" in failed[0].getMessage()
    session.close()
    assert es.audit(tmp_path, agent=rollout()).is_whole


def test_a_callback_may_use_the_session():
    session = None

    def stops(deployed):
        if deployed.id == 3:
            session.halt("enough")

    session = es.open(None, agent=rollout(), on_plan=stops)
    live(session, 6)
    assert session.stopped == "halted: enough"


def test_metrics_say_what_the_session_knows():
    session = es.open(None, agent=rollout())
    assert "episafe_bound" not in metrics.text(session).replace("# ", "")  # nothing is deployed yet
    live(session, 5)
    session.deploy(np.random.default_rng(0))
    said = metrics.text(session, {"shop": "north"})
    lines = dict(line.rsplit(" ", 1) for line in said.splitlines() if not line.startswith("#"))
    assert lines['episafe_deployments_total{shop="north"}'] == "6.0"
    assert lines['episafe_reports_total{shop="north"}'] == "5.0" and lines['episafe_missing{shop="north"}'] == "1.0"
    plan = session.last_plan
    assert float(lines['episafe_bound{constraint="utility",shop="north"}']) == plan.utility_bound >= 0.5
    assert float(lines['episafe_threshold{constraint="utility",shop="north"}']) == 0.5
    share = float(lines['episafe_incumbent_share{shop="north"}'])
    assert share == plan.policy.weights[plan.policy.names.index("incumbent")]
    assert lines['episafe_promoted{policy="incumbent",shop="north"}'] == "1.0"
    live(session, 60, lambda name: 0.0)
    assert 'episafe_alarm{monitor="incumbent"} 1.0' in metrics.text(session)
    assert "episafe_stopped 1.0" in metrics.text(session) and "episafe_incumbent_share 1.0" in metrics.text(session)


def test_a_registry_asks_until_it_is_told_not_to():
    from prometheus_client import CollectorRegistry, generate_latest

    registry, session = CollectorRegistry(), es.open(None, agent=rollout())
    made = metrics.register(session, registry=registry)
    live(session, 2)
    assert b"episafe_deployments_total 2.0" in generate_latest(registry)
    registry.unregister(made)
    assert b"episafe" not in generate_latest(registry)


def test_a_held_deployment_is_not_asked_for_again_once_something_else_acts_by_default():
    session = es.open(None, agent=rollout(), false_alarm=0)
    live(session, 120)
    session.halt("night")
    deployed = session.deploy(np.random.default_rng(0))
    assert session.acting(deployed.id) is not None
    session.promote("v2", "good")
    assert session.acting(deployed.id) is None
