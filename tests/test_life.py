"""The life of a session: promote, withdraw, change; what stays proved, what is dropped, and how it is kept."""

import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest

import episafe as es
import episafe.deployment.session as session_module
from episafe.certify.account import Account, grid_of_means
from episafe.certify.ledger import Ledger
from episafe.errors import NotKept
from episafe.kernels.wealth import log_wealth
from episafe.problems.policy import Component
from episafe.storage.audit_trail import TRAIL
from episafe.testing.assertions import require_same_arrays
from episafe.types import HELD

B, SLACK = 0.5, 0.4
totals = es.Episode.of_totals
UTILITY = {"incumbent": 0.95, "v2": 0.9, "v3": 0.85, "bad": 0.2}


def rollout(*names, **given):
    return es.Rollout(B, SLACK, {name: [name] for name in names}, ["now"], utility_max=1.0, **given)


def live(session, num, seed=0, utility=UTILITY, reward=None):
    """So many deployments, reported at once; who acted."""
    rng, acted = np.random.default_rng(seed), []
    for _ in range(num):
        deployed = session.deploy(rng)
        acted.append(deployed.policy.name)
        total = float(rng.random() < utility[acted[-1]])
        session.learn(totals(total, (reward or {}).get(acted[-1], 0.0)), deployment=deployed.id)
    return acted


def promoted_session(folder=None, names=("v2",), **given):
    session = es.open(folder, agent=rollout(*names), **given)
    live(session, 150)
    session.promote("v2", "the release of May")
    return session


# ---- what acts


def test_a_promoted_policy_acts_when_nothing_else_may_and_the_way_back_is_open():
    session = promoted_session(false_alarm=0)
    assert session.status().promoted == "v2" and session.agent.bounds()["v2"] >= B
    session.halt("a person wants quiet")
    deployed = session.deploy(np.random.default_rng(0))
    plan = deployed.plan
    assert (deployed.policy.name, plan.id, plan.source, plan.reason) == ("v2", -1, "search", session.stopped)
    assert plan.utility_bound == session.agent.bounds()["v2"]
    session.promote("incumbent", "v2 loses orders")
    assert session.deploy(np.random.default_rng(0)).plan.source == "safe"
    session.resume_exploring("all is well")
    assert session.status().promoted == "incumbent"


@pytest.mark.parametrize("as_before", [False, True])
def test_a_folder_that_was_halted_twice_for_one_reason_opens(tmp_path, as_before):
    """The plan of the first halt was kept for the second, with the bound of then: made again it had another one."""
    with promoted_session(tmp_path, false_alarm=0) as session:
        for _ in range(3):
            session.halt("night")
            bound = session.agent.bounds()["v2"]
            live(session, 2)
            kept_plan = session._incumbent
            assert as_before or kept_plan.utility_bound == bound
            session.resume_exploring("morning")
            session._incumbent = kept_plan if as_before else session._incumbent
            live(session, 100, seed=1)
        bounds = session.agent.bounds()
    for checkpoint in tmp_path.glob("checkpoint*"):
        checkpoint.unlink()
    with es.open(tmp_path, rollout("v2"), false_alarm=0) as again:
        assert again.agent.bounds() == bounds
    assert es.audit(tmp_path, rollout("v2")).damage == []


@pytest.mark.parametrize("bounds", [[], [0.51, 0.51], [0.4], [math.nan], "higher"])
def test_a_held_plan_with_bounds_that_nobody_can_have_had_is_damage(tmp_path, monkeypatch, bounds):
    """An older bound of what was promoted is believed; it must be one, reach b, and not be above the present one."""

    def spoilt(agent, plan):
        made = figures(agent, plan)
        said = [made["bounds"][0] + 1e-6] if bounds == "higher" else bounds
        return made | ({"bounds": said} if plan.id == HELD else {})

    figures = session_module.figures
    with promoted_session(tmp_path, false_alarm=0) as session:
        monkeypatch.setattr(session_module, "figures", spoilt)
        session.halt("night")
        live(session, 2)
    for checkpoint in tmp_path.glob("checkpoint*"):
        checkpoint.unlink()
    with pytest.raises(es.DamagedFile, match="bounds of the plan"):
        es.open(tmp_path, rollout("v2"), false_alarm=0)


def test_the_old_incumbent_pays_for_later_trials():
    session = promoted_session(false_alarm=0)
    session.add_candidate("v3", ["v3"])
    mixture = session.plan().policy
    assert mixture.names == ("v3", "incumbent")
    bounds = session.agent.bounds()
    assert float(mixture.weights @ [bounds["v3"], bounds["incumbent"]]) >= B


def test_what_fails_to_plan_falls_back_to_what_was_promoted(monkeypatch):
    session = promoted_session(false_alarm=0)
    live(session, 1)
    monkeypatch.setattr(session.agent.certificate, "deployment", lambda: 1 / 0)
    plan = session.plan()
    assert plan.failed and plan.policy.names == ("v2",) and "division" in plan.reason


def test_what_is_promoted_already_may_be_promoted_again_and_its_reason_is_kept(tmp_path):
    with promoted_session(tmp_path, false_alarm=0) as session:
        bounds = session.agent.bounds()
        session.promote("v2", "the board has agreed")
        assert session.status().promoted == "v2" and session.agent.bounds() == bounds
    said = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [one["reason"] for one in said if one.get("event") == "promote"] == [
        "the release of May", "the board has agreed"
    ]  # fmt: skip
    assert es.audit(tmp_path, agent=rollout("v2")).is_whole
    with es.open(tmp_path, agent=rollout("v2"), false_alarm=0) as again:
        assert again.status().promoted == "v2" and again.agent.bounds() == bounds


def test_the_incumbent_may_always_be_promoted(tmp_path):
    cmdp = es.make("streaming")
    agent = lambda: es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))  # noqa: E731  # it has no policies on trial
    rng = np.random.default_rng(0)
    for _ in range(2):
        with es.open(tmp_path, agent=agent(), false_alarm=0) as session:
            session.learn(es.Episode([0] * 5, [0] * 4), deployment=session.deploy(rng).id)
            session.promote("incumbent", "to be sure")
            assert session.status().promoted == "incumbent"
    assert es.audit(tmp_path).is_whole and (tmp_path / "audit.jsonl").read_text().count("to be sure") == 2


def test_only_what_is_proved_is_promoted():
    session = es.open(None, agent=rollout("v2"), false_alarm=0)
    with pytest.raises(ValueError, match=r"'v2' is proved to have 0, below the threshold 0\.5: only what is certified"):
        session.promote("v2", "in a hurry")
    with pytest.raises(ValueError, match="no policy 'v9' is on trial: there are incumbent, v2"):
        session.promote("v9", "?")
    with pytest.raises(ValueError, match="reason"):
        session.promote("v2", " ")
    task = es.make("tabular").task
    session = es.open(None, agent=es.OPSE(task, es.Constants.paper("tabular")), false_alarm=0)
    with pytest.raises(ValueError, match="no policies on trial that could be promoted"):
        session.promote("v2", "?")
    with pytest.raises(ValueError, match="would not survive a change: begin a new folder"):
        session.change("?", threshold=0.1)


def test_after_an_alarm_the_incumbent_acts_whatever_was_promoted(tmp_path):
    session = promoted_session(tmp_path)
    session.halt("a person")  # v2 acts; and now it fails
    live(session, 300, utility={"v2": 0.0, "incumbent": 1.0})
    assert session.status().promoted == "incumbent" and session.monitors.alarms
    assert session.plan().source == "safe"
    session.close()
    with es.open(tmp_path, agent=rollout("v2")) as again:
        assert again.status().promoted == "incumbent"
    assert es.audit(tmp_path, agent=rollout("v2")).recomputed


def test_an_alarm_whose_demotion_was_not_written_is_heeded_by_opening(tmp_path, monkeypatch):
    session = promoted_session(tmp_path)
    session.halt("a person")
    monkeypatch.setattr(session, "distrust", lambda *_: None)  # as if the process ended just there
    live(session, 300, utility={"v2": 0.0, "incumbent": 1.0})
    assert session.agent.promoted == "v2" and session.monitors.alarms
    session._journal.sync_trail()
    session._journal.release()
    with es.open(tmp_path, agent=rollout("v2")) as again:
        assert again.status().promoted == "incumbent"


def test_after_an_alarm_nothing_is_promoted_until_a_person_lets_the_agent_go_on(tmp_path):
    session = promoted_session(tmp_path)
    session.halt("a person")
    live(session, 300, utility={"v2": 0.0, "incumbent": 1.0})
    assert session.agent.bounds()["v2"] >= B  # what is proved stays proved, if what it rests on is true
    for _ in range(2):  # also in a folder that is opened again
        with pytest.raises(ValueError, match=r"after an alarm of the monitors .* resume_exploring"):
            session.promote("v2", "the nightly job")
        session.promote("incumbent", "it acts already")
        assert session.agent.promoted == "incumbent"
        session.close()
        session = es.open(tmp_path, agent=rollout("v2"))
    session.resume_exploring("the sensor was broken")
    session.close()
    with es.open(tmp_path, agent=rollout("v2")) as session:
        session.promote("v2", "known again")
        assert session.agent.promoted == "v2"
    assert es.audit(tmp_path, agent=rollout("v2")).recomputed


# ---- withdraw


def test_a_withdrawn_candidate_is_deployed_and_proved_no_more_and_its_delta_stays_spent():
    session = promoted_session(false_alarm=0)
    rng, waiting = np.random.default_rng(3), session.deploy(np.random.default_rng(0))
    session.withdraw("v2", reason="recalled")
    assert session.agent.bounds() == {"incumbent": B + SLACK} and session.status().promoted == "incumbent"
    session.learn(totals(1.0), deployment=waiting.id)  # of before: it proves nothing any more
    assert session.deploy(rng).policy.name == "incumbent"
    session.add_candidate("v3", ["v3"])
    assert session.agent.certificate.ledger.num_candidates == 2
    assert live(session, 200).count("v3") > 100 and session.agent.bounds().keys() == {"incumbent", "v3"}
    for name, says in [("incumbent", "pays for all trials"), ("v2", "no policy 'v2' is on trial: there are")]:
        with pytest.raises(ValueError, match=says):
            session.withdraw(name, reason="?")


# ---- change


def test_bounds_survive_a_change_and_what_no_longer_reaches_the_threshold_is_named():
    session = promoted_session(false_alarm=0)
    bounds = session.agent.bounds()
    dropped = session.change("a stricter contract", threshold=0.85)
    assert session.agent.bounds() == bounds and session.task.threshold + session.task.slack == bounds["incumbent"]
    assert dropped == [f"v2 acts alone no more: its bound {bounds['v2']:.6g} is below 0.85", "v2 is promoted no more"]
    assert session.status().promoted == "incumbent"
    plan = session.plan()
    assert plan.policy.names == ("v2", "incumbent") and plan.utility_bound >= 0.85  # it is on trial again
    assert session.change("as before", threshold=B) == []
    assert session.plan().policy.names == ("v2",)


def test_the_incumbent_keeps_what_it_has_unless_somebody_states_another_slack():
    session = es.open(None, agent=rollout("v2"), false_alarm=0)
    with pytest.raises(es.Infeasible, match=r"known to have 0\.9 and the threshold would be 0\.95"):
        session.change("too much", threshold=0.95)
    with pytest.raises(es.Infeasible, match="exceeds utility_max"):
        session.change("too much", threshold=0.95, slack=0.1)
    with pytest.raises(ValueError, match="nothing would change"):
        session.change("nothing")
    with pytest.raises(ValueError, match="a rollout has no constants"):
        session.change("nothing", constants=es.Constants.proposing())
    session.change("measured anew", slack=0.45)
    assert session.agent.bounds()["incumbent"] == 0.95
    session.change("now it can be", threshold=0.94)
    assert session.task.threshold + session.task.slack <= 0.95


def test_where_the_slack_is_not_known_a_threshold_rises_to_what_is_proved_of_the_incumbent():
    agent = es.Rollout(B, None, {"v2": ["v2"]}, ["now"], utility_max=1.0)
    session = es.open(None, agent=agent, false_alarm=0)
    with pytest.raises(es.Infeasible, match=r"proved to have 0\.5 and the threshold would be 0\.6: wait"):
        session.change("?", threshold=0.6)
    with pytest.raises(ValueError, match="was not known when this began"):
        session.change("?", slack=0.1)
    live(session, 200)
    assert agent.bounds()["incumbent"] > 0.6
    session.change("proved by now", threshold=0.6)
    assert session.task.slack is None and session.plan().utility_bound >= 0.6


def test_monitors_hold_what_comes_against_the_new_threshold_and_what_was_under_way_against_nothing():
    session = promoted_session()
    before = session.deploy(np.random.default_rng(0))
    session.change("higher", threshold=0.8)
    session.learn(totals(0.0), deployment=before.id)
    assert session.monitors.status()["threshold"]["pending"] == 1  # at its best for ever
    live(session, 3)
    claimed = session.monitors.status()["threshold"]
    assert claimed["claimed"] > B and session.monitors.status()["incumbent"]["claimed"] == pytest.approx(B + SLACK)


def test_an_alarm_that_a_change_brings_is_heeded(tmp_path):
    """Reports wait for those of the deployments before them; a change waits for nobody, so that their turn comes."""
    told = []
    build = lambda: es.Rollout(B, 0.05, {}, ["now"], utility_max=1.0)  # noqa: E731
    session, rng = es.open(tmp_path, agent=build(), on_alarm=told.append), np.random.default_rng(0)
    session.deploy(rng)  # and never reported
    for k in range(400):
        session.learn(totals(1.0 if k < 200 else 0.6), deployment=session.deploy(rng).id)
    assert not session.stopped
    session.change("less", threshold=0.49)
    assert [alarm.what for alarm in told] == ["drift"] and "has changed" in session.stopped
    session._journal.release()
    assert "has changed" in es.open(tmp_path, agent=build()).stopped


def test_alarms_are_told_once_whoever_tells_them():
    class Guarded(type(es.open(None, agent=rollout()))):
        @property
        def _untold(self):
            assert not hasattr(self, "_lock") or self._lock._is_owned()
            return self._alarms

        @_untold.setter
        def _untold(self, alarms):
            assert not hasattr(self, "_lock") or self._lock._is_owned()
            self._alarms = alarms

    session = Guarded(rollout())
    session.learn(totals(1.0), deployment=session.deploy(np.random.default_rng(0)).id)


def test_the_incumbent_acts_where_what_was_promoted_cannot_be_had(tmp_path, monkeypatch):
    session = promoted_session(tmp_path)
    assert session.agent.incumbent_plan("").policy.names == ("v2",)
    monkeypatch.setattr(session.agent, "bounds", lambda: _raised(ValueError("half a row")))
    assert session.agent.incumbent_plan("").source == "safe"
    session._break("interrupted while a candidate was added")
    made = session.deploy(np.random.default_rng(0))
    assert (made.id, made.acting, made.plan.source) == (-1, "incumbent", "safe")


def test_what_fails_while_it_is_halted_is_opened_again(tmp_path, monkeypatch):
    """Another reason than the halt's was taken for a frame that cannot have been."""
    session, usual = es.open(tmp_path, agent=rollout("v2")), es.Rollout.incumbent_plan
    session.halt("night")
    tries = iter([MemoryError("no room")])
    monkeypatch.setattr(
        es.Rollout, "incumbent_plan", lambda *given: _raised(error) if (error := next(tries, None)) else usual(*given)
    )
    assert session.deploy(np.random.default_rng(0)).plan.reason == "halted: night"
    assert "no room" in session.status().faults[-1]
    session._journal.release()
    assert es.open(tmp_path, agent=rollout("v2")).status().started == 1


def _raised(error):
    raise error


# ---- kept


def history(session):
    """Everything that a life may have; the session is left open."""
    live(session, 150, 1)
    session.promote("v2", "good")
    session.add_candidate("v3", ["v3"])
    live(session, 20, 2)
    session.change("stricter", threshold=0.7)
    live(session, 60, 3)
    session.withdraw("v3", reason="recalled")
    session.halt("night")
    live(session, 5, 4)
    session.resume_exploring("morning")
    live(session, 5, 5)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_life_is_opened_again_and_audited_whole(tmp_path, checkpoint):
    session = es.open(tmp_path, agent=rollout("v2"))
    history(session)
    if checkpoint:
        session._journal.checkpoint(session.parts)
    state, status = session.agent.state(), session.status()
    live(session, 3, 6)
    ahead = session.agent.state()
    session._journal.sync_trail()
    session._journal.release()  # as a killed process leaves it
    again = es.open(tmp_path, agent=rollout("v2", "v3"))
    require_same_arrays(again.agent.state(), ahead, "it differs")
    assert again.task.threshold == 0.7 and again.status().promoted == status.promoted
    assert any(path.name.startswith("checkpoint") for path in tmp_path.iterdir()) == checkpoint
    again.close()
    found = es.audit(tmp_path, agent=rollout("v2", "v3"))
    assert found.is_whole and found.recomputed > 100
    assert found.changes == [
        "promoted v2: good", f"changed to thresholds [0.7], slacks [{again.task.slack}]: stricter",
        "withdrew v3: recalled",
    ]  # fmt: skip
    thresholds = [json.loads(line).get("threshold") for line in (tmp_path / TRAIL).read_text().splitlines()]
    assert {B, 0.7} <= set(thresholds) and thresholds.index(0.7) > thresholds.index(B)
    fresh = rollout("v2", "v3")
    fresh.restore(state)
    require_same_arrays(fresh.state(), state, "it differs")
    assert fresh.task.threshold == 0.7


def test_a_threshold_that_was_raised_to_what_is_proved_is_known_by_a_checkpoint(tmp_path):
    build = lambda: es.Rollout(B, None, {"v2": ["v2"]}, ["now"], utility_max=1.0)  # noqa: E731
    session = es.open(tmp_path, agent=build(), false_alarm=0)
    live(session, 200)
    session.change("proved by now", threshold=0.6)
    live(session, 5, 1)
    session._journal.checkpoint(session.parts)
    session._journal.release()
    again = es.open(tmp_path, agent=build(), false_alarm=0)
    assert not again.status().faults and again.task.threshold == 0.6
    require_same_arrays(again.agent.state(), session.agent.state(), "it goes on from its checkpoint")


def test_a_folder_is_opened_with_the_agent_that_it_was_begun_with(tmp_path):
    session = es.open(tmp_path, agent=rollout("v2"))
    history(session)
    session.close()
    with pytest.raises(ValueError, match="was begun with another agent or task"):
        es.open(tmp_path, agent=es.Rollout(0.7, 0.2, {"v2": ["v2"], "v3": ["v3"]}, ["now"], utility_max=1.0))


def test_a_changed_agent_goes_back_to_a_state_of_before():
    agent = rollout("v2")
    session = es.open(None, agent=agent, false_alarm=0)
    live(session, 50)
    before = agent.state()
    session.change("stricter", threshold=0.7)
    agent.restore(before)
    assert agent.task.threshold == B and agent.changes == []
    require_same_arrays(agent.state(), before, "it differs")


# ---- Observation


def observing(task):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation())


def play(session, cmdp, num, seed):
    rng, task = np.random.default_rng(seed), cmdp.task
    for _ in range(num):
        deployed = session.deploy(rng)
        states, actions = [task.initial_state], []
        for h in range(task.horizon):
            actions.append(deployed.policy.act(h, states[-1], rng))
            states.append(int(rng.choice(task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
        session.learn(es.Episode(states, actions), deployment=deployed.id)


def certified(session, cmdp):
    """The name of a proposal that is proved."""
    for seed in range(40):
        play(session, cmdp, 50, seed)
        found = [name for name, bound in session.agent.bounds().items() if bound >= session.task.threshold]
        if len(found) > 1:
            return found[1]
    raise AssertionError("nothing was certified")


def test_a_promoted_proposal_stays_on_trial_and_the_folder_is_recomputed(tmp_path):
    cmdp = es.make("tabular", seed=7)
    session = es.open(tmp_path, agent=observing(cmdp.task))
    name = certified(session, cmdp)
    session.promote(name, "nightly")
    session.change("lower, and bolder", threshold=0.9 * cmdp.task.threshold,
                   constants=session.agent.constants.replace(C_r=0.5))  # fmt: skip
    ledger = session.agent.certificate.ledger
    for _ in range(12):
        ledger.begin(es.TablePolicy(cmdp.task.safe_policy.table()), 0.0, 0.0)
    assert name in session.agent.bounds()  # nobody took its row over
    session._journal.release()
    session = es.open(tmp_path, agent=observing(cmdp.task))
    assert session.agent.promoted == name and session.agent.constants.C_r == 0.5
    play(session, cmdp, 30, 99)
    session.halt("night")
    assert session.plan().policy.names == (name,)
    session.withdraw(name, reason="it is enough")
    assert session.plan().source == "safe"
    session.resume_exploring("on with it")
    play(session, cmdp, 30, 100)
    session.close()
    found = es.audit(tmp_path)
    assert found.is_whole and found.recomputed == found.num_plans
    with pytest.raises(ValueError, match="ridge and C_theta are part of what was learned"):
        session.agent.as_change(constants=session.agent.constants.replace(ridge=3.0))
    with pytest.raises(TypeError, match="constants must be"):
        session.agent.as_change(constants={"C_r": 1.0})


def test_settings_that_were_changed_beside_an_incumbent_stay_with_it(tmp_path):
    cmdp = es.make("tabular", seed=3)
    with es.open(tmp_path, agent=observing(cmdp.task)) as session:
        session.change("lower", threshold=0.9 * cmdp.task.threshold)
    theirs = 0.9 * cmdp.task.safe_policy.table() + 0.1 / cmdp.task.num_actions
    other = replace(cmdp.task, safe_policy=es.TablePolicy(theirs))
    with pytest.raises(ValueError, match="were changed beside its incumbent: begin a new folder"):
        es.open(tmp_path, agent=observing(other), new_incumbent="ours")


def test_a_policy_in_two_rows_has_one_factor_an_episode():
    """9.B.6: with a factor for each of its shares an episode would count twice."""
    accounts = [Account(grid_of_means(0.5, 0.9, 1.0), 0.5, 0.9, 0.05, 1) for _ in range(2)]
    ledgers = [Ledger(Component("now", "incumbent"), [account]) for account in accounts]
    for ledger in ledgers:
        ledger.add(Component("v2", "v2"), 0.0)
    for k in range(30):
        for ledger, rows, shares in zip(ledgers, ([1, 1], [1]), ([0.25, 0.75], [1.0]), strict=True):
            ledger.expect(k, rows)
            ledger.credit(k, rows, shares, 0.9, 0.0)
    assert log_wealth(ledgers[0].trials, 1, 60) == log_wealth(ledgers[1].trials, 1, 60)
    assert ledgers[0].bounds() == ledgers[1].bounds() and ledgers[0].bounds()["v2"] > 0


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_candidate_that_is_deployed_before_the_next_report_does_not_lock_the_folder(tmp_path, checkpoint):
    """A plan is made because of it alone; replayed without that, its number did not come out again."""
    rng, session = np.random.default_rng(0), es.open(tmp_path, agent=rollout("v2"))
    before = session.deploy(rng)
    session.add_candidate("v3", ["v3"])
    after = session.deploy(rng)
    assert after.plan.id == before.plan.id + 1
    if checkpoint:
        session._journal.checkpoint(session.parts)
    session.close()
    with es.open(tmp_path, agent=rollout("v2", "v3")) as again:
        assert again.status().started == 2
        again.learn(totals(0.9), deployment=after.id)
    assert es.audit(tmp_path, agent=rollout("v2", "v3")).is_whole


def test_asked_again_by_its_name_nothing_acts_that_was_stopped_since():
    session, rng = es.open(None, agent=rollout("v2"), false_alarm=0), np.random.default_rng(1)
    made = next(one for k in range(50) if (one := session.deploy(rng, episode_id=k)).policy.name == "v2")
    name = str(made.id)
    assert session.deploy(rng, episode_id=name).policy.name == "v2"  # as after a lost answer
    session.halt("it smokes")
    again = session.deploy(rng, episode_id=name)
    assert (again.policy.name, again.plan.reason) == ("incumbent", "halted: it smokes") and again.id > made.id
    assert session.deploy(rng, episode_id=name).id == again.id and session.status().abandoned == 1
    session.resume_exploring("cooled down")
    made = next(one for k in range(50, 99) if (one := session.deploy(rng, episode_id=k)).policy.name == "v2")
    session.withdraw("v2", "recalled")
    assert session.deploy(rng, episode_id=made.id).policy.name == "incumbent"


def test_after_an_alarm_nobody_acts_in_what_was_deployed_before_though_a_person_lets_it_go_on():
    """What was proved is void, and the plan of before acted all the same."""
    session, rng = es.open(None, agent=rollout("v2")), np.random.default_rng(1)
    made = next(one for k in range(50) if (one := session.deploy(rng, episode_id=k)).acting == "v2")
    session.learn(totals(-0.3), deployment=session.deploy(rng).id)
    assert "outside [0, 1.0]" in session.stopped
    session.resume_exploring("Ada: a sensor")
    assert session.acting(made.id) is None
    again = session.deploy(rng, episode_id=str(made.id))
    assert again.id > made.id and again.acting == "incumbent"


def test_asked_again_by_its_name_it_is_the_same_though_others_were_answered_since():
    """A rollout plans anew with every report: whoever asked again was given another deployment."""
    session, rng = es.open(None, agent=rollout("v2"), false_alarm=0), np.random.default_rng(1)
    for k in range(30):
        made = session.deploy(rng, episode_id=f"a {k}")
        for other in range(10):
            session.learn(totals(0.9), deployment=session.deploy(rng, episode_id=f"b {k} {other}").id)
        again = session.deploy(rng, episode_id=f"a {k}")
        assert (again.id, again.acting, again.plan.id) == (made.id, made.acting, made.plan.id)
        session.learn(totals(0.9), deployment=made.id)
    assert session.status().abandoned == 0


def test_a_round_that_nobody_knows_is_refused_and_breaks_nothing():
    arms = [np.array([[0.9, 0.0], [0.3, 0.3]])] * 5
    task = es.bandits.BanditTask(2, lambda k: arms[k], 0.1, lambda k: np.array([1.0, 0.0]), 0.3, 0.1, 1.0)
    session, rng = es.open(None, es.bandits.OPLBSP(task, radius="determinant")), np.random.default_rng(0)
    with pytest.raises(ValueError, match="nothing is known of round 5, and nothing was deployed: IndexError"):
        session.deploy(rng, 5)
    assert not session.stopped and session.deploy(rng, 4).id == 0


def test_asked_again_by_its_name_the_incumbent_is_that_of_the_round():
    bandit, rng = es.bandits.make("contexts"), np.random.default_rng(0)
    session = es.open(None, es.bandits.OPLBSP(bandit.task, radius="determinant"))
    session.halt("night")
    first = session.deploy(rng, 5, "a")
    session.learn(first.policy.draw(rng), 0.5, 0.5, deployment=session.deploy(rng, 6).id)
    again = session.deploy(rng, 5, "a")
    assert np.array_equal(again.policy.draw(rng), first.policy.draw(rng)) and session.status().abandoned == 1


def test_a_withdrawal_is_obeyed_also_where_the_disk_does_not_keep_it(tmp_path):
    session = promoted_session(tmp_path / "f", false_alarm=0)
    (tmp_path / "f" / "journal.log").rename(tmp_path / "gone")
    with pytest.raises(NotKept):
        session.withdraw("v2", "it is dangerous")
    assert session.deploy(np.random.default_rng(0)).plan.source == "safe"


def test_a_changed_session_is_opened_with_another_false_alarm(tmp_path, monkeypatch):
    monkeypatch.setattr("episafe.deployment.session.CHECKPOINT_EVERY", 0.0)
    with es.open(tmp_path, agent=rollout("v2"), false_alarm=0.01) as session:
        live(session, 3)
        session.change("less will do", threshold=0.4)
        live(session, 3, seed=1)
    with es.open(tmp_path, agent=rollout("v2"), false_alarm=0.02) as session:
        assert session.status().reported == 6 and session.task.threshold == 0.4
        assert "everything is learned again" in session.status().faults[0]


# ---- where nothing can be kept


@pytest.mark.parametrize("how", ["closed", "broken", "forked"])
def test_where_nothing_can_be_kept_the_incumbent_acts_whatever_was_promoted(tmp_path, monkeypatch, how):
    """Somebody else may have opened the folder since, and withdrawn what was promoted: nobody would tell this one."""
    old, rng = promoted_session(tmp_path), np.random.default_rng(0)
    old.halt("a person")
    waiting = old.deploy(rng)
    assert waiting.acting == "v2" and old.acting(waiting.id).name == "v2"
    if how == "closed":
        old.close()
    elif how == "broken":
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            assert old.deploy(rng).acting == "incumbent"
    else:
        old._process = -1  # as it is in another process
    made = old.deploy(rng)
    assert (made.id, made.acting, made.plan.source) == (-1, "incumbent", "safe") and made.plan.reason
    assert old.acting(waiting.id) is None and old.instead("asked").source == "safe"
