"""The ledger: exact wealth against the product itself, the prefix rule, coverage, and controls that must fail."""

import numpy as np
import pytest

import episafe as es
from episafe.certify.account import LONGEST_TAIL, Account, grid_of_means
from episafe.certify.ledger import Ledger
from episafe.kernels.wealth import BETS

DELTA, B, KNOWN = 0.05, 0.5, 0.9


def ledger(delta=DELTA, threshold=B, known=KNOWN):
    task = es.make("tabular", seed=0).task
    made = Ledger(task.safe_policy, [Account(grid_of_means(threshold, known, 1.0), threshold, known, delta, 3)])
    made.begin(es.TablePolicy(task.safe_policy.table()), 0.0, 0.0)
    return made


def wealths(shares, utilities, means):
    """The mean over bets of Π(1 + λq(X/m − 1)) after each episode, (n, G), as the proof writes it, in logarithms."""
    factors = np.asarray(shares)[:, None, None] * (np.asarray(utilities)[:, None, None] / means[:, None] - 1)
    return np.exp(np.log1p(BETS * factors).cumsum(axis=0).clip(max=600)).mean(axis=2)


def oracle(shares, utilities, means, delta=DELTA / 2):
    """The largest point of the grid that any prefix refutes, 0 if none does."""
    refuted = (wealths(shares, utilities, means) >= 1 / delta).any(axis=0)
    return means[refuted].max(initial=0.0)


# ---- exact wealth


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_the_largest_mean_whose_wealth_was_reached(seed):
    rng, book = np.random.default_rng(seed), ledger(delta=2 * DELTA)
    shares, utilities = rng.random(400), rng.beta(8, 2, 400)
    for k, (share, utility) in enumerate(zip(shares, utilities, strict=True)):
        book.credit(None, [1], [share], utility, 0.0)
        if k % 57 == 0:
            assert book.trials.lower[1] == oracle(shares[: k + 1], utilities[: k + 1], book.trials.means, DELTA)
    assert book.trials.lower[1] > 0.6


def test_few_episodes_of_high_and_steady_utility_prove_much():
    """24 episodes with V = 13.3 of 14: the quadratic bound proved 3.2."""
    rng, book = np.random.default_rng(0), ledger(delta=2 * DELTA, threshold=12.6, known=13.3)
    for _ in range(24):
        book.credit(None, [1], [1.0], 13.3 + rng.uniform(-0.7, 0.7), 0.0)
    assert book.trials.lower[1] > 8


@pytest.mark.parametrize(("threshold", "known"), [(0.5, 0.9), (12.6, 13.3), (0.0, 0.1), (3.0, 3.0001), (1e-6, 2e-6)])
def test_the_grid_rises_and_has_the_threshold(threshold, known):
    means = grid_of_means(threshold, known, 14.0)
    assert (np.diff(means) > 0).all() and means[0] > 0 and means[-1] >= 14 and len(means) < 700
    assert threshold in means or threshold == 0


def test_nothing_is_proved_by_no_share_or_no_utility():
    for share, utility in ((0.0, 5.0), (1.0, 0.0)):
        book = ledger()
        for _ in range(500):
            book.credit(None, [1], [share], utility, 1.0)
        assert book.trials.lower[1] == 0


def test_long_losing_and_winning_runs_stay_finite():
    book = ledger()
    for utility in (0.0, 1e30, 1.0):
        for _ in range(3000):
            book.credit(None, [1], [1.0], utility, 1.0)
    trials = book.trials
    assert np.isfinite(trials.logs).all() and np.isfinite(trials.products).all() and trials.lower[1] == trials.means[-1]


# ---- pending is worst


def delivered(order, utilities, book, share=1.0):
    """Deployments 0, 1, … are made, and reports come in the order given, as (time, deployment); the bounds."""
    found, events = [], dict.fromkeys(range(len(utilities)), ())
    for when, deployment in order:
        events[when] = (*events[when], deployment)
    for k in range(len(utilities)):
        book.expect(k, [1])
        for deployment in events[k]:
            book.credit(deployment, [1], [share], utilities[deployment], 0.0)
        found.append(book.trials.lower[1])
    return np.array(found)


@pytest.mark.parametrize("seed", range(6))
def test_pending_is_worst_at_every_prefix(seed):
    """Against the product over every prefix of deployments, made anew at each time."""
    rng, n = np.random.default_rng(seed), 120
    utilities, delays = rng.beta(9, 1, n), rng.geometric(0.1, n) * (rng.random(n) < 0.7)
    order = [(k + int(d), k) for k, d in enumerate(delays) if k + d < n and rng.random() < 0.95]
    book = ledger(delta=2 * DELTA)
    found, means, best = delivered(order, utilities, book), book.trials.means, 0.0
    for t in range(n):
        reported = [k for when, k in order if when <= t]
        shares, known = np.ones(t + 1), np.zeros(t + 1)
        known[reported] = utilities[reported]
        best = max(best, oracle(shares, known, means, DELTA))
        assert found[t] == best
    assert best > 0


def test_what_is_pending_later_costs_nothing():
    """All reports 20 late: the bound of a time is that of 20 deployments before."""
    utilities = np.random.default_rng(1).beta(9, 1, 150)
    at_once = delivered([(k, k) for k in range(150)], utilities, ledger())
    late = delivered([(k + 20, k) for k in range(130)], utilities, ledger())
    np.testing.assert_array_equal(late[20:], at_once[:-20])


def test_a_report_that_comes_after_all_is_taken_in_exactly():
    """Far behind it is charged for as lost; once it comes the wealth is as if it had come at once."""
    n = LONGEST_TAIL + 100
    utilities = np.random.default_rng(2).beta(9, 1, n)
    book, lost = ledger(), range(5, 35)
    delivered([(k, k) for k in range(n) if k not in lost], utilities, book)
    assert book.trials.absent[1] == len(lost)
    without = book.trials.lower[1]
    for k in lost:
        book.credit(k, [1], [1.0], utilities[k], 0.0)
    at_once = delivered([(k, k) for k in range(n)], utilities, ledger())
    assert book.trials.absent[1] == 0 and without < book.trials.lower[1] == at_once[-1]


def test_a_deployment_counts_once_and_only_for_a_row_that_was_there():
    book, again = ledger(), ledger()
    for k in range(60):
        book.expect(k, [1]), again.expect(k, [1])
        book.credit(k, [1], [1.0], 0.95, 0.0)
        for _ in range(3):
            again.credit(k, [1], [1.0], 0.95, 0.0)
    np.testing.assert_array_equal(book.trials.logs, again.trials.logs)
    again.expect(99, [1])
    row = again.begin(es.TablePolicy(es.make("tabular", seed=1).task.safe_policy.table()), 0.0, 0.0)
    again.credit(99, [row], [1.0], 0.95, 0.0)  # made before the row began
    assert (again.trials.products[row] == 1).all()


def test_a_session_with_late_and_lost_reports_goes_on_bit_for_bit(tmp_path):
    """What waits is part of the state: a ledger restored in the middle proves what the other proves."""
    rng, (book, again) = np.random.default_rng(4), (ledger(), ledger())
    from episafe.learning.policy_arrays import PolicyArrays
    from episafe.storage.state_reader import Saved

    utilities = rng.beta(9, 1, 400)
    for k in range(200):
        book.expect(k, [1])
        if k % 7:
            book.credit(k, [1], [0.9], utilities[k], 0.0)
    task = es.make("tabular", seed=0).task
    policies = PolicyArrays(task, None)
    state = {name: np.asarray(value) for name, value in book.state(policies).items()}
    again.restore(Saved(state), [again.policies[0], book.policies[1]])
    for one in (book, again):
        for k in range(200, 400):
            one.expect(k, [1])
            one.credit(k, [1], [0.9], utilities[k], 0.0)
        for k in range(0, 200, 7):
            one.credit(k, [1], [0.9], utilities[k], 0.0)
    for ours, theirs in zip(book.trials, again.trials, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# ---- coverage, and controls that must fail


def misses(utilities, delays, delta=DELTA, repeats=1, at_worst=True):
    """Of runs (n, K) of utilities with mean B: in how many the bound ever passes the mean."""
    wrong = 0
    for row, late in zip(utilities, delays, strict=True):
        book = ledger(delta=2 * delta)
        K = len(row)
        due = sorted((k + int(d), k) for k, d in enumerate(late) if d >= 0)
        if not at_worst:
            for _, k in (one for one in due if one[0] < K):
                for _ in range(repeats):
                    book.credit(None, [1], [1.0], row[k], 0.0)
            wrong += book.trials.lower[1] > B
            continue
        i = 0
        for k in range(K):
            book.expect(k, [1])
            while i < len(due) and due[i][0] <= k:
                for _ in range(repeats):
                    book.credit(due[i][1], [1], [1.0], row[due[i][1]], 0.0)
                i += 1
        wrong += book.trials.lower[1] > B
    return wrong


FAULTS = {
    "at once": lambda X, rng: np.zeros(X.shape, dtype=int),
    "failures late": lambda X, rng: np.where(X == 0, 100, 0),
    "failures lost": lambda X, rng: np.where((X == 0) & (rng.random(X.shape) < 0.5), -1, 0),
    "failures first": lambda X, rng: np.where(X == 0, 0, 50),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_coverage_whatever_delays_or_loses_reports(fault):
    rng = np.random.default_rng(5)
    utilities = (rng.random((150, 200)) < B).astype(float)
    assert misses(utilities, FAULTS[fault](utilities, rng)) <= DELTA * 150


def test_each_report_three_times_counts_once():
    rng = np.random.default_rng(6)
    utilities = (rng.random((100, 150)) < B).astype(float)
    assert misses(utilities, FAULTS["at once"](utilities, rng), repeats=3) <= DELTA * 100


@pytest.mark.parametrize("fault", ["failures late", "failures lost"])
def test_without_counting_deployments_it_fails(fault):
    """Credited as they come: what the rule is for."""
    rng = np.random.default_rng(7)
    utilities = (rng.random((100, 200)) < B).astype(float)
    assert misses(utilities, FAULTS[fault](utilities, rng), at_worst=False) > 3 * DELTA * 100


def test_reports_counted_three_times_fail():
    rng = np.random.default_rng(8)
    utilities = (rng.random((200, 200)) < B).astype(float)
    assert misses(utilities, FAULTS["at once"](utilities, rng), repeats=3, at_worst=False) > 3 * DELTA * 200


def test_a_point_of_the_grid_that_starts_late_fails():
    """Wealth begun anew whenever it is low is no martingale: the best start is chosen afterwards."""
    rng, means = np.random.default_rng(9), np.array([B])
    wrong = 0
    for _ in range(200):
        X = (rng.random(300) < B).astype(float)
        wrong += any(wealths(np.ones(300 - k), X[k:], means).max() >= 1 / DELTA for k in range(0, 300, 5))
    assert wrong > 3 * DELTA * 200


# ---- reports that say their plan alone


def unnamed(outcomes, order, book, plan=7):
    """All deployments of one plan, then their reports in some order, each matched with the oldest that waits."""
    for k in range(len(outcomes)):
        book.expect(k, [1], plan)
    for k, which in enumerate(order):
        book.credit(k, [1], [1.0], outcomes[which], 0.0, named=False)


@pytest.mark.parametrize("seed", range(4))
def test_where_only_the_plan_is_known_all_of_its_deployments_count_together(seed):
    """In whatever order they come: the bound is that of the whole plan, with the missing ones at their worst."""
    rng, book = np.random.default_rng(seed), ledger(delta=2 * DELTA)
    outcomes, n = rng.beta(9, 1, 60), 55
    order = np.argsort(-outcomes)[:n]  # the best first, the worst never
    unnamed(outcomes, order, book)
    known = np.r_[outcomes[order], np.zeros(60 - n)]
    assert book.trials.lower[1] == book.trials.means[
        wealths(np.ones(60), known, book.trials.means)[-1] >= 1 / DELTA
    ].max(initial=0.0)


def test_successes_first_by_plan_prove_nothing_that_is_not_so():
    """Failures never come, and each success is matched with the oldest deployment that waits."""
    rng, wrong = np.random.default_rng(11), 0
    for _ in range(100):
        outcomes = (rng.random(60) < B).astype(float)
        book = ledger(delta=2 * DELTA)
        unnamed(outcomes, np.flatnonzero(outcomes), book)
        wrong += book.trials.lower[1] > B
    assert wrong <= DELTA * 100


def test_believed_to_be_in_order_they_prove_what_is_not_so():
    """The control: the same reports, each taken for the deployment that it was matched with."""
    rng, wrong = np.random.default_rng(11), 0
    for _ in range(40):
        outcomes = (rng.random(60) < B).astype(float)
        book = ledger(delta=2 * DELTA)
        for k in range(60):
            book.expect(k, [1], 7)
        for k, which in enumerate(np.flatnonzero(outcomes)):
            book.credit(k, [1], [1.0], outcomes[which], 0.0)
        wrong += book.trials.lower[1] > B
    assert wrong > 3 * DELTA * 40
