"""Sessions whose reports are late, lost or repeated: what is proved, what is kept, and what it costs."""

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.certify.account import LONGEST_TAIL

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import late_reports


def observing(cmdp, delta=0.05):
    return es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation(delta))


def episode(cmdp, deployed, rng):
    action = int(rng.choice(2, p=deployed.policy.probabilities(0, 0)))
    then = int(rng.choice(3, p=cmdp.P[0, 0, action]))
    second = int(rng.choice(2, p=deployed.policy.probabilities(1, then)))
    return es.Episode([0, then, 2], [action, second], component=deployed.component)


@pytest.mark.parametrize("fault", [name for name in late_reports.FAULTS if name != "at once"])
def test_no_deployed_mixture_is_below_the_threshold(fault):
    """200 runs a fault are made by benchmarks/late_reports.py; credited as they came, these violated."""
    cmdp = late_reports.problem()
    found = [late_reports.play(cmdp, late_reports.FAULTS[fault], 200, seed) for seed in range(4)]
    assert not any(below for below, _, _ in found)


def test_a_report_beyond_the_deployments_of_its_plan_proves_nothing():
    cmdp, rng = late_reports.problem(), np.random.default_rng(0)
    agent = observing(cmdp)
    session = es.open(None, agent=agent, false_alarm=0)
    deployed = session.deploy(rng)
    said = episode(cmdp, deployed, rng)
    session.learn(said, deployment=deployed.id)
    before = [array.copy() for array in agent.certificate.ledger.trials]
    for _ in range(3):
        session.learn(said, plan_id=deployed.plan.id)
        with pytest.raises(es.InvalidEpisode, match="reported"):
            session.learn(said, deployment=deployed.id)
    for was, now in zip(before, agent.certificate.ledger.trials, strict=True):
        np.testing.assert_array_equal(was, now)
    assert session.status().unannounced == 3


def test_what_waits_is_charged_and_an_abandoned_deployment_for_ever(tmp_path):
    """The bound after k reports is that of the prefix before the first deployment that is not reported."""
    cmdp, rng = late_reports.problem(0.85), np.random.default_rng(1)
    agents = [observing(cmdp) for _ in range(2)]
    with es.open(tmp_path / "a", agent=agents[0]) as session:
        waiting = []
        for k in range(40):
            deployed = session.deploy(rng)
            said = episode(cmdp, deployed, rng)
            if k in (3, 5):
                waiting.append((deployed.id, said))
            else:
                session.learn(said, deployment=deployed.id)
        bounds = agents[0].bounds()
        session.abandon(waiting[0][0])
        assert agents[0].bounds() == bounds
        with pytest.raises(es.InvalidEpisode):
            session.learn(waiting[0][1], deployment=waiting[0][0])
        session.learn(waiting[1][1], deployment=waiting[1][0])
    with es.open(tmp_path / "a", agent=agents[1]) as session:
        assert agents[1].bounds() == agents[0].bounds()
        for ours, theirs in zip(*(agent.certificate.ledger.trials for agent in agents), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert not es.audit(tmp_path / "a", agent=observing(cmdp)).damage


def test_status_warns_before_lost_reports_hurt():
    cmdp, rng = late_reports.problem(), np.random.default_rng(2)
    session = es.open(None, agent=observing(cmdp), false_alarm=0)
    for k in range(100):
        deployed = session.deploy(rng)
        if k >= 97:  # under way
            continue
        session.learn(episode(cmdp, deployed, rng), deployment=deployed.id)
    assert session.status().warning == ""
    for _ in range(3):
        session.abandon(session.deploy(rng).id)
    assert "3 of 103 deployments have no report" in session.status().warning


def test_a_tail_that_is_longer_than_any_is_charged_and_still_exact():
    """Nothing is reported for a long time, then everything: the bounds are those of reports at once."""
    cmdp, rng = late_reports.problem(0.85), np.random.default_rng(3)
    session = es.open(None, agent=observing(cmdp), false_alarm=0)
    made = []
    for _ in range(LONGEST_TAIL + 50):
        deployed = session.deploy(rng)
        made.append((deployed.id, deployed.plan.id, episode(cmdp, deployed, rng)))
    assert {plan for _, plan, _ in made} == {0}
    for number, _, said in made:
        session.learn(said, deployment=number)
    other = observing(cmdp)
    other.plan()
    for _, _, said in made:
        other.learn(said, plan_id=0)
    assert session.agent.bounds() == other.bounds()


CERTIFIED = {
    "observation": observing,
    "fresh-data": lambda cmdp: es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.FreshData(0.05)),
    "box": lambda cmdp: es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Box(0.05)),
    "theory": lambda cmdp: es.OPSE(cmdp.task, es.Constants.theory(cmdp.task, num_episodes=1000)),
}


@pytest.mark.parametrize("name", CERTIFIED)
def test_one_at_a_time_a_report_by_its_plan_is_enough(name):
    cmdp, rng = late_reports.problem(), np.random.default_rng(6)
    by_plan, by_number = (es.open(None, agent=CERTIFIED[name](cmdp), false_alarm=0) for _ in range(2))
    for k in range(60):
        twins = [session.deploy(np.random.default_rng(k)) for session in (by_plan, by_number)]
        said = episode(cmdp, twins[0], rng)
        by_plan.learn(said, plan_id=twins[0].plan.id)
        by_number.learn(said, deployment=twins[1].id)
    assert by_plan.agent.bounds() == by_number.agent.bounds() and by_plan.status().num_missing == 0


def test_of_more_than_are_waited_for_none_counts_without_its_number():
    """300 of one plan under way, successes of the risky action reported first, by their plan, its failures never."""
    cmdp, rng = late_reports.problem(), np.random.default_rng(0)
    agent = observing(cmdp)
    session = es.open(None, agent=agent, false_alarm=0)
    for _ in range(2):
        made = [session.deploy(rng) for _ in range(LONGEST_TAIL + 60)]
        said = [(deployed.plan.id, episode(cmdp, deployed, rng)) for deployed in made]
        for plan_id, one in sorted(said, key=lambda pair: -pair[1].actions[0]):
            if one.states[1] == late_reports.GOOD:
                session.learn(one, plan_id=plan_id)
        parts = session.deploy(rng).plan.policy
        mixed = np.array(parts.weights) @ [cmdp.evaluate(one.policy)[1] for one in parts.components]
        assert mixed >= cmdp.task.threshold


def test_of_a_rollout_a_report_says_which_deployment_it_is_of_where_several_are_under_way():
    """By its plan the report of one that the incumbent was drawn for took away what a candidate's failure costs."""
    rng, agent = np.random.default_rng(0), es.Rollout(0.5, 0.4, candidates={"v2": "v2"}, incumbent="v1")
    session = es.open(None, agent=agent, false_alarm=0)
    made = [session.deploy(rng) for _ in range(8)]
    assert {one.policy.name for one in made} == {"v2", "incumbent"}
    with pytest.raises(es.InvalidEpisode, match="several deployments"):
        session.learn(es.Episode.of_totals(1.0, component=made[0].component), plan_id=made[0].plan.id)


@pytest.mark.parametrize("name", ["fresh-data", "box", "theory"])
def test_where_the_order_counts_and_several_are_under_way_a_report_says_which_it_is_of(name):
    cmdp, rng = late_reports.problem(), np.random.default_rng(6)
    session = es.open(None, agent=CERTIFIED[name](cmdp), false_alarm=0)
    first, second = session.deploy(rng), session.deploy(rng)
    with pytest.raises(es.InvalidEpisode, match="several deployments"):
        session.learn(episode(cmdp, second, rng), plan_id=second.plan.id)
    session.learn(episode(cmdp, first, rng), deployment=first.id)
    session.learn(episode(cmdp, second, rng), plan_id=second.plan.id)


def test_after_one_report_too_many_only_those_that_name_their_deployment_count():
    """By its plan, a report that is repeated would stand for the next deployment, whose own may never come."""
    cmdp, rng = late_reports.problem(), np.random.default_rng(6)
    session = es.open(None, agent=observing(cmdp), false_alarm=0)
    first = session.deploy(rng)
    said = episode(cmdp, first, rng)
    session.learn(said, plan_id=first.plan.id)
    session.learn(said, plan_id=first.plan.id)  # the planner may learn it; it proves nothing
    assert "one too many" in session.status().faults[-1]
    second = session.deploy(rng)
    proved = session.agent.bounds()
    session.learn(episode(cmdp, second, rng), plan_id=second.plan.id)
    assert session.agent.bounds() == proved and session.status().num_missing == 1
    session.learn(episode(cmdp, second, rng), deployment=second.id)
    assert session.status().num_missing == 0


def test_a_rollout_counts_no_report_for_a_deployment_that_it_is_not_of():
    """Successes of a candidate reported twice by their plan, its failures never: every run deployed it alone."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        agent = es.Rollout(0.5, 0.3, candidates={"v2": "v2"}, incumbent="v1", utility_max=1.0)
        session = es.open(None, agent=agent, false_alarm=0)
        for _ in range(80):
            for deployed in [session.deploy(rng) for _ in range(3)]:
                total = float(rng.random() < (0.35 if deployed.policy.name == "v2" else 0.8))
                for _ in range(2 if total else 0):
                    with suppress(es.InvalidEpisode):
                        said = es.Episode.of_totals(total, component=deployed.component)
                        session.learn(said, plan_id=deployed.plan.id)
        assert agent.bounds()["v2"] <= 0.35


def test_a_report_by_its_plan_has_the_component_that_was_drawn():
    rng, agent = np.random.default_rng(0), es.Rollout(0.5, 0.3, candidates={"v2": "v2"}, incumbent="v1")
    session = es.open(None, agent=agent, false_alarm=0)
    deployed = session.deploy(rng)
    with pytest.raises(es.InvalidEpisode, match="was drawn"):
        session.learn(es.Episode.of_totals(1.0, component=1 - deployed.component), plan_id=deployed.plan.id)
    session.learn(es.Episode.of_totals(1.0), plan_id=deployed.plan.id)


# ---- certificates of models


def test_a_model_of_level_theorem_learns_in_the_order_of_deployments(tmp_path):
    cmdp, rng = late_reports.problem(), np.random.default_rng(4)

    def made():
        return es.OPSE(cmdp.task, es.Constants.theory(cmdp.task, num_episodes=1000))

    agent = made()
    with es.open(tmp_path / "a", agent=agent, false_alarm=0) as session:
        deployed = [session.deploy(rng) for _ in range(4)]
        said = [episode(cmdp, one, rng) for one in deployed]
        for k, learned in ((2, 0), (1, 0), (0, 3), (3, 4)):
            session.learn(said[k], deployment=deployed[k].id)
            assert agent.num_learned == learned
        with pytest.raises(es.InvalidEpisode, match="count twice"):
            session.learn(said[0], plan_id=deployed[0].plan.id)
        lost, after = session.deploy(rng), session.deploy(rng)
        session.abandon(lost.id)
        session.learn(episode(cmdp, after, rng), deployment=after.id)
        assert agent.num_learned == 4
    again = made()
    with es.open(tmp_path / "a", agent=again, false_alarm=0) as session:
        assert again.num_learned == 4
        more = session.deploy(rng)
        session.learn(episode(cmdp, more, rng), deployment=more.id)
        assert again.num_learned == 4 and not again._reports.waiting  # and nothing is held that will never be learned
    restored = made()
    restored.restore(again.state())
    restored.expect(restored.plan(), 99)
    restored.hear(99, said[0], plan_id=0)
    assert restored.num_learned == 4


def test_a_model_of_level_theorem_learns_from_nothing_but_deployments_once_there_was_one():
    """Successes at once and failures never, none by its number: 3 of 3 such lives deployed 0.1 where b was 0.35."""
    utilities, rng = np.array([0.75, 0.1]), np.random.default_rng(9_000_000)
    task = es.bandits.BanditTask(2, np.eye(2), 0.35, [1.0, 0.0], 0.4, 0.5, 0.91)
    session = es.open(None, es.bandits.OPLBSP(task, radius="determinant", delta=0.3, replan=es.Doubling(0.1)))
    session.learn(np.array([1.0, 0.0]), 0.0, 1.0)  # a log, before the first deployment
    refused = 0
    for _ in range(300):
        plan = session.deploy(rng).plan
        assert plan.probabilities @ plan.atoms @ utilities >= 0.35
        action = plan.draw(rng)
        if rng.random() < action @ utilities:
            with pytest.raises(es.InvalidEpisode, match="say which one this is"):
                session.learn(action, 0.5, 1.0)
            refused += 1
    assert refused > 200 and session.status().reported == 1


def test_an_epoch_that_misses_an_episode_certifies_nothing():
    cmdp, rng = late_reports.problem(0.85), np.random.default_rng(5)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.FreshData(0.05))
    session = es.open(None, agent=agent, false_alarm=0)
    first = session.deploy(rng)
    length = agent.certificate._length
    for _ in range(length + 20):
        deployed = session.deploy(rng)
        session.learn(episode(cmdp, deployed, rng), deployment=deployed.id)
    assert agent.certificate.num_epochs == 1  # all are there but the first
    session.abandon(first.id)
    session.learn(episode(cmdp, deployed, rng))  # so that it plans anew
    session.deploy(rng)
    assert agent.certificate.num_epochs == 2 and agent.certificate.num_certified == 0


def test_status_warns_of_reports_that_are_overdue_and_says_all_in_one_line():
    """Seven of the first eighty never came; twenty of the last may be under way."""
    cmdp, rng = late_reports.problem(), np.random.default_rng(2)
    session = es.open(None, agent=observing(cmdp), false_alarm=0)
    for k in range(100):
        deployed = session.deploy(rng)
        if k % 11 != 5 or k >= 80:
            session.learn(episode(cmdp, deployed, rng), deployment=deployed.id)
    status = session.status()
    assert status.num_missing == status.overdue == 7
    assert "7 of 100 deployments have no report (0 abandoned; the oldest that waits: plan " in status.warning
    session.abandon(5)
    assert str(session.status()).startswith(
        "100 deployments, 93 reports, 6 missing, 1 abandoned; incumbent acts by default; 7 of 100 deployments have no"
    )


def test_status_warns_of_reports_that_name_no_deployment_and_not_of_logs():
    cmdp, rng = late_reports.problem(), np.random.default_rng(2)
    session = es.open(None, agent=observing(cmdp), false_alarm=0)
    for _ in range(3):  # a log
        deployed = es.open(None, agent=observing(cmdp)).deploy(rng)
        session.learn(episode(cmdp, deployed, rng))
    assert session.status().unannounced == 3 and session.status().warning == ""
    for _ in range(3):
        session.learn(episode(cmdp, session.deploy(rng), rng))
    said = session.status().warning
    assert said.startswith("3 reports name no deployment") and "learn(…, deployment=deployed.id)" in said


def test_status_warns_of_faults():
    cmdp, rng = es.make("inventory", 3), np.random.default_rng(0)
    session = es.open(None, agent=es.OPSE(cmdp.task))
    deployed = session.deploy(rng)
    made = cmdp.task.replay(deployed.policy, cmdp.draw_trace(rng), rng)
    session.learn(replace(made, utilities=1 - made.utilities), deployment=deployed.id)
    assert session.status().warning.startswith(
        "1 recorded under `faults`, the last: alarm of the monitors, replay: an episode"
    )
