"""Policies: components and names, draws, pickles."""

import pickle

import numpy as np
import pytest

import episafe as es
from episafe.envs.large_linear import huge
from episafe.problems.policy import Component, FunctionPolicy, as_policy


def certified(problem, num_episodes=150):
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())
    es.run(problem, agent, num_episodes)
    return agent


def half(h, state):
    return [0.5, 0.5]


def test_a_plain_policy_draws_itself_and_tosses_no_coin():
    rng, untouched = np.random.default_rng(0), np.random.default_rng(0)
    for policy in (
        es.make("tabular").task.safe_policy,
        FunctionPolicy(half, 2),
        Component(FunctionPolicy(half, 2), "x"),
    ):
        assert policy.draw(rng) == (0, policy)
        assert policy.components == (policy,) and policy.weights.tolist() == [1.0]
    assert rng.random() == untouched.random()
    assert policy.name == "x" and FunctionPolicy(half, 2).name == ""


def test_a_component_acts_as_its_policy_does():
    inner = FunctionPolicy(half, 2)
    index, component = es.MixturePolicy((inner, inner), (0.0, 1.0), ("a", "b")).draw(np.random.default_rng(0))
    assert (index, component.name, component.policy) == (1, "b", inner)
    np.testing.assert_array_equal(component.probabilities(0, 0), [0.5, 0.5])
    acts = [each.act(0, 0, np.random.default_rng(7)) for each in (component, inner)]
    assert acts[0] == acts[1]
    with pytest.raises(es.InvalidProblem, match="names"):
        es.MixturePolicy((inner, inner), (0.5, 0.5), ("a",))


def test_a_policy_of_somebody_else_becomes_one_of_ours():
    class Theirs:
        def probabilities(self, h, state):
            return np.array([0.25, 0.75])

    ours = as_policy(Theirs())
    assert ours.draw(np.random.default_rng(0)) == (0, ours)
    assert {ours.act(0, 0, np.random.default_rng(seed)) for seed in range(20)} == {0, 1}


def test_certified_mixtures_name_their_components_also_when_restored():
    cmdp = es.make("tabular", seed=3)
    agent = certified(cmdp)
    plan = agent.plan()
    assert plan.policy.names == (f"proposal-{agent.certificate.ledger.num_candidates}", "incumbent")
    again = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
    again.restore(agent.state())
    assert again.plan().policy.names == plan.policy.names
    assert [policy and policy.name for policy in again.certificate.ledger.policies] == [
        policy and policy.name for policy in agent.certificate.ledger.policies
    ]


@pytest.mark.parametrize("name", ["tabular", "linear", "huge"])
def test_policies_survive_a_pickle(name):
    problem = huge(1_000) if name == "huge" else es.make(name, seed=1)
    mixture = certified(problem, 3).plan().policy
    again = pickle.loads(pickle.dumps(mixture))
    assert again.names == mixture.names and again.weights.tolist() == mixture.weights.tolist()
    for ours, theirs in zip(mixture.components, again.components, strict=True):
        for h in range(problem.task.horizon):
            for state in (problem.task.initial_state, 3, 4):
                np.testing.assert_array_equal(ours.probabilities(h, state), theirs.probabilities(h, state))
        if name != "huge":
            np.testing.assert_array_equal(ours.table(), theirs.table())


def test_a_table_is_read_only_after_a_pickle():
    again = pickle.loads(pickle.dumps(es.make("tabular").task.safe_policy))
    with pytest.raises(ValueError, match="read-only"):
        again.table()[0, 0, 0] = 1


def test_reprs_are_one_short_line():
    cmdp, unlisted = es.make("tabular", seed=1), huge(1_000)
    agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"))
    made = es.Constants.theory(cmdp.task, 100)
    records = [es.run(cmdp, agent, 5), es.run(unlisted, es.Fixed(unlisted.task, "incumbent"), 5)]
    for shown in (cmdp, cmdp.task, unlisted, unlisted.task, cmdp.task.constraint, made, agent.constants, *records):
        text = repr(shown)
        assert text.startswith(type(shown).__name__ + "(")
        assert len(text) <= 200 and "\n" not in text
    assert "H=4, S=5, A=3" in repr(cmdp) and "regret=" in repr(records[0])


def test_the_package_says_its_version():
    assert es.__version__ == records_version()


def records_version():
    cmdp = es.make("tabular")
    return es.run(cmdp, es.Fixed(cmdp.task, "incumbent"), 1).settings["episafe_version"]


@pytest.mark.parametrize("state", [1.5, False, np.True_, "x", None, -1, 3])
def test_a_table_is_asked_at_the_number_of_a_state(state):
    table = es.TablePolicy(np.full((2, 3, 2), 0.5))
    assert table.probabilities(0, np.int8(2)).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"state must be a whole number in \[0, 3\), got"):
        table.probabilities(0, state)


def test_a_coin_that_is_tossed_at_once_falls_as_one_after_another():
    luck = np.random.default_rng(3)
    for _ in range(50):
        weights = luck.dirichlet(np.ones(4)) * (luck.random(4) < 0.7) + [0.0, 0.0, 0.0, 1e-9]
        mixture = es.MixturePolicy([es.TablePolicy(np.ones((1, 1, 1)))] * 4, weights / weights.sum(), list("abcd"))
        rng = np.random.default_rng(7)
        assert mixture.toss(np.random.default_rng(7), 40).tolist() == [mixture.draw(rng)[0] for _ in range(40)]
