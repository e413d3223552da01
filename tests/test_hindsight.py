"""What is learned from traces: what policies are worth on each, a model of chance, and proposals."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest

import episafe as es
from episafe.kernels.policy_values import policy_values
from episafe.learning import hindsight_planner as models
from episafe.learning.hindsight_planner import empirical_model, propose
from episafe.learning.listed_traces import ListedTraces
from episafe.learning.planner import Aim
from episafe.problems.model_answers import optimum
from episafe.problems.rules import listed
from episafe.storage.state_reader import Saved
from test_exogenous import Mood, all_traces, on_trace


@dataclass(frozen=True)
class Fair(Mood):
    """The same town with fair coins: all traces are equally likely, so that each once is the law itself."""

    def chances(self, h, state):
        return [((0, 1), (0.5, 0.5)), ((0, 1), (0.5, 0.5))]

    def move(self, h, state, action, luck):
        mood, bought = luck
        stock = min(state[0] + action, 2)
        sold = min(stock, bought * (1 + state[1]))
        return (stock - sold, mood), 0.2 * sold + 0.6 * (1 - action), float(stock - sold > 0)


def seen(cmdp, traces):
    found = ListedTraces(cmdp.task)
    for trace in traces:
        found.take_in(trace)
    return found


def worth(task, table, trace):
    """Expected reward and utility of a table on a trace, forward over a dictionary of states."""
    mass, total = {task.initial_state: 1.0}, np.zeros(2)
    for h, w in enumerate(trace[1]):
        ahead = {}
        for (state, m), a in product(mass.items(), range(task.num_actions)):
            following, reward, utility = task.move(h, state, a, w)
            p = m * table[h, state, a]
            total += p * np.array([reward, utility])
            ahead[following] = ahead.get(following, 0.0) + p
        mass = ahead
    return total


def random_table(task, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(task.num_actions), (task.horizon, task.num_states))


def test_totals_equal_the_enumeration_of_all_actions():
    cmdp = listed(Mood(), threshold=1.0)
    traces = [trace for trace, _ in all_traces(cmdp)]
    table = random_table(cmdp.task)
    expected = [on_trace(cmdp.task, table, trace) for trace in traces]
    np.testing.assert_allclose(seen(cmdp, traces).totals(es.TablePolicy(table)), expected, atol=1e-13)


@pytest.mark.parametrize("name", ["inventory", "battery", "cloud"])
def test_totals_of_real_problems_equal_a_slow_pass(name):
    cmdp, rng = es.make(name, 2), np.random.default_rng(1)
    traces = [cmdp.draw_trace(rng) for _ in range(10)]
    table = random_table(cmdp.task, 3)
    expected = [worth(cmdp.task, table, trace) for trace in traces]
    found = seen(cmdp, traces)
    np.testing.assert_allclose(found.totals(es.TablePolicy(table)), expected, atol=1e-12)
    np.testing.assert_array_equal(found.totals(es.TablePolicy(table), first=7), found.totals(es.TablePolicy(table))[7:])


def test_a_mixture_is_worth_the_mean_of_its_parts():
    cmdp = listed(Mood(), threshold=1.0)
    found = seen(cmdp, [trace for trace, _ in all_traces(cmdp)][:20])
    one, other = (es.TablePolicy(random_table(cmdp.task, seed)) for seed in (1, 2))
    mixed = found.totals(es.MixturePolicy((one, other), (0.25, 0.75)))
    np.testing.assert_allclose(mixed, 0.25 * found.totals(one) + 0.75 * found.totals(other), atol=1e-15)


def test_what_was_not_seen_adds_nothing():
    """A trace with a gap at step 2 is worth what its first two steps are: a lower bound."""
    cmdp = es.make("inventory", 2)
    start, chances = cmdp.draw_trace(np.random.default_rng(1))
    gap = (start, (*chances[:2], None, *chances[3:]))
    table = random_table(cmdp.task)
    totals = seen(cmdp, [gap, (start, chances)]).totals(es.TablePolicy(table))
    np.testing.assert_allclose(totals[0], worth(cmdp.task, table, (start, chances[:2])), atol=1e-13)
    assert (totals[0] < totals[1]).all()


def test_a_move_that_fails_off_the_path_counts_as_the_worst_and_is_named():
    cmdp = es.make("inventory", 2)

    def failing(h, state, action, w):
        if h == 5 and action == 2:
            raise KeyError("no such level")
        return cmdp.task.move(h, state, action, w)

    task = replace(cmdp.task, move=failing)
    found = ListedTraces(task)
    found.take_in(cmdp.draw_trace(np.random.default_rng(1)))
    assert found.fault.startswith("at step 5, state ") and "no such level" in found.fault
    always = es.TablePolicy(np.tile(np.eye(4)[2], (14, task.num_states, 1)))
    never = es.TablePolicy(np.tile(np.eye(4)[3], (14, task.num_states, 1)))
    whole = seen(cmdp, [cmdp.draw_trace(np.random.default_rng(1))])
    np.testing.assert_array_equal(found.totals(never), whole.totals(never))
    assert 0 < found.totals(always)[0, 1] <= 5 < whole.totals(always)[0, 1]


def test_a_trace_counts_in_every_state_that_some_actions_lead_to():
    cmdp = listed(Mood(), threshold=1.0)
    task = cmdp.task
    traces = [trace for trace, _ in all_traces(cmdp)][::3]
    pairs, counts = seen(cmdp, traces).reached()
    expected = {}
    for trace in traces:
        episodes = [
            task.replay(task.safe_policy, trace, None, actions=actions) for actions in product(range(2), repeat=3)
        ]
        for h, w in enumerate(trace[1]):
            for state in {episode.states[h] for episode in episodes}:
                expected[h, w, state] = expected.get((h, w, state), 0) + 1
    found = {(h, w, int(s)): int(counts[c, s]) for c, (h, w) in enumerate(pairs) for s in np.flatnonzero(counts[c])}
    assert found == expected


def test_the_model_of_all_traces_is_the_problem_itself(monkeypatch):
    monkeypatch.setattr(models, "PRIOR", 0.0)
    cmdp = listed(Fair(), threshold=1.0)
    model = empirical_model(seen(cmdp, [trace for trace, _ in all_traces(cmdp)]))
    assert model.known.sum() >= 9
    for found, true in ((model.P, cmdp.P), (model.reward, cmdp.task.reward), (model.utilities[0], cmdp.task.utility)):
        np.testing.assert_allclose(found[model.known], true[model.known], atol=1e-12)


def test_the_proposal_from_all_traces_is_the_optimum(monkeypatch):
    monkeypatch.setattr(models, "PRIOR", 0.0)
    cmdp = listed(Fair(), threshold=1.5)
    proposal = propose(seen(cmdp, [trace for trace, _ in all_traces(cmdp)]), Aim(1.5))
    reward, utility = cmdp.evaluate(proposal.policy)
    assert utility == pytest.approx(1.5)  # it binds
    assert reward == pytest.approx(cmdp.optimal_value(), abs=1e-9) == proposal.reward
    assert proposal.lam > 0


@pytest.mark.parametrize("name", ["inventory", "battery", "cloud"])
def test_means_that_are_told_falsely_change_no_proposal(name):
    cmdp, rng = es.make(name, 3), np.random.default_rng(0)
    task = cmdp.task
    false = replace(
        task, reward=1 - task.reward, constraint=replace(task.constraint, utility=np.zeros_like(task.utility))
    )
    ours, theirs = ListedTraces(task), ListedTraces(false)
    for _ in range(12):
        trace = cmdp.draw_trace(rng)
        ours.take_in(trace)
        theirs.take_in(trace)
    aim = Aim(task.threshold + 0.1)
    one, other = propose(ours, aim), propose(theirs, aim)
    np.testing.assert_array_equal(one.policy.table(), other.policy.table())
    assert one[1:] == other[1:]


def test_what_no_trace_leads_to_is_left_to_the_incumbent():
    cmdp, rng = es.make("battery", 3), np.random.default_rng(0)
    traces = seen(cmdp, [cmdp.draw_trace(rng)])
    unknown = ~empirical_model(traces).known
    assert unknown.any()
    table = propose(traces, Aim(cmdp.task.threshold)).policy.table()
    np.testing.assert_array_equal(table[unknown], cmdp.task.safe_policy.table()[unknown])


def test_an_aim_out_of_reach_gives_the_policy_of_largest_utility():
    cmdp, rng = es.make("battery", 3), np.random.default_rng(0)
    traces = seen(cmdp, [cmdp.draw_trace(rng) for _ in range(20)])
    proposal = propose(traces, Aim(100.0))
    assert np.isnan(proposal.lam)
    likewise = propose(traces, Aim(cmdp.task.threshold))
    assert traces.totals(proposal.policy)[:, 1].mean() >= traces.totals(likewise.policy)[:, 1].mean()


def test_where_the_model_is_too_hopeful_it_aims_higher():
    """Chance that depends on the past beyond the state: the model's optimum misses the aim, replays show it."""
    cmdp = listed(Fair(), threshold=1.5)
    traces = seen(cmdp, [(start, ws) for (start, ws), _ in all_traces(cmdp) if ws[0][1] != ws[1][1]])
    model = empirical_model(traces)
    naive = es.TablePolicy(models_optimum(model, 1.5, cmdp.task.initial_state))
    assert traces.totals(naive)[:, 1].mean() < 1.2
    assert traces.totals(propose(traces, Aim(1.5)).policy)[:, 1].mean() > 1.5


def models_optimum(model, threshold, start):
    from episafe.problems.model_answers import optimum

    return optimum(model.P, model.reward, model.utilities[0], threshold, start).table


def test_traces_go_on_from_their_state():
    cmdp, rng = es.make("cloud", 3), np.random.default_rng(0)
    first, rest = ([cmdp.draw_trace(rng) for _ in range(n)] for n in (70, 5))
    start, chances = first[3]
    first[3] = (start, (*chances[:4], None, *chances[5:]))
    whole = seen(cmdp, first)
    again = ListedTraces.restored(Saved(whole.state()), cmdp.task)
    for found in (whole, again):
        for trace in rest:
            found.take_in(trace)
    assert len(again) == 75
    table = es.TablePolicy(random_table(cmdp.task))
    np.testing.assert_array_equal(again.totals(table), whole.totals(table))
    np.testing.assert_array_equal(again.reached()[1], whole.reached()[1])
    aim = Aim(cmdp.task.threshold)
    np.testing.assert_array_equal(propose(again, aim).policy.table(), propose(whole, aim).policy.table())


@pytest.mark.parametrize(("name", "wrong"), [("pairs", b"[[0"), ("pairs", b"[[99,1]]"), ("chances", None)])
def test_a_damaged_state_is_refused(name, wrong):
    cmdp = es.make("inventory", 3)
    state = seen(cmdp, [cmdp.draw_trace(np.random.default_rng(0))]).state()
    entry = f"traces.{name}"
    state[entry] = state[entry][:, ::-1] if wrong is None else np.frombuffer(wrong, np.uint8)
    with pytest.raises(es.DamagedFile, match="of the state"):
        ListedTraces.restored(Saved(state), cmdp.task)


# ---- many states


def test_sparse_steps_have_the_same_optimum(monkeypatch):
    cmdp, rng = es.make("inventory", 3), np.random.default_rng(0)
    model = empirical_model(seen(cmdp, [cmdp.draw_trace(rng) for _ in range(30)]))
    assert model.steps() is model.P
    monkeypatch.setattr(models, "MANY_STATES", 2)
    steps = model.steps()
    assert isinstance(steps, list) and steps[0].nnz < model.P[0].size / 5
    given = (model.P, model.reward, model.utilities[0], 12.6, cmdp.task.initial_state)
    dense, sparse = optimum(*given), optimum(*given, steps)
    assert sparse.value == pytest.approx(dense.value, abs=1e-10) and sparse.lam == pytest.approx(dense.lam, rel=1e-6)
    found = policy_values(*given[:3], sparse.table, cmdp.task.initial_state)
    assert found == pytest.approx((dense.value, 12.6), abs=1e-9)


def test_with_many_states_all_traces_of_a_step_count_in_each(monkeypatch):
    cmdp, rng = es.make("battery", 3), np.random.default_rng(0)
    traces = seen(cmdp, [cmdp.draw_trace(rng) for _ in range(20)])
    before = models._weights(traces)[1]
    monkeypatch.setattr(models, "MANY_STATES", 2)
    values, weights = models._weights(traces)
    added = weights - before
    rows = added[:, before.any(axis=(0, 2))]
    np.testing.assert_allclose(rows.sum(axis=2), models.STEP)
    np.testing.assert_allclose(rows, np.broadcast_to(rows[:, :1], rows.shape))  # whatever the state
    assert not added[:, ~before.any(axis=(0, 2))].any()
    pairs, _ = traces.reached()
    counts = traces.seen_by_step()
    assert counts.sum() == 20 * cmdp.task.horizon
    c = int(np.argmax(counts))
    h, i = pairs[c][0], values.index(pairs[c][1])
    assert rows[h, 0, i] == rows[h, 0].max()


@dataclass(frozen=True)
class Fickle(Fair):
    """In a bad mood nobody buys: chance depends on the state."""

    def chances(self, h, state):
        return [((0, 1), (0.5, 0.5)), ((0, 1), (0.5, 0.5)) if state[1] else ((0,), (1.0,))]


def test_a_move_that_chance_cannot_ask_for_is_no_fault():
    cmdp, rng = listed(Fickle(), threshold=0.5), np.random.default_rng(0)
    traces = seen(cmdp, [cmdp.draw_trace(rng) for _ in range(20)])
    pairs, _ = traces.reached()
    everywhere = np.arange(cmdp.task.num_states)
    found = np.array([traces.moves(c, everywhere)[0] for c in range(len(pairs))])
    assert (found < 0).any() and not traces.fault
    again = np.array([traces.moves(c, everywhere)[0] for c in range(len(pairs))])
    np.testing.assert_array_equal(again, found)


def test_all_actions_at_once_move_as_one_by_one():
    cmdp, rng = es.make("shop", 0), np.random.default_rng(0)
    move = cmdp.task.move
    for h, w in enumerate(cmdp.draw_trace(rng)[1]):
        for state in range(cmdp.task.num_states):
            following, signals = move.of_all_actions(h, state, w)
            for action in range(cmdp.task.num_actions):
                one = move(h, state, action, w)
                assert (following[action], *signals[action]) == (one[0], one[1], *one[2])
    assert move.of_all_actions(0, 0, "rain") is None
