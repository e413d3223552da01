"""Ladder: proposals from recent days, with what is known in the morning, on listed states and on others."""

import numpy as np
import pytest

import episafe as es
from episafe.certify.ladder import Ladder, best_pair


class Morning:
    """Days in order: the morning says whether demand will be high."""

    def __init__(self, high):
        self.high, self.day = high, -1

    def start(self, rng):
        self.day += 1
        return ("dry", "wet")[self.day % 2], 0

    def chance(self, h, past, rng):
        return int(rng.random() < (self.high if self.day % 2 else 0.1))


def move(h, state, action, w):
    """Serve the demand w with action 0 (always) or 1 (only if there is none)."""
    kind, missed = state
    return (kind, min(missed + (w and action), 5)), float(action), float(not (w and action))


def problem(high=0.9, threshold=9.0):
    days = Morning(high)
    return es.SampledCMDP(
        es.features.OneHot(size=16), None, None, None, 10, 2, ("dry", 0), threshold, lambda h, s: [1.0, 0.0], 0.9,
        start=days.start, move=move, chance=days.chance,
    )  # fmt: skip


def test_what_is_known_in_the_morning_decides():
    played = problem()
    agent = es.SafeAgent(played, es.certify.Budget(14, incumbent_least=10.0))
    assert isinstance(agent.proposer, Ladder)
    record = es.run(played, agent, 80, seed=3)
    rewards = record.reward_totals[-40:]
    assert rewards[1::2].mean() + rewards[::2].mean() > 8  # nearly all of the dry days, little of the wet ones
    policies = [one.policy for one in agent.certifier.candidates.values()]
    assert (1.0, 0.0) in [tuple(one.probabilities(5, (kind, 0))[1] for kind in ("dry", "wet")) for one in policies]


def test_a_policy_comes_back_from_the_log(tmp_path):
    played = problem()
    agent = es.SafeAgent(played, es.certify.Budget(14, incumbent_least=10.0))
    session, rng = es.open(tmp_path, agent), np.random.default_rng(0)
    for _ in range(30):
        d, (_, chances) = session.deploy(), played.draw_trace(rng)
        state, rows = chances[0], []
        for h, w in enumerate(chances[1:]):
            action = int(d.policy.probabilities(h + 1, state).argmax())
            state, reward, utility = move(h, state, action, w)
            rows.append((state, action, reward, utility))
        states, actions, rewards, utilities = zip(*rows, strict=True)
        path = [("start",), chances[0], *states]
        trace = (chances[0], chances[1:])
        session.report(d.id, es.Episode(path, (0, *actions), (0, *rewards), (0, *utilities), d.component, trace))
    again = es.open(tmp_path, es.SafeAgent(problem(), es.certify.Budget(14, incumbent_least=10.0)))
    name = next(reversed(session.state.policies))
    known, back = session.state.policies[name], again.state.policies[name]
    assert known.document() == back.document() and back.probabilities(3, ("dry", 0)).sum() == 1
    assert "5 % quantile utility" in session.state.candidates[name].statistics
    assert es.audit(tmp_path, es.SafeAgent(problem(), es.certify.Budget(14, incumbent_least=10.0))).passed


@pytest.mark.parametrize("aim", [0.4, 0.5, 0.72, 2.0])
def test_the_best_pair_is_that_of_the_frontier(aim):
    means = np.array([[1.0, 0.2], [0.7, 0.7], [0.2, 0.9], [0.65, 0.4]])
    i, j, p = best_pair(means, np.array([aim]))
    grid = [
        (q * means[a] + (1 - q) * means[b])[0]
        for a in range(4) for b in range(4) for q in np.linspace(0, 1, 101)
        if (q * means[a] + (1 - q) * means[b])[1] >= aim
    ]  # fmt: skip
    if grid:
        assert (p * means[i] + (1 - p) * means[j])[1] >= aim - 1e-12
        assert (p * means[i] + (1 - p) * means[j])[0] >= max(grid) - 1e-9
    else:
        assert (i, p) == (2, 1.0)
