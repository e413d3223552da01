"""What is put on trial next: proposals by margin above b, or one that is on trial already, by today's model."""

import math

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
from episafe.certify.observation import BOLD, LEAST_BOLD, MARGINS, SHORTEST_TRIAL, SOBER, SOBERNESS
from episafe.learning.planner import Aim, SoftmaxPlanner


class Still(gym.Env):
    """Nothing ever happens."""

    observation_space, action_space = gym.spaces.Discrete(1), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {"cost": 0.0}


def after(env, num_episodes, seed=0, **changes):
    cmdp = es.make(env, seed)
    if changes:
        told = {"phi": cmdp.task.phi, "threshold": cmdp.task.threshold, "safe_policy": cmdp.task.safe_policy.table()}
        given = {"reward": cmdp.task.reward, "utility": cmdp.task.utility} | changes
        cmdp = es.LinearCMDP(cmdp.P, initial_state=cmdp.task.initial_state, **(told | given))
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    es.run(cmdp, agent, num_episodes, seed=seed)
    return agent


@pytest.mark.parametrize("env", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("kind", [(0.0, 1.0), (0.0, 0.1), (0.3, 1.0)], ids=["bold", "sober", "curious"])
def test_the_estimate_of_a_proposal_is_what_the_planner_promised_of_it(env, kind):
    agent = after(env, 400)
    aim = Aim(agent.task.threshold + 0.1, *kind)
    proposal = agent.planner.propose(aim)
    promised = agent.planner.regression.start_values
    found = agent.planner.estimate(proposal.policy, aim)
    entropy = agent.task.horizon * agent.constants.kappa * math.log(agent.task.num_actions)
    assert 0 <= promised[0] - found[0] + 1e-9 <= entropy + 2e-9  # V̄ʳ has κ times the entropy of the actions besides
    assert found[1] == pytest.approx(promised[2], abs=1e-9)


def test_an_estimate_knows_the_least_total_as_proposals_do():
    utility = 1 - 0.25 * (1 - es.make("tabular", 0).task.utility)
    agent = after("tabular", 100, utility=utility, threshold=3.2, least_total=3.0)
    aim = Aim(agent.task.threshold + 0.1)
    proposal = agent.planner.propose(aim)
    promised = float(agent.planner.regression.start_values[2])
    assert agent.planner.estimate(proposal.policy, aim)[1] == pytest.approx(promised, abs=1e-9)
    assert agent.planner.scales.most_lost == math.inf and agent.planner._scales_of(aim).most_lost == 1.0


def test_while_nothing_was_earned_what_goes_to_see_most_is_tried_and_promises_nothing():
    agent = after("tabular", SHORTEST_TRIAL, reward=np.zeros((4, 5, 3)))
    certificate = agent.certificate
    assert agent.planner.earned() == pytest.approx(0.0, abs=1e-12)
    expected = agent.planner.propose(Aim(0.0))
    certificate.propose(agent.planner)
    newest = certificate.ledger.policies[certificate.ledger.newest]
    np.testing.assert_array_equal(newest.table(), expected.policy.table())
    assert math.isnan(certificate.promised)


@pytest.mark.parametrize("kind", [BOLD, SOBER])
def test_where_rewards_are_thin_bonuses_shrink_and_promises_of_old_are_cut(monkeypatch, kind):
    agent = after("tabular", SHORTEST_TRIAL, reward=np.full((4, 5, 3), 0.01))
    certificate, planner, aims = agent.certificate, agent.planner, []
    earned, boldness = planner.earned(), SOBERNESS if kind == SOBER else 1.0
    assert 0.03 < earned <= 0.04
    certificate.ledger.trials.guess[:] = 4.0
    monkeypatch.setattr(certificate, "_kind", lambda n: kind)
    monkeypatch.setattr(planner, "propose", lambda aim: aims.append(aim) or SoftmaxPlanner.propose(planner, aim))
    monkeypatch.setattr(certificate, "consider", lambda proposal: None)
    certificate.propose(planner)
    shrunk = boldness * max(earned / 0.4, LEAST_BOLD)
    assert [one.boldness for one in aims[1:]] == pytest.approx([shrunk] * len(MARGINS))
    assert certificate.ledger.trials.guess.max() == earned


def test_rewards_that_are_not_thin_are_planned_for_with_all_boldness(monkeypatch):
    agent = after("tabular", SHORTEST_TRIAL)
    aims = []
    monkeypatch.setattr(agent.planner, "propose", lambda a: aims.append(a) or SoftmaxPlanner.propose(agent.planner, a))
    expected = agent.certificate.aim().boldness
    agent.certificate.propose(agent.planner)
    assert {one.boldness for one in aims[1:]} == {expected}


def test_a_utility_that_is_learned_is_not_shrunk_where_little_can_be_lost():
    """Ten episodes without any loss: in 20 steps at most ρ/(10 + ρ) each is missing, of 1 that can be lost."""
    H, rho = 20, es.Constants.proposing().ridge
    live = es.from_gymnasium(
        Still(), features=es.features.OneHot(), horizon=H, cost_limit=0.3, slack=0.2, episode_cost_max=1.0,
        safe_policy=lambda h, state: np.eye(2)[0],
    )  # fmt: skip
    agent = es.OPSE(live.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    for _ in range(10):
        agent.learn(es.play(live, live.task.safe_policy, np.random.default_rng(0)))
    agent.planner.propose(Aim(float(H)))
    assert agent.planner.regression.start_values[2] == pytest.approx(H - H * rho / (10 + rho), abs=0.01)


def test_a_policy_of_much_evidence_is_tried_again_in_place_of_one_like_it(monkeypatch):
    agent = after("streaming", SHORTEST_TRIAL)
    certificate, ledger = agent.certificate, agent.certificate.ledger
    monkeypatch.setattr(certificate, "_kind", lambda n: BOLD)
    good = agent.planner.propose(certificate.aim()._replace(utility=agent.task.threshold))
    row = ledger.begin(good.policy, good.lam, good.reward)
    before = ledger.num_candidates
    ledger.know_rewards(row, 1e4 * good.reward, 1e4)
    certificate.propose(agent.planner)
    assert (ledger.newest, ledger.num_candidates) == (row, before)  # no δ_j is spent
    assert certificate.trial_began == certificate.num_episodes < certificate.trial_ends
    ledger.withdraw(good.policy.name)
    certificate.propose(agent.planner)
    assert ledger.num_candidates == before + 1


@pytest.mark.parametrize("wanted", MARGINS)
def test_of_all_margins_the_one_that_is_worth_most_is_proposed(monkeypatch, wanted):
    agent = after("streaming", SHORTEST_TRIAL)
    certificate, b, slack = agent.certificate, agent.task.threshold, agent.task.slack
    monkeypatch.setattr(certificate, "_worth", lambda r, u, *rest: -abs(u - b - wanted * slack) if not rest[1] else -9)
    expected = agent.planner.propose(certificate.aim()._replace(utility=b + wanted * slack))
    taken = []
    monkeypatch.setattr(certificate, "consider", taken.append)
    certificate.propose(agent.planner)
    assert [one.lam for one in taken] == [expected.lam]


def test_what_a_policy_is_worth():
    agent = after("tabular", 500)
    worth, b = agent.certificate._worth, agent.task.threshold
    assert worth(2.0, b + 100.0, 10.0, 0.0) == 2.0  # proved at once: nobody has to pay for it
    assert worth(2.0, b, 10.0, 1e4) > worth(2.0, b, 10.0, 0.0)  # with what it has done already
    assert worth(2.0, b, 10.0, 0.0) < 2.0
    assert np.diff([worth(2.0, b + m, 10.0, 0.0) for m in (0.0, 0.1, 0.2)]).min() >= 0
