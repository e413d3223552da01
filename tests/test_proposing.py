"""What is put on trial next: proposals by margin above b, or one that is on trial already, by today's model."""

import math

import numpy as np
import pytest

import episafe as es
from episafe.certify.observation import BOLD, MARGINS, SHORTEST_TRIAL
from episafe.learning.planner import Aim


def after(env, num_episodes, seed=0):
    cmdp = es.make(env, seed)
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


def test_a_policy_of_much_evidence_is_tried_again_in_place_of_one_like_it(monkeypatch):
    agent = after("streaming", SHORTEST_TRIAL)
    certificate, ledger = agent.certificate, agent.certificate.ledger
    monkeypatch.setattr(certificate, "_kind", lambda n: BOLD)
    good = agent.planner.propose(certificate.aim()._replace(utility=agent.task.threshold))
    row = ledger.begin(good.policy, "good", good.lam, good.reward)
    before = ledger.num_candidates
    ledger.know_rewards(row, 1e4 * good.reward, 1e4)
    certificate.propose(agent.planner)
    assert (ledger.newest, ledger.num_candidates) == (row, before)  # no δ_j is spent
    assert certificate.trial_began == certificate.num_episodes < certificate.trial_ends
    ledger.withdraw("good")
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
