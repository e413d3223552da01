"""Hindsight: replays against a slow oracle, coverage with negative controls, missing traces, wrong moves."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest

import episafe as es
from episafe.certify.replays import ListedReplays, Replays, read_trace
from episafe.certify.traces import TraceProposer, empirical_model, excesses, guard
from episafe.core.agent import Candidate
from episafe.core.task import Task
from episafe.envs.real import Inventory
from episafe.kernels.replay import forecast_bound
from episafe.kernels.wealth import BETS
from episafe.problems.moves import ListedMove
from episafe.problems.rules import listed_task
from episafe.simulation import run as simulation


def random_problem(rng, H=3, S=3, A=2, W=3, m=1):
    """Return an exogenous problem: the law of chance does not depend on the state."""
    moves = ListedMove(
        tuple("abcdef"[:W]), rng.integers(S, size=(H, S, A, W)), rng.random((H, S, A, W)), rng.random((H, S, A, W, m))
    )
    law = np.repeat(rng.dirichlet(np.ones(W), (H, 1)), S, axis=1)
    P, reward, utilities = moves.means(law)
    limits = [0.0] * m if m > 1 else 0.0
    return es.LinearCMDP(
        P, reward, list(utilities) if m > 1 else utilities[0], threshold=limits, move=moves, law=law,
        safe_policy=rng.dirichlet(np.ones(A), (H, S)),
    )  # fmt: skip


def totals_by_paths(task, table, chances):
    """Return expected reward and utilities on a trace and the probability lost, by all sequences of actions."""
    found = np.zeros(2 + task.num_constraints)
    for actions in product(range(task.num_actions), repeat=task.horizon):
        state, p = task.initial_state, 1.0
        for h, (a, w) in enumerate(zip(actions, chances, strict=True)):
            p *= table[h, state, a]
            if w is None:
                found[-1] += p / task.num_actions ** (task.horizon - h - 1)  # later actions are summed over
                break
            # a step before the end belongs to several sequences: share it among them by their own probability
            state, reward, utilities = task.move(h, state, a, w)
            rest = 1 / task.num_actions ** (task.horizon - h - 1)
            found[0] += p * rest * reward
            found[1:-1] += p * rest * utilities
    return found


@pytest.mark.parametrize("m", [1, 2])
def test_replays_agree_with_all_sequences_of_actions(m):
    rng = np.random.default_rng(m)
    for _ in range(5):
        problem = random_problem(rng, m=m)
        task, tables = problem.task, rng.dirichlet(np.ones(2), (2, 3, 3))
        policies, replays = [es.TablePolicy(table) for table in tables], ListedReplays(problem.task)
        traces = [problem.draw_trace(rng) for _ in range(4)]
        traces.append((None, (traces[0][1][0], None, traces[0][1][2])))
        found = replays.totals(policies, [replays.read(trace) for trace in traces])
        for e, trace in enumerate(traces):
            for j, table in enumerate(tables):
                assert found[j, e] == pytest.approx(totals_by_paths(task, table, trace[1]), abs=1e-12)
        drawn = Replays(task, "salt").totals(policies, [traces[0][1]] * 4000, range(4000))
        assert drawn.mean(axis=1) == pytest.approx(found[:, 0], abs=0.06)  # 4 standard errors are at most 0.05


def test_the_model_is_what_counting_gives():
    rng = np.random.default_rng(5)
    problem = random_problem(rng, W=2)
    proposer = TraceProposer(problem.task)
    replays, move = proposer.replays, problem.task.move
    traces = [problem.draw_trace(rng) for _ in range(50)]
    proposer.take_in(np.array([replays.read(trace) for trace in traces]))
    n = np.zeros((3, 3, 2))
    for _, chances in traces:
        here = {problem.task.initial_state}
        for h, w in enumerate(chances):
            for s in here:
                n[h, s, move.values.index(w)] += 1
            here = {move(h, s, a, w)[0] for s in here for a in range(2)}
    assert np.array_equal(proposer._counts, n)
    weights = n + 2 * n.sum(axis=0) / np.maximum(n.sum(axis=(0, 2))[:, None], 1)
    P, signals, known = empirical_model(replays, proposer._counts, np.zeros((3, 2)))
    p_hat = weights / np.maximum(weights.sum(axis=2, keepdims=True), 1e-300)
    expected = move.means(np.where(known[..., None], p_hat, 0.0))
    assert P[known] == pytest.approx(expected[0][known], abs=1e-12)
    assert signals[known][..., 0] == pytest.approx(expected[1][known], abs=1e-12)


def test_forecast_is_the_largest_mean_that_would_be_refuted():
    rng = np.random.default_rng(0)
    for _ in range(20):
        means, X, ahead = np.sort(rng.uniform(0.1, 5, 40)), rng.uniform(0, 5, 30), int(rng.integers(5, 200))
        logs = -np.sort(rng.random(40))[:, None] + np.zeros(len(BETS))
        growth = np.log1p((np.minimum(X[:, None] / means, 1e6) - 1)[:, :, None] * BETS).mean(axis=0)
        wealth = np.log(np.exp(logs + ahead * growth).sum(axis=1))
        expected = means[wealth >= 6.0].max(initial=0.0)
        assert forecast_bound(means, logs, BETS, X, ahead, 6.0, 0.0, 1e6) == expected


# coverage: the bounds of candidates whose value is known


def guessing(H):
    """Return a problem in which an action guesses what chance brings next: every policy has V = H/2."""
    shape = (1, 1, 2, 2)
    move = ListedMove((0, 1), np.zeros(shape, dtype=np.int64), np.zeros(shape), np.eye(2).reshape(*shape, 1))
    P, half = np.ones((H, 1, 2, 1)), np.full((H, 1, 2), 0.5)
    return es.LinearCMDP(
        P, 0 * half, half, threshold=0.4 * H, safe_policy=half, move=move, law=[[[0.5, 0.5]]], time_homogeneous=True
    )


def proved(H, actions, traces, delta, loses=lambda X: False):
    """Return the bound of a schedule that is added before these traces come, one per deployment."""
    problem = guessing(H)
    certifier = es.certify.Hindsight(delta=delta)
    certifier.start(problem.task)
    certifier.add(Candidate("schedule", es.TablePolicy(np.eye(2)[actions][:, None], "schedule")))
    for k, trace in enumerate(traces):
        certifier.deployed(k, certifier.fallback(""))
        episode = es.Episode(total_utility=np.zeros(1), trace=(0, tuple(trace)))
        if not loses((trace == actions).sum()):
            certifier.apply(k, certifier.evidence(k, episode))
    return float(certifier.bounds()["schedule"][0])


def wrong_share(num_runs, draw, loses=lambda X: False, H=6, n=40, delta=0.3):
    """Return the interval (99.9 %) of the probability of a wrong bound; `draw(rng, H, n)` gives actions and traces."""
    wrong = 0
    for seed in range(num_runs):
        wrong += proved(H, *draw(np.random.default_rng(seed), H, n), delta, loses) > H / 2
    return binomtest(wrong, num_runs).proportion_ci(0.999)


def honest(rng, H, n):
    return rng.integers(2, size=H), rng.integers(2, size=(n, H))


def regimes(rng, H, n):
    stays = rng.random(n) < 0.95
    level = np.empty(n, dtype=np.int64)
    level[0] = rng.integers(2)
    for k in range(1, n):
        level[k] = level[k - 1] if stays[k] else 1 - level[k - 1]
    return np.ones(H, dtype=np.int64), np.tile(level[:, None], H)


def chosen_afterwards(rng, H, n):
    traces = rng.integers(2, size=(n, H))
    return (traces.mean(axis=0) > 0.5).astype(np.int64), traces


def test_bounds_cover_and_controls_fail():
    assert wrong_share(120, honest).low <= 0.3
    assert wrong_share(40, regimes, H=2, delta=0.1).low > 0.1
    assert wrong_share(40, chosen_afterwards, H=60, n=25).low > 0.3


def test_lost_traces_do_not_break_the_bound():
    only_good = wrong_share(60, honest, loses=lambda X: X < 3)
    assert only_good.high < 0.3  # every lost trace counts as the worst case
    kept = [trace for trace in honest(np.random.default_rng(0), 6, 400)[1] if trace.sum() >= 3]
    assert proved(6, np.ones(6, dtype=np.int64), kept, 0.3) > 3  # dropped silently they would prove too much


@pytest.mark.slow
def test_bounds_cover_in_many_runs():
    interval = wrong_share(2000, honest, n=100, delta=0.1)
    assert interval.high <= 0.1
    assert wrong_share(300, regimes, H=2, n=100, delta=0.1).low > 0.3


@pytest.mark.slow
def test_deployed_policies_and_bounds_hold_in_simulations():
    wrong, num_runs = 0, 150
    for seed in range(num_runs):
        problem = es.make(("inventory", "battery", "cloud")[seed % 3], seed=seed)
        agent = es.SafeAgent(problem, es.certify.Hindsight(delta=0.2))
        record = es.run(problem, agent, 300, seed)
        trials = agent.certifier.trials
        own = {name: trials.policies[trials.accounts.row(name)] for name in agent.bounds()}
        late = any(problem.evaluate(own[name])[1] < bound - 1e-9 for name, bound in agent.bounds().items())
        wrong += late or bool((record.utility_values < problem.task.thresholds - 1e-9).any())
    assert binomtest(wrong, num_runs).proportion_ci(0.999).low <= 0.2


def test_traces_under_way_do_not_count_and_late_ones_do():
    problem, always = guessing(4), np.ones(4, dtype=np.int64)
    certifier = es.certify.Hindsight(delta=0.1)
    certifier.start(problem.task)
    good = es.Episode(total_utility=np.zeros(1), trace=(0, (1, 1, 1, 1)))
    for k in range(20):
        certifier.deployed(k, certifier.plan())
    certifier.add(Candidate("ones", es.TablePolicy(np.eye(2)[always][:, None], "ones")))
    for k in range(20):
        certifier.apply(k, certifier.evidence(k, good))
    assert certifier.bounds()["ones"] == 0.0
    for k in range(20, 60):
        certifier.deployed(k, certifier.plan())
    for k in range(21, 60):  # 20 is missing: prefixes after it pay for it once
        certifier.apply(k, certifier.evidence(k, good))
    late = certifier.bounds()["ones"]
    certifier.apply(20, certifier.evidence(20, good))
    assert 2.0 < late < certifier.bounds()["ones"]
    with pytest.raises(es.InvalidEpisode, match="report each once"):
        certifier.evidence(20, good)


# floors


def short_of_two(p_bad):
    """Return a problem of two steps: utility 0.9, 1 or, with probability p_bad, 0, which the support may leave out."""
    shape = (1, 1, 1, 3)
    move = ListedMove(
        (0, 1, 2), np.zeros(shape, dtype=np.int64), np.zeros(shape), np.array([0.9, 1.0, 0.0]).reshape(1, 1, 1, 3, 1)
    )
    law, one = [[[(1 - p_bad) / 2, (1 - p_bad) / 2, p_bad]]], np.ones((2, 1, 1))
    mean = 0.95 * (1 - p_bad)
    return es.LinearCMDP(
        np.ones((2, 1, 1, 1)), 0 * one, mean * one, threshold=1.5 * mean, safe_policy=one, move=move, law=law,
        time_homogeneous=True,
    )  # fmt: skip


def without_bad(problem):
    """Return its task with a support that lacks the value of utility 0."""
    move = problem.task.move
    arrays = (one[:, :, :, :2] for one in (move.next_states, move.rewards, move.utilities))
    return replace(problem.task, move=ListedMove((0, 1), *arrays, unlisted=move))


def test_floors_are_the_least_of_all_traces_and_actions():
    rng = np.random.default_rng(3)
    for _ in range(5):
        problem = random_problem(rng, m=2)
        table = rng.dirichlet(np.ones(2), (3, 3))
        policy, replays = es.TablePolicy(table), ListedReplays(problem.task)
        totals = replays.totals([policy], list(product(range(3), repeat=3)))[0, :, 1:-1]
        found, sure = replays.least_totals(policy), replays.least_totals(policy, sure=True)
        assert (found <= totals.min(axis=0) + 1e-12).all() and (sure <= found + 1e-12).all()
        certain = es.TablePolicy(np.eye(2)[table.argmax(axis=2)])
        assert replays.least_totals(certain) == pytest.approx(replays.least_totals(certain, sure=True))
    least = ListedReplays(without_bad(short_of_two(0.1))).least_totals(es.TablePolicy(np.ones((2, 1, 1))))
    assert least == pytest.approx([1.8])


def floored(problem, task, seed, delta, silent, n=30):
    """Return the bound of a candidate on n traces, and the certifier; `silent`: nobody looks at the support."""
    certifier, rng, policy = (
        es.certify.Hindsight(delta=delta),
        np.random.default_rng(seed),
        es.TablePolicy(np.ones((2, 1, 1)), "it"),
    )
    certifier.start(task)
    certifier.add(Candidate("it", policy, least_totals=certifier.least_totals(policy)))
    for k in range(n):
        certifier.deployed(k, certifier.fallback(""))
        found = certifier.evidence(k, es.Episode(total_utility=np.zeros(1), trace=problem.draw_trace(rng)))
        certifier.apply(k, replace(found, surprise="") if silent else found)
    return float(certifier.bounds()["it"][0]), certifier


def test_floors_cover_and_a_false_support_is_noticed():
    true, false = short_of_two(0.1), without_bad(short_of_two(0.1))
    value = true.evaluate(true.task.incumbent)[1]
    runs = range(100)
    wrong = sum(floored(true, true.task, seed, 0.5, False)[0] > value for seed in runs)
    assert binomtest(wrong, 100).proportion_ci(0.999).low <= 0.5
    deceived = sum(floored(true, false, seed, 0.5, True)[0] > value for seed in runs)
    assert deceived == 100  # the floor alone, 1.8, exceeds the value
    noticed = [floored(true, false, seed, 0.5, False) for seed in runs]
    assert sum(bound > value for bound, certifier in noticed if certifier.surprised) <= 50
    assert all(certifier.surprised and not certifier.refuted for _, certifier in noticed[:20])


@pytest.mark.parametrize("budget", [False, True])
def test_a_floor_computed_before_a_false_support_is_noticed_is_not_used_after_it(budget):
    certifier = es.certify.Hindsight()
    if budget:
        certifier = es.certify.Both(certifier, es.certify.Budget(14, incumbent_least=1.8))
    agent = es.SafeAgent(without_bad(short_of_two(0.1)), certifier)
    plan = agent.plan()
    agent.add_candidate("new", np.ones((2, 1, 1)))
    agent.learn(es.Episode([0, 0, 0], [0, 0], [0.0, 0.0], [0.9, 0.0], 0, trace=(0, (0, 2))), plan.id)
    agent.plan()
    assert agent.bounds()["new"] < 1
    if budget:
        assert certifier.guard.least_of("new") == 0


def test_a_candidate_whose_floor_reaches_the_limit_spends_no_delta():
    problem = short_of_two(0.1)
    task = without_bad(problem)
    certifier = es.certify.Hindsight()
    certifier.start(task)
    policy = es.TablePolicy(np.ones((2, 1, 1)), "it")
    certifier.add(Candidate("it", policy, 1.0, least_totals=certifier.least_totals(policy)))
    assert certifier.bounds()["it"] == pytest.approx(1.8) and certifier.accounts.num_candidates == 0
    assert (certifier.plan().bounds >= task.thresholds).all()


def test_a_guard_bounds_the_shortfall_on_every_trace():
    rng = np.random.default_rng(4)
    for m in (1, 2):
        for _ in range(5):
            problem = random_problem(rng, m=m)
            replays = ListedReplays(problem.task)
            excess, need = excesses(replays)
            traces = list(product(range(3), repeat=3))
            shortfalls = []
            for choice in product(range(2), repeat=9):  # every policy
                policy = es.TablePolicy(np.eye(2)[np.reshape(choice, (3, 3))])
                totals = replays.totals([policy], traces)[0, :, 1:-1]
                shortfalls.append(float((3 - totals).sum(axis=1).max()))
                most = float(np.take_along_axis(excess, policy.table().argmax(axis=2)[..., None], 2).max())
                assert shortfalls[-1] <= need + 3 * most + 1e-9
            assert min(shortfalls) <= need + 1e-9
            strict = guard(replays, excess, 0.0)
            assert strict.allowed.any(axis=2).all() and not strict.elsewhere[~strict.allowed].any()


def with_floor(problem, floor):
    return replace(problem.task, constraints=(replace(problem.task.constraints[0], floor=floor),))


def test_no_component_falls_below_a_floor_in_any_episode():
    battery = es.make("battery", seed=0)
    task = with_floor(battery, 21.0)
    policy = es.TablePolicy(np.eye(3)[np.zeros((24, 30), dtype=int)])  # sells all the time
    with pytest.raises(es.Infeasible, match="'incumbent' may total 1, below the floor 21 of utility"):
        es.SafeAgent(task)
    safe, _ = excesses(ListedReplays(battery.task))
    task = replace(task, incumbent=es.TablePolicy(np.eye(3)[safe.argmin(axis=2)]))
    agent, rng = es.SafeAgent(task), np.random.default_rng(0)
    with pytest.raises(es.InvalidProblem, match="'sells' may total"):
        agent.add_candidate("sells", policy)
    lows, acted = [], set()
    for _ in range(40):
        plan = agent.plan()
        for name, one in zip(plan.parts.names, plan.parts.components, strict=True):
            lows.append(agent.certifier.replays.least_totals(one, sure=True)[0])
            acted.add(name)
        component, policy = plan.policy.draw(rng) if isinstance(plan.policy, es.Mixture) else (None, plan.policy)
        start, chances = battery.draw_trace(rng)
        states, actions, signals = [start], [], []
        for h, w in enumerate(chances):
            actions.append(policy.act(h, states[-1], rng))
            following, reward, utilities = task.move(h, states[-1], actions[-1], w)
            states.append(following)
            signals.append((reward, utilities))
        told = [one for one, _ in signals], [one for _, one in signals]
        agent.learn(es.Episode(np.array(states), np.array(actions), *told, component, (start, chances)), plan.id)
    assert min(lows) >= 21 - 1e-9 and len(acted) > 1


# results, and the compiled loop


@pytest.mark.parametrize(
    ("name", "at_100", "at_300"), [("inventory", 0.6, 0.88), ("battery", 0.6, 0.88), ("cloud", 0.6, 0.88)]
)
def test_most_of_the_way_in_few_episodes(name, at_100, at_300):
    problem = es.make(name, seed=0)
    record = es.run(problem, es.SafeAgent(problem), 300)
    start = problem.evaluate(problem.task.incumbent)[0]
    share = (record.reward_values - start) / (problem.optimal_value() - start)
    assert share[99] > at_100 and share[299] > at_300
    assert (record.utility_values >= problem.task.thresholds[0] - 1e-12).all()
    assert (record.bounds[record.sources == "search"] >= problem.task.thresholds[0]).all()


@pytest.mark.parametrize("name", ["inventory", "shop"])
def test_the_compiled_loop_gives_the_same_run(name, monkeypatch):
    problem = es.make(name, seed=1)
    agents = [es.SafeAgent(problem, es.certify.Hindsight()) for _ in range(2)]
    fast = es.run(problem, agents[0], 700, seed=3)
    monkeypatch.setattr(simulation, "compiled_loops", dict)
    slow = es.run(problem, agents[1], 700, seed=3)
    for name, column in slow.columns().items():
        assert np.array_equal(fast.columns()[name], column, equal_nan=np.asarray(column).dtype.kind == "f"), name
    assert fast.acting.tolist() == slow.acting.tolist()
    for name, bound in agents[1].bounds().items():
        assert np.array_equal(agents[0].bounds()[name], bound)
    one, other = (agent.certifier for agent in agents)
    assert np.array_equal(one.trials.ranking.rewards, other.trials.ranking.rewards)
    assert np.array_equal(one.observed.accounts.wealth.logs, other.observed.accounts.wealth.logs)


# what contradicts the assumptions


def play(problem, policy, rng):
    """Return an episode of a policy, with its trace."""
    task, trace = problem.task, problem.draw_trace(rng)
    states, actions, signals = [task.initial_state], [], []
    for h, w in enumerate(trace[1]):
        actions.append(policy.act(h, states[-1], rng))
        following, reward, utilities = task.move(h, states[-1], actions[-1], w)
        states.append(following)
        signals.append((reward, *utilities))
    told = np.array(signals)
    return es.Episode(np.array(states), np.array(actions), told[:, 0], told[:, 1:], trace=trace)


def played(problem, agent, rng, changes=lambda episode: episode):
    """Let the agent plan, play one episode, and report what `changes` makes of it."""
    plan = agent.plan()
    policy = plan.policy.draw(rng)[1] if isinstance(plan.policy, es.Mixture) else plan.policy
    agent.learn(changes(play(problem, policy, rng)), plan.id)


def test_a_wrong_move_ends_replays_and_observation_continues():
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    agent = es.SafeAgent(problem)
    for _ in range(120):
        played(problem, agent, rng)
    certifier = agent.certifier
    assert max(float(bound[0]) for bound in agent.bounds().values()) > problem.task.thresholds[0]
    before = {name: bound for name, bound in agent.bounds().items() if name != "incumbent"}

    def wrong(episode):
        return replace(episode, utilities=np.maximum(episode.utilities - 0.3, 0.0))

    played(problem, agent, rng, wrong)
    assert "move gives reward and utility" in certifier.refuted and certifier.invalid_reason == ""
    after = agent.bounds()
    assert all(after[name] < bound for name, bound in before.items() if name in after)
    for _ in range(200):
        played(problem, agent, rng)
    plan = agent.plan()
    assert plan.source == "safe" or (plan.bounds >= problem.task.thresholds).all()


def test_reports_that_cannot_be_replayed_are_refused_or_count_at_their_worst():
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    agent = es.SafeAgent(problem)
    elsewhere = lambda e: replace(e, states=np.append(e.states[1:], 0))  # noqa: E731
    with pytest.raises(es.InvalidEpisode, match="replays start at"):
        played(problem, agent, rng, elsewhere)
    with pytest.raises(es.InvalidEpisode, match="rewards must be reported"):
        played(problem, agent, rng, lambda e: replace(e, rewards=None, utilities=None))
    with pytest.raises(es.InvalidEpisode, match="trace must be"):
        played(problem, agent, rng, lambda e: replace(e, trace=(0, e.trace[1][:-1])))
    with pytest.raises(es.InvalidEpisode, match="move fails"):
        played(problem, agent, rng, lambda e: replace(e, trace=(0, (("many",), *e.trace[1][1:]))))
    played(problem, agent, rng, lambda e: replace(e, trace=None))
    nan = (0, (None, float("nan"), *[None] * 12))
    played(problem, agent, rng, lambda e: replace(e, trace=nan))
    assert read_trace(problem.task, nan) == (None,) * 14
    assert agent.certifier.refuted == "" and agent.certifier.num_traces == 1


def test_a_least_total_that_is_false_in_a_replay_ends_the_proofs():
    problem = guessing(4)
    task = problem.task.with_limits([1.6], [0.4])
    task = replace(task, constraints=(replace(task.constraints[0], least_total=1.0),))
    certifier = es.certify.Hindsight()
    certifier.start(task)
    certifier.add(Candidate("ones", es.TablePolicy(np.eye(2)[np.ones((4, 1), dtype=int)], "ones")))
    certifier.deployed(0, certifier.plan())
    certifier.apply(0, certifier.evidence(0, es.Episode(total_utility=np.ones(1), trace=(0, (0, 0, 0, 0)))))
    assert "least total" in certifier.invalid_reason and certifier.plan().source == "safe"


def test_chance_outside_of_the_listing_is_asked_of_the_rules():
    class Strange(Inventory):
        def support(self, h, state):
            return [(demand,) for demand in range(6)]  # demand 6 is possible and not listed

        def chances(self, h, state):
            return None

    task = listed_task(Strange(), 11.0, slack=1.0)
    replays = ListedReplays(task)
    read = replays.read((task.initial_state, tuple([(1,), (6,)] * 7)))
    found = replays.totals([task.incumbent], [read])[0, 0]
    slow = Replays(task, "x").totals([task.incumbent], [((1,), (6,)) * 7] * 3000, range(3000))[0]
    assert found[-1] == 0 and found == pytest.approx(slow.mean(axis=0), abs=0.05)
    assert len(replays.values) == 7 and task.move.next_states.shape[3] == 6  # the task's own arrays stay


# states that are not listed


def stock(slack=None):
    """Return a store given by functions: order 0 to 3; utility is the share of demand served."""

    def move(h, state, action, w):
        ready = min(state + action, 6)
        sold = min(ready, w)
        return ready - sold, (3 - action) / 3, 1.0 if w == 0 else sold / w

    return es.SampledCMDP(
        lambda state: np.eye(4), None, None, None, 6, 4, 3, 4.5, lambda h, state: [0, 0, 0.1, 0.9], slack or 1.2,
        move=move, chance=lambda h, past, rng: int(rng.integers(3)),
    )  # fmt: skip


def test_unlisted_states_improve_and_a_run_is_reproducible():
    records = [es.run(problem := stock(), es.SafeAgent(problem), 120, seed=4) for _ in range(2)]
    assert np.array_equal(records[0].columns()["reward_totals"], records[1].columns()["reward_totals"])
    late, early = records[0].columns()["reward_totals"][-40:], records[0].columns()["reward_totals"][:10]
    assert late.mean() > early.mean() + 1.0
    assert records[0].columns()["utility_totals"][-40:].mean() > 4.5


def test_proposals_depend_on_states_that_are_not_listed_and_are_kept_as_data(tmp_path):
    problem = stock()
    es.run(problem, agent := es.SafeAgent(problem), 60, seed=4)
    aims = [problem.task.thresholds]
    candidate, totals = next(agent.proposer.proposals(aims))
    acts = [[candidate.policy.probabilities(h, state).argmax() for state in range(5)] for h in range(6)]
    assert np.ptp(acts, axis=1).max() > 0 and totals[:, 1].mean() >= aims[0] - 0.01
    candidate.policy.save(tmp_path / "policy.json")
    again = es.load_policy(tmp_path / "policy.json", problem)
    for h, state in product(range(6), (*range(7), 9)):  # 9 is never reached: the nearest state decides
        assert np.array_equal(again.probabilities(h, state), candidate.policy.probabilities(h, state))
    assert np.array_equal(again.probabilities(2, 9), again.probabilities(2, 6))


def test_randomised_policies_are_drawn_from_the_private_salt():
    problem, half = stock(), es.StepPolicy(np.full((6, 4), 0.25))
    trace = [(2,) * 6] * 50
    one, same, other = (Replays(problem.task, salt).totals([half], trace, range(50)) for salt in "aab")
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert len(np.unique(one[0, :, 0])) > 5  # drawn anew for each trace


# decisions, statement, sessions


def test_candidates_are_promoted_withdrawn_and_limits_changed():
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(1)
    table = problem.optimal_policy().table()
    good = 0.5 * table + 0.5 * problem.task.incumbent.table()
    agent = es.SafeAgent(problem, candidates={"mine": good})
    for _ in range(150):
        played(problem, agent, rng)
    assert agent.bounds()["mine"] >= problem.task.thresholds
    agent.promote("mine")
    plan = agent.plan()
    assert "incumbent" not in (plan.policy.names if isinstance(plan.policy, es.Mixture) else ())
    agent.change(threshold=13.0)
    assert agent.bounds()["mine"] > 12.6 and (agent.plan().source == "safe" or (agent.plan().bounds >= 13.0).all())
    agent.withdraw("mine")
    assert "mine" not in agent.bounds()
    with pytest.raises(ValueError, match="no policy"):
        agent.certifier.withdraw("mine")


def test_the_statement_names_every_assumption():
    said = es.certify.Hindsight(delta=0.1).settings()["statement"]
    for assumption in (
        "probability 0.9", "independent of all earlier traces", "same law", "no trace is reported for two episodes",
        "start is fixed or part of the trace", "also in states that no deployed policy reached", "demand and not sales",
        "only after its action", "fixed without knowledge of traces of later deployments", "drawn as the weights say",
        "threshold + slack", "late or lost", "counts as the worst case", "88% of delta",
        "only its values", "2% of delta",
    ):  # fmt: skip
        assert assumption in said
    with pytest.raises(es.InvalidProblem, match="give the problem move"):
        es.SafeAgent(es.make("tabular"), es.certify.Hindsight())


def test_a_session_reopens_audits_and_raises_the_replay_alarm(tmp_path):
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(2)
    with es.open(tmp_path, es.SafeAgent(problem)) as session:
        for k in range(60):
            deployment = session.deploy()
            if k != 20:  # one is never reported
                session.report(deployment.id, play(problem, deployment.policy, rng), overridden=int(k == 30))
        bounds = session.bounds()
        assert any(name.startswith("proposal-") for name in bounds)
    with es.open(tmp_path, es.SafeAgent(problem)) as session:
        assert session.bounds().keys() == bounds.keys()
        assert all(np.array_equal(session.bounds()[name], bound) for name, bound in bounds.items())
        assert es.audit(tmp_path, es.SafeAgent(problem)).passed
        deployment = session.deploy()
        session.report(
            deployment.id, replace(true := play(problem, deployment.policy, rng), utilities=true.utilities / 2)
        )
        assert session.state.certifier.refuted and [one.monitor for _, one in session.state.alarms] == ["replay"]
    assert es.audit(tmp_path, es.SafeAgent(problem)).passed
    assert es.audit(tmp_path).passed  # by the recorded evidence alone


def test_tasks_with_a_function_as_move_are_replayed():
    problem = es.make("inventory", seed=0)
    listed = problem.task
    task = Task(
        *(listed.horizon, listed.num_actions), constraints=listed.constraints, incumbent=listed.incumbent,
        initial_state=listed.initial_state, num_states=listed.num_states, reward=listed.reward,
        move=lambda h, s, a, w: listed.move(h, s, a, w),
    )  # fmt: skip
    rng, both = np.random.default_rng(0), (ListedReplays(listed), ListedReplays(task))
    for _ in range(10):
        trace = problem.draw_trace(rng)
        one, other = (replays.totals([listed.incumbent], [replays.read(trace)]) for replays in both)
        assert np.array_equal(one, other)


def test_a_budget_beside_hindsight_keeps_its_evidence_and_its_alarms():
    """With Both, the first value outside of the support ends floors as it does without a budget."""
    true = short_of_two(0.1)
    certifier = es.certify.Both(es.certify.Hindsight(), es.certify.Budget(14, incumbent_least=1.8))
    certifier.start(without_bad(true))
    certifier.deployed(0, certifier.plan())
    found = certifier.evidence(0, es.Episode(total_utility=np.zeros(1), trace=(0, (2, 2))))
    assert "not in the support" in found.surprise
    policy = es.TablePolicy(np.ones((2, 1, 1)), "it")
    certifier.add(Candidate("it", policy, least_totals=certifier.first.least_totals(policy)))
    assert certifier.guard.least_of("it") == pytest.approx(1.8)
    certifier.apply(0, found)
    assert certifier.first.surprised
    assert certifier.guard.least_of("it") == 0  # the floor is no fact any more


def coin_policy_problem():
    """One step: action 0 has utility 1, action 1 has reward 1. A fair draw of both has utility 0.5 by replay."""
    shape = (1, 1, 2, 1)
    signals = np.reshape([0.0, 1.0], shape), np.reshape([1.0, 0.0], (*shape, 1))
    move = ListedMove((0,), np.zeros(shape, dtype=int), *signals)
    P, reward, utilities = move.means(np.ones((1, 1, 1)))
    return es.LinearCMDP(
        P, reward, utilities[0], threshold=0.3, safe_policy=[[[1.0, 0.0]]], move=move, law=np.ones((1, 1, 1))
    )


@pytest.mark.parametrize("form", ["replay", "sure"])
def test_a_floor_beside_a_budget_is_kept_in_every_draw_of_a_random_policy(form):
    both = es.certify.Both(es.certify.Hindsight(), es.certify.Budget(4, incumbent_least=1.0, form=form))
    with pytest.raises(es.InvalidProblem, match="may total 0, below the floor"):
        es.SafeAgent(coin_policy_problem(), both, floor=0.4, candidates={"half": [[[0.5, 0.5]]]})


def test_a_false_support_ends_the_floors_of_a_budget():
    task = without_bad(short_of_two(0.1))
    agent = es.SafeAgent(task, es.certify.Budget(14, incumbent_least=1.8), floor=1.5)
    same, found = np.ones((2, 1, 1)), []
    agent.add_candidate("before", same)
    for utilities in ([0.9, 0.0], [0.9, 0.0]):
        plan = agent.plan()
        episode = es.Episode([0, 0, 0], [0, 0], [0.0, 0.0], utilities, 0, trace=(0, (0, 2)))
        found.append(agent.certifier.evidence(plan.id, agent.task.read(episode)).surprise)
        agent.learn(episode, plan.id)
    assert "not in the support" in found[0] and found[1] == ""
    with pytest.raises(es.InvalidProblem, match="below the floor"):
        agent.add_candidate("after", same)


def test_reported_totals_keep_windows_beside_hindsight(tmp_path):
    """In the sure form a random policy counts with its least total, and not with the mean of its draws."""

    def agent():
        both = es.certify.Both(es.certify.Hindsight(), es.certify.Budget(4, incumbent_least=1.0, form="sure"))
        return es.SafeAgent(coin_policy_problem(), both, candidates={"half": [[[0.5, 0.5]]]})

    totals = []
    with es.open(tmp_path, agent()) as session:
        for _ in range(40):
            with session.deploy() as deployment:
                action = deployment.act(0)
                totals.append(1.0 - action)
                deployment.record(reward=action, utility=totals[-1], chance=0)
        assert session.state.certifier.warning == ""
    assert 0 < sum(totals) < 40 and np.convolve(totals, np.ones(4) / 4, "valid").min() >= 0.3
    assert es.audit(tmp_path).passed and es.audit(tmp_path, agent()).passed


# blocks: certificates that forget


@pytest.mark.parametrize("certifier", [es.certify.Observation, es.certify.Hindsight])
def test_each_block_begins_with_the_full_delta_and_no_evidence(certifier):
    problem = es.make("inventory", seed=0)
    agent = es.SafeAgent(problem, certifier(window=40), candidates={"lean": problem.task.incumbent})
    record = es.run(problem, agent, 130, seed=0)
    before = es.SafeAgent(problem, certifier(), candidates={"lean": problem.task.incumbent})
    es.run(problem, before, 130, seed=0)
    assert "in the 40 episodes of a block" in agent.settings()["statement"] and agent.settings()["window"] == 40
    assert (record.utility_values >= record.threshold - 1e-9).all()
    bounds = agent.bounds()
    assert len(set(bounds)) == len(bounds) and before.bounds()["lean"] > bounds["lean"]  # ten episodes, not 130
    assert (record.acting[[40, 80, 120]] == "incumbent").any() or certifier is es.certify.Hindsight


def test_blocks_cover_after_a_change_where_one_sequence_does_not():
    """After 200 good episodes the mean falls to 0.6: bounds of one sequence stay wrong, those of a block do not."""
    wrong = {None: 0, 100: 0}
    for window in wrong:
        for seed in range(40):
            rng, certifier = np.random.default_rng(seed), es.certify.Observation(0.05, window)
            agent = es.SafeAgent(fixed_total_task(), certifier, candidates={"it": np.ones((1, 1, 1))})
            for k in range(400):
                plan = agent.plan()
                component = None if not isinstance(plan.policy, es.Mixture) else plan.policy.draw(rng)[0]
                name = plan.parts.names[component or 0]
                mean = 0.95 if name == "incumbent" or k < 200 else 0.6
                total = float(rng.random() < mean)
                agent.learn(es.Episode([0, 0], [0], [0.0], [total], component), plan.id)
            wrong[window] += agent.bounds()["it"][0] > 0.6
    assert wrong[None] == 40 and wrong[100] <= 4


def fixed_total_task():
    """Return a task of one step, one state and one action, whose utility is only observed."""
    limit = es.Constraint(None, 0.8, 0.15)
    return Task(1, 1, (limit,), np.ones((1, 1, 1)), num_states=1)


def test_a_plan_that_failed_on_recent_replays_is_not_deployed():
    problem = es.make("inventory", seed=0)
    agent = es.SafeAgent(problem, es.certify.Hindsight(recent=5))
    record = es.run(problem, agent, 60, seed=0)
    assert agent.settings()["recent"] == 5 and (record.sources != "safe").any()
    low = {name: np.array([10.0]) for name in agent.bounds()}
    agent.certifier._replayed.extend([low] * 5)
    assert agent.plan().source == "safe" and "last 5 replays is below a limit" in agent.plan().reason


@pytest.mark.parametrize("certifier", [es.certify.Observation, es.certify.Hindsight])
def test_a_session_with_blocks_reopens_and_is_audited(certifier, tmp_path):
    shop, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    for _ in range(2):
        with es.open(tmp_path, es.SafeAgent(shop, certifier(window=20))) as session:
            for _ in range(25):
                stock, demands = shop.draw_trace(rng)
                with session.deploy() as deployment:
                    for day, demand in enumerate(demands):
                        order = deployment.act(stock)
                        stock, reward, utility = shop.task.move(day, stock, order, demand)
                        deployment.record(reward=reward, utility=utility, chance=demand)
            bounds = session.bounds()
    with es.open(tmp_path, es.SafeAgent(shop, certifier(window=20))) as session:
        assert session.bounds() == bounds
    assert es.audit(tmp_path).passed and es.audit(tmp_path, es.SafeAgent(shop, certifier(window=20))).passed


def test_floors_are_refused_where_nothing_is_sure_and_supports_are_part_of_a_session(tmp_path):
    with pytest.raises(es.Infeasible, match="or state the support"):
        es.SafeAgent(es.make("tabular", seed=0), es.certify.Box(), floor=0.5)
    shop = es.make("inventory", seed=0)
    both = es.certify.Both(es.certify.Hindsight(), es.certify.Budget(28, incumbent_least=12.6))
    assert es.SafeAgent(shop, both, floor=8.0).task.floors == 8.0

    def agent(values):
        move = shop.task.move
        task = replace(
            shop.task, move=lambda h, s, a, w: move(h, s, a, w), support=lambda h, s: list(move.values)[:values]
        )
        return es.SafeAgent(task)

    es.open(tmp_path, agent(3)).close()
    with pytest.raises(es.InvalidProblem, match="began with"):
        es.open(tmp_path, agent(7))


def test_names_of_proposals_count_candidates_and_not_delta():
    task = es.make("tabular", seed=0).task
    certifier = es.certify.Observation(window=50)
    certifier.start(replace(task, constraints=(replace(task.constraints[0], threshold=0.0),)))
    for number in (1, 2, 3):  # none needs a proof, or δ
        assert certifier.number_of_next == number
        certifier.add(Candidate(f"proposal-{number}", task.incumbent, 1.0))
