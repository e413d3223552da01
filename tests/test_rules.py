"""Problems by rules: listed ones agree with hand calculations, and what is wrong is refused with its place."""

from dataclasses import dataclass

import numpy as np
import pytest

import episafe as es
from episafe.envs.real import Battery, Cloud, Inventory, poisson
from episafe.problems.moves import ChanceLaw
from episafe.problems.rules import Rules, listed, listed_task


@dataclass(frozen=True)
class Lamp(Rules):
    """A lamp 0 or 1, switched on with success 0.25; off is sure. Reward: it was on. Utility: it was off."""

    horizon: int = 2
    num_actions: int = 2
    start: tuple[int, ...] = (0,)

    def chances(self, h, state):
        return [((False, True), (0.75, 0.25))]

    def move(self, h, state, action, luck):
        return (int(action == 1 and luck[0]),), float(state[0]), 1.0 - state[0]

    def incumbent(self, h, state):
        return np.array([1.0, 0.0])


@dataclass(frozen=True)
class Two(Lamp):
    """With two utilities: it was off, and it is never switched."""

    names: tuple[str, ...] = ("dark", "still")

    def move(self, h, state, action, luck):
        following, reward, dark = super().move(h, state, action, luck)
        return following, reward, (dark, 1.0 - action)


def test_listed_rules_by_hand():
    cmdp = listed(Lamp(), threshold=1.5)
    np.testing.assert_allclose(cmdp.P[0], [[[1, 0], [0.75, 0.25]], [[1, 0], [0.75, 0.25]]])
    assert cmdp.task.reward[0].tolist() == [[0, 0], [1, 1]] and cmdp.task.one_hot
    assert cmdp.evaluate(cmdp.task.incumbent) == (0, 2)
    assert cmdp.optimal_value() == pytest.approx(0.25)  # always switch on: on at the second step in one of four
    assert cmdp.task.encode((1,)) == 1 and cmdp.task.state_names == ((0,), (1,))


def test_a_live_task_needs_no_law():
    class Live(Inventory):
        def chances(self, h, state):
            return None

        def support(self, h, state):
            return [(demand,) for demand in range(7)]

    with pytest.raises(es.InvalidProblem, match="no law of chance"):
        listed(Live(), 12.0)
    task, simulated = listed_task(Live(), 12.0, slack=1.0), listed(Inventory(), 12.0).task
    assert task.num_states == simulated.num_states
    assert np.array_equal(task.move.next_states, simulated.move.next_states)
    assert task.support(0, 0) == [(demand,) for demand in range(7)]
    assert not task.knows_utility and np.array_equal(task.incumbent.table(), simulated.incumbent.table())


def test_chance_that_depends_on_actions_is_not_exogenous():
    class Nervous(Inventory):
        def chances(self, h, state):
            return [(range(7), poisson(2.0 + 0.1 * state[0], 6))]  # demand depends on the stock

    assert listed(Inventory(), 12.0).task.move is not None
    made = listed(Nervous(), 12.0)
    assert made.task.move is None and made.chance_law is None
    plain = listed(Inventory(), 12.0)
    law = plain.chance_law.law.copy()
    law[:, 1:3] = law[:, 1:3, ::-1]
    with pytest.raises(es.InvalidProblem, match="chance depends on the actions"):
        ChanceLaw(plain.task.move, law, 0, 14)


@pytest.mark.parametrize("name", ["inventory", "battery", "cloud"])
def test_features_are_exact_and_the_limit_binds(name):
    cmdp = es.make(name, 1)
    assert cmdp.linearity_gap() < 1e-12
    optimal, (reward, utility) = cmdp.evaluate(cmdp.optimal_policy()), cmdp.evaluate(cmdp.task.incumbent)
    assert optimal[1] == pytest.approx(cmdp.task.thresholds[0])
    assert utility > cmdp.task.thresholds[0] + 0.05 * cmdp.task.horizon and optimal[0] > 1.1 * reward


def test_one_step_of_each_by_hand():
    state, reward, served = Inventory().move(0, (1, 2), 3, (5,))  # 3 on the shelf, level 9 orders 6, demand 5
    assert state == (0, 6) and served == pytest.approx(3 / 5)
    assert reward == pytest.approx((3 + 0.6 * 9) / (6 + 0.6 * 9))
    assert Battery().move(19, (4, 2, 1), 0, (0, 0, 1)) == ((3, 0, 0), 1.0, 1.0)
    assert Battery().move(0, (0, 0, 0), 0, (1, 1, 0)) == ((0, 1, 1), 0.5, 0.0)  # nothing to sell, no reserve
    assert Cloud().move(0, (4, 1), 1, (3, 1, 2)) == ((5, 2), 0.5, 0.0)  # two of three let in, queue 5 is too long
    np.testing.assert_allclose(poisson(2.0, 3)[:3], np.exp(-2) * np.array([1, 2, 2]), rtol=1e-12)


def test_limits_are_given_by_names_too():
    task = listed(Two(), threshold={"still": 1.0, "dark": 1.5}, slack={"still": 0.5, "dark": 0.25}).task
    assert task.thresholds.tolist() == [1.5, 1.0] and task.slacks.tolist() == [0.25, 0.5]
    with pytest.raises(es.InvalidProblem):
        listed(Two(), threshold=1.0)
    with pytest.raises(es.InvalidProblem, match="bright"):
        listed(Two(), threshold={"bright": 1.0, "dark": 1.5})


@pytest.mark.parametrize("p", [(1.0, 1.0), (0.5, 0.4), (1.5, -0.5), (1.0,)])
def test_invalid_laws_are_refused_with_their_place(p):
    class Odd(Lamp):
        def chances(self, h, state):
            return [((False, True), p)]

    with pytest.raises(es.InvalidProblem, match=r"chances at step 0, state \(0,\): 2 values have the probabilities"):
        listed(Odd(), threshold=0.0)


def test_too_many_states_are_refused():
    with pytest.raises(es.InvalidProblem, match="too many for arrays"):
        listed(Battery(capacity=100, reserve=40, prices=20, suns=10), threshold=20)


def test_a_progress_bar_shows_on_a_terminal_only(monkeypatch, capsys):
    listed(Lamp(), threshold=1.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    listed(Lamp(), threshold=1.5)
    assert "listing states" in capsys.readouterr().err
