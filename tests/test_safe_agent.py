"""SafeAgent: the interface of the agent that proposes and certifies."""

import inspect

import numpy as np
import pytest

import episafe as es
from episafe.core.agent import Agent, Candidate, Proposer


@pytest.fixture
def cmdp():
    return es.make("tabular", seed=0)


def play(agent, cmdp, num_episodes, seed=0):
    """Deploy and report episodes by hand, with the exact kernel; return the last plan."""
    rng, task = np.random.default_rng(seed), cmdp.task
    for _ in range(num_episodes):
        plan = agent.plan()
        component, policy = plan.policy.draw(rng) if isinstance(plan.policy, es.Mixture) else (None, plan.policy)
        states, actions = [task.initial_state], []
        for h in range(task.horizon):
            actions.append(policy.act(h, states[-1], rng))
            states.append(int(rng.choice(task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
        agent.learn(es.Episode(states, actions, component=component), plan.id)
    return plan


def test_interfaces_are_small_and_complete():
    own = [name for name, _ in inspect.getmembers(Agent, inspect.isfunction) if not name.startswith("_")]
    assert len(own) <= 12
    assert Agent.__abstractmethods__ == {"decide", "observe"}


def test_each_plan_is_a_deployment_and_is_reported_once(cmdp):
    agent = es.SafeAgent(cmdp)
    first, second = agent.plan(), agent.plan()
    assert (first.id, second.id) == (0, 1)
    states = [cmdp.task.initial_state] * 5
    acted = second.policy.components if isinstance(second.policy, es.Mixture) else [second.policy]
    actions = [int(acted[-1].probabilities(h, states[h]).argmax()) for h in range(4)]
    episode = es.Episode(states, actions)
    agent.learn(episode, second.id)
    with pytest.raises(es.InvalidEpisode, match="unknown or was reported before"):
        agent.learn(episode, second.id)
    with pytest.raises(es.InvalidEpisode, match="unknown"):
        agent.learn(episode, 17)
    agent.learn(episode, first.id)
    agent.learn(episode)  # a logged episode trains the proposer and proves nothing


def test_a_given_candidate_is_tried_and_named_in_bounds(cmdp):
    agent = es.SafeAgent(cmdp, candidates={"mine": cmdp.optimal_policy()})
    agent.add_candidate("other", lambda h, state: np.full(3, 1 / 3))
    agent.add_candidate("third", cmdp.optimal_policy())
    agent.withdraw("third")  # before its first plan
    assert set(agent.bounds()) == {"incumbent", "mine", "other"}
    assert all(bound.shape == (1,) for bound in agent.bounds().values())
    play(agent, cmdp, 300)
    assert 0 < agent.bounds()["mine"][0] <= cmdp.evaluate(cmdp.optimal_policy())[1] + 1e-9
    for name in ("mine", "incumbent", "proposal-3", "a:b", " "):
        with pytest.raises(ValueError, match=r"give another|needs a name"):
            agent.add_candidate(name, cmdp.optimal_policy())
    with pytest.raises(es.InvalidProblem, match="one of its components"):
        agent.add_candidate("mixed", es.Mixture([cmdp.task.incumbent], [1.0]))
    agent.withdraw("other")
    assert "other" not in agent.bounds()
    with pytest.raises(ValueError, match=r"no policy .incumbent. is on trial"):
        agent.withdraw("incumbent")


def test_promotion_needs_a_proof_and_a_change_keeps_bounds(cmdp):
    agent = es.SafeAgent(cmdp, candidates={"safer": cmdp.task.incumbent})
    agent.plan()
    with pytest.raises(ValueError, match="promote certified policies only"):
        agent.promote("safer")
    play(agent, cmdp, 200)
    bounds, b = agent.bounds(), cmdp.task.thresholds[0]
    agent.change(threshold=b / 3)
    assert agent.bounds()["safer"] == bounds["safer"]
    assert agent.bounds()["incumbent"] == pytest.approx(bounds["incumbent"])
    assert agent.task.thresholds[0] == pytest.approx(b / 3)
    with pytest.raises(es.Infeasible, match="state its slack there"):
        agent.change(threshold=b + cmdp.task.slacks[0] + 0.01)
    assert agent.bounds()["safer"][0] >= b / 3
    agent.promote("safer")
    plan = agent.plan()
    assert "incumbent" not in (plan.policy.names if isinstance(plan.policy, es.Mixture) else plan.policy.name)
    agent.promote("incumbent")


def test_a_failing_planner_deploys_the_incumbent_and_says_why(cmdp):
    class Failing(Proposer):
        def propose(self, goal):
            raise FloatingPointError("overflow in a bonus")

    plan = es.SafeAgent(cmdp, proposer=Failing()).plan()
    assert plan.source == "safe"
    assert plan.reason == "planning failed: FloatingPointError: overflow in a bonus"
    assert plan.policy is cmdp.task.incumbent


def test_a_proposer_of_ones_own_is_asked_and_its_policies_are_certified(cmdp):
    class Optimum(Proposer):
        def propose(self, goal):
            return Candidate("", es.TablePolicy(cmdp.optimal_policy().table()), reward=1.0, proposer="own")

    agent = es.SafeAgent(cmdp, proposer=Optimum())
    assert play(agent, cmdp, 200).source == "search"
    proved = {name: bound for name, bound in agent.bounds().items() if name.startswith("proposal-")}
    assert proved
    assert max(bound[0] for bound in proved.values()) <= cmdp.evaluate(cmdp.optimal_policy())[1] + 1e-9


def test_certifiers_are_imported_when_they_are_used():
    assert dir(es.certify) == ["Both", "Box", "Budget", "FreshData", "Hindsight", "Observation"]
    with pytest.raises(AttributeError, match="has no attribute 'Budgets'"):
        es.certify.Budgets  # noqa: B018
