"""What the certifiers' proofs assume: kept where it can be, refused where it is seen to be false."""

import numpy as np
import pytest

import episafe as es
from episafe.certify.base import Deployable


def chain(threshold=0.6):
    """Action 0 leads to the good state with 0.9, action 1, which pays, with 0.5."""
    P = np.zeros((2, 3, 2, 3))
    P[0, :, 0], P[0, :, 1], P[1] = [0, 0.9, 0.1], [0, 0.5, 0.5], [1, 0, 0]
    utility, reward = np.zeros((2, 3, 2)), np.zeros((2, 3, 2))
    utility[1, 1], reward[0, :, 1] = 1, 1
    return es.LinearCMDP(P, reward, utility, threshold=threshold)


def certified(task, certifier=None):
    return es.OPSE(task, es.Constants.proposing(), certifier=certifier or es.certify.Observation(0.05))


def test_runs_of_one_agent_draw_new_numbers():
    """With the same draws in each of 100 runs, more than half of the episodes of this chain violate."""
    cmdp = chain()
    agent = certified(cmdp.task)
    records = [es.run(cmdp, agent, 100) for _ in range(100)]
    assert sum(int(record.violating().sum()) for record in records) == 0
    assert np.any(records[1].components != records[2].components)


def test_utilities_come_with_every_episode_or_with_none():
    cmdp = chain()
    agent = certified(cmdp.task)
    states, actions = [0, 1, 0], [0, 0]
    for utilities, fine in (([0.0, 1.0], True), (None, False), ([0.0, 0.5], True)):
        plan = agent.plan()
        episode = es.Episode(states, actions, utilities=utilities, component=0)
        if fine:
            agent.learn(episode, plan_id=plan.id)
        else:
            with pytest.raises(es.InvalidEpisode, match="with every episode, or with none"):
                agent.learn(episode, plan_id=plan.id)


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (es.Episode([1, 1, 0], [0, 0]), "fixed start 0"),
        (es.Episode([0, 1, 0], [0, 0], utilities=[0.0, 0.3]), "needs a known utility"),
    ],
)
def test_fresh_data_refuses_what_contradicts_the_task(episode, message):
    agent = certified(chain().task, es.certify.FreshData(0.05))
    with pytest.raises(es.InvalidEpisode, match=message):
        agent.learn(episode, plan_id=agent.plan().id)


def test_an_overstated_slack_is_refused():
    cmdp = chain()
    told = es.Task(
        2, 3, 2, cmdp.task.reward, None, 0, es.Constraint(cmdp.task.utility, 0.6, 0.39), cmdp.task.safe_policy
    )
    with pytest.raises(es.Infeasible, match="correct the slack"):
        es.run(cmdp, certified(told), 10)


def test_features_that_are_not_linear_are_refused():
    cmdp = chain()
    world = es.LinearCMDP(
        cmdp.P, cmdp.task.reward, cmdp.task.utility, phi=np.ones((3, 2, 1)), threshold=0.6, slack=0.3,
    )  # fmt: skip
    with pytest.raises(es.Infeasible, match="not linear"):
        es.run(world, certified(world.task, es.certify.FreshData(0.05)), 10)


def test_long_episodes_do_not_lose_their_shares():
    """600 steps of 8 actions: a product of probabilities would be 0."""
    H, A = 600, 8
    P, zeros = np.ones((H, 1, A, 1)), np.zeros((H, 1, A))
    utility = np.ones((H, 1, A))
    utility[:, :, 0] = 0.5
    cmdp = es.LinearCMDP(P, zeros, utility, threshold=300, safe_policy=np.full((H, 1, A), 1 / A))
    agent = certified(cmdp.task)
    es.run(cmdp, agent, 5)
    assert np.all(np.isfinite(agent.certificate.ledger.trials.products))
    agent.learn(es.Episode([0] * (H + 1), [0] * H, component=0), plan_id=agent.plan().id)
    assert np.all(np.isfinite(agent.certificate.ledger.trials.products))


def test_a_small_slack_still_explores():
    """(1−ε)^H L ≥ b in spite of rounding, for many small slacks."""
    for seed in range(20):
        cmdp = es.make("tabular", seed)
        threshold = cmdp.task.threshold
        told = es.Constraint(cmdp.task.utility, threshold, 1e-5)
        task = es.Task(
            cmdp.task.horizon, cmdp.task.num_states, cmdp.task.num_actions, cmdp.task.reward, None,
            cmdp.task.initial_state, told, cmdp.task.safe_policy,
        )  # fmt: skip
        assert certified(task, es.certify.FreshData(0.05)).plan().source == "search"


def test_the_level_is_the_certifiers_own():
    class Trusting:
        name = "trusting"

        def begin(self, task):
            class Certificate:
                is_due = wants_candidate = lambda self: False

                def deployment(self):
                    return Deployable(task.safe_policy, "search", 0.0, task.threshold)

            return Certificate()

        def settings(self):
            return {}

    agent = certified(chain().task, Trusting())
    assert agent.plan().level == agent.settings()["level"] == "heuristic"


def test_the_statement_is_the_certifiers_own():
    task = chain().task
    agent = es.OPSE(task, es.Constants.theory(task, 100), certifier=es.certify.Observation(0.05))
    assert "mixture" in agent.settings()["statement"] and "features" not in agent.settings()["statement"]
    assert agent.settings()["slack"] == task.slack


def test_where_proposing_fails_the_incumbent_acts(monkeypatch):
    cmdp = chain()
    agent = certified(cmdp.task)
    agent.plan()

    def fail():
        raise FloatingPointError

    monkeypatch.setattr(agent, "consider_candidate", fail)
    with pytest.warns(RuntimeWarning, match="30 of 30 episodes, because planning failed"):
        record = es.run(cmdp, agent, 30)
    assert np.all(record.sources == "safe") and record.violation()[-1] == 0


@pytest.mark.parametrize("certifier", [es.certify.Box(0.05), es.certify.FreshData(0.05)])
@pytest.mark.parametrize("false_alarm", [0.01, 0])
def test_a_utility_that_the_task_tells_falsely_halts(certifier, false_alarm):
    """The report was refused, and what had been proved by the false utility was deployed on and on."""
    P, reward = np.ones((2, 1, 2, 1)), np.tile([0.0, 1.0], (2, 1, 1))
    cmdp = es.LinearCMDP(P, reward, np.full((2, 1, 2), 0.9), threshold=1.6, safe_policy=1 - reward, slack=0.1)
    session, rng = (
        es.open(None, es.OPSE(cmdp.task, certifier=certifier), false_alarm=false_alarm),
        np.random.default_rng(0),
    )
    deployed = session.deploy(rng)
    for _ in range(2):
        with pytest.raises(es.InvalidEpisode, match=r"sum to 0\.2, and to 1\.8 by the task"):
            session.learn(es.Episode([0, 0, 0], [1, 1], utilities=[0.1, 0.1]), deployment=deployed.id)
    assert session.stopped.startswith("halted: the utilities sum to") and session.deploy(rng).plan.source == "safe"
    assert len(session.status().faults) == 1  # halted already
    with pytest.raises(es.InvalidEpisode, match="totals alone"):  # it broke a session under `Box`
        session.learn(es.Episode.of_totals(1.8), deployment=deployed.id)
    assert not session.broken
