"""`es.certify.Roomier`: a roomier policy first, where the incumbent has hardly any slack."""

import numpy as np
import pytest

import episafe as es
from episafe.runs.run import Simulation, accelerated, loop, plain_loop


def half_hearted(seed, share=0.04, **options):
    """A released problem whose incumbent takes any action in a part of the steps, so that its slack is that share."""
    cmdp = es.make("tabular", seed, **options)
    task, greedy = cmdp.task, cmdp.task.safe_policy.table()
    limits, tables = (
        np.atleast_1d(task.limits),
        [(1 - p) * greedy + p / greedy.shape[2] for p in np.linspace(0, 1, 2000)],
    )
    slacks = [np.atleast_1d(cmdp.evaluate(table)[1]) - limits for table in tables]
    last = max(i for i, slack in enumerate(slacks) if (slack / (limits + slack)).min() >= share)
    utilities, slack = [one.utility for one in task.constraints], (slacks[last] - 1e-9).tolist()
    told = {"initial_state": task.initial_state, "safe_policy": tables[last], "slack": slack}
    return es.LinearCMDP(cmdp.P, task.reward, utilities, threshold=limits.tolist(), **told)


def agent_of(cmdp, certifier=es.certify.Roomier):
    return es.OPSE(cmdp.task, certifier=certifier(0.05))


def test_with_room_enough_it_is_observation_bit_for_bit():
    cmdp = es.make("tabular", seed=1000)
    ours, theirs = (es.run(cmdp, agent_of(cmdp, one), 1_500, 1) for one in (es.certify.Roomier, es.certify.Observation))
    for name in ("reward_values", "utility_bounds", "lams", "weights"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert ours.settings["certifier"] == "roomier" and ours.settings["level"] == "theorem"


@pytest.mark.parametrize("options", [{}, {"num_constraints": 2}], ids=["one", "two"])
def test_it_proves_a_roomier_policy_first_and_gains_by_it(options):
    ratios = []
    for seed in (1000, 1001, 1003, 1004):
        cmdp = half_hearted(seed, **options)
        agent, plain = agent_of(cmdp), agent_of(cmdp, es.certify.Observation)
        assert agent.certificate.rooms.max() < 0.05
        record, other = (es.run(cmdp, one, 6_000, seed) for one in (agent, plain))
        assert 1 <= agent.certificate.num_sought <= 3 and agent.certificate.rooms.max() > 0.15
        assert not record.violating().any()
        bounds = np.array([bound for name, bound in agent.bounds().items() if name != "incumbent"])
        assert bounds.reshape(len(bounds), -1).shape[1] == cmdp.task.num_constraints
        ratios.append(record.regret()[-1] / other.regret()[-1])
    assert np.mean(ratios) < 0.9


def test_the_compiled_loop_is_the_plain_one_bit_for_bit():
    outcomes, cmdp = [], half_hearted(1001)
    for played in (plain_loop, loop):
        made = Simulation(cmdp, agent_of(cmdp), 700, 3)
        assert accelerated(made.world, agent_of(cmdp), made.columns, 0, None) is not None
        list(played(made.world, made.session, made.columns))
        outcomes.append((*made.columns.facts, made.columns.coins.weights))
    for ours, theirs in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_kept_run_goes_on_and_is_audited(tmp_path):
    cmdp = half_hearted(1001)
    whole = es.run(cmdp, agent_of(cmdp), 900, 2)
    es.run(cmdp, agent_of(cmdp), 400, 2, folder=tmp_path / "run")
    record = es.resume(tmp_path / "run", 900)
    np.testing.assert_array_equal(record.utility_bounds, whole.utility_bounds)
    audit = es.audit(tmp_path / "run")
    assert not audit.faults and not audit.damage
    agent, twin = agent_of(cmdp), agent_of(cmdp)
    es.run(cmdp, agent, 100, 2)
    assert agent.certificate.seeking
    twin.restore(agent.state())
    assert (twin.certificate.seeking, twin.certificate.num_sought) == (True, agent.certificate.num_sought)


def test_a_candidate_of_somebody_else_is_not_taken_for_a_roomier_one():
    cmdp = half_hearted(1001)
    agent = agent_of(cmdp)
    agent.plan()
    assert agent.certificate.seeking
    agent.add_candidate("mine", cmdp.optimal_policy())
    assert not agent.certificate.seeking and agent.certificate.num_sought == 1
