"""The trusted part: shares, exact wealth, pending reports and the check, against slow oracles and failing controls."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

import episafe as es
from episafe.certify.evidence import LONGEST_TAIL, Accounts, admits, shares_of
from episafe.core.types import ENDED, START
from episafe.kernels.mixture import Ranking, best_weights, choose_pair, choose_weights
from episafe.kernels.wealth import BET_WEIGHTS, BETS, mixture_bound

B, SLACK, DELTA = 0.5, 0.4, 0.05
FIRST = DELTA / 2  # δ_1


def accounts(threshold=B, slack=SLACK, delta=DELTA, least=0.0, m=1, largest=1.0):
    """Return accounts of the incumbent and one candidate, row 1."""
    limits = tuple(es.Constraint(None, threshold, slack, f"u{c}", least) for c in range(m))
    made = Accounts(es.Task(None, None, limits, es.TablePolicy(np.ones((1, 1, 1)))), delta, 3, largest=largest)
    made.begin(1, "v2")
    return made


def report(made, deployment, share, utility, row=1):
    made.credit(deployment, np.array([row]), np.array([share]), np.full((1, made.wealth.lower.shape[1]), utility))


def deploy_and_report(made, pairs, first=0):
    """Report each (share, utility) at once; return the bounds after each."""
    found = []
    for k, (share, utility) in enumerate(pairs, first):
        made.expect(k, [1])
        report(made, k, share, utility)
        found.append(made.wealth.lower[1, 0])
    return np.array(found)


def refuted(shares, utilities, means, delta, least=0.0):
    """Return which means any prefix refutes: the weighted mean of Π(1 + λq((X−x₀)/(μ−x₀) − 1)) is at least 1/δ."""
    ratios = (np.asarray(utilities)[:, None, None] - least) / (means[:, None] - least)
    logs = np.log1p(BETS * np.asarray(shares)[:, None, None] * (ratios - 1)).cumsum(axis=0)
    return (np.exp(logs.clip(max=600)) @ BET_WEIGHTS >= 1 / delta).any(axis=0)


def oracle(shares, utilities, means, delta=FIRST, least=0.0):
    return means[refuted(shares, utilities, means, delta, least)].max(initial=least)


# exact wealth


@pytest.mark.parametrize(("seed", "least"), [(0, 0.0), (1, 0.0), (2, 0.3), (3, -2.0)])
def test_bound_is_the_largest_mean_that_the_product_refutes(seed, least):
    rng, made = np.random.default_rng(seed), accounts(least=least)
    pairs = np.column_stack([rng.random(300), least + (1 - least) * rng.beta(8, 2, 300)])
    found, means = deploy_and_report(made, pairs), made.wealth.means[1, 0]
    for n in (1, 20, 57, 150, 300):
        assert found[n - 1] == oracle(*pairs[:n].T, means, least=least)
    assert found[-1] > least + 0.4 * (1 - least)


def test_few_steady_episodes_prove_what_the_formula_says():
    """24 episodes of 13.3: the largest μ with weighted mean of (1 + λ(13.3/μ − 1))²⁴ ≥ 40 is 11.033."""
    made = accounts(12.6, 0.7, largest=14.0)
    found, means = deploy_and_report(made, [(1.0, 13.3)] * 24), made.wealth.means[1, 0]
    assert found[-1] == means[means <= 11.033].max()


def test_wealth_stays_finite_and_recovers_from_long_losses():
    made = accounts()
    deploy_and_report(made, [(1.0, utility) for utility in (0.0, 1e30, 1.0) for _ in range(3000)])
    assert np.isfinite(made.wealth.logs).all() and np.isfinite(made.wealth.products).all()
    assert made.wealth.lower[1, 0] == made.wealth.means[1, 0, -1]


def test_limits_and_candidates_share_delta():
    two, first = accounts(m=2), math.log(len(BETS) * 2 / DELTA)
    assert two.wealth.log_term[1] == pytest.approx([first + math.log(2)] * 2)
    one = accounts()
    for row in (2, one.widen()):
        one.begin(row, f"v{row + 1}")
    assert sum(len(BETS) / math.exp(one.wealth.log_term[i, 0]) for i in (1, 2, 3)) == pytest.approx(DELTA * 3 / 4)
    one.share_delta()
    shared = [len(BETS) / math.exp(one.wealth.log_term[i, 0]) for i in (1, 2, 3)]
    assert sum(shared) == pytest.approx(DELTA * 3 / 4) and shared[2] > DELTA / 12
    one.expect(0, [1])
    before = one.wealth.log_term.copy()
    one.begin(one.widen(), "v5")
    one.share_delta()  # too late: something is deployed
    assert np.array_equal(one.wealth.log_term[:4], before) and one.wealth.log_term[4, 0] == one.log_term(4)


# pending at its worst


def deliver(made, order, utilities):
    """Deploy 0, 1, … and report as `order` says, (time, deployment); return the bounds after each time."""
    found = []
    for k in range(len(utilities)):
        made.expect(k, [1])
        for _, deployment in (one for one in order if one[0] == k):
            report(made, deployment, 1.0, utilities[deployment])
        found.append(made.wealth.lower[1, 0])
    return np.array(found)


@pytest.mark.parametrize("seed", range(4))
def test_pending_counts_at_its_worst_in_the_best_prefix(seed):
    rng, n, made, best = np.random.default_rng(seed), 100, accounts(), 0.0
    utilities, delays = rng.beta(9, 1, n), rng.geometric(0.1, n) * (rng.random(n) < 0.7)
    order = [(k + int(d), k) for k, d in enumerate(delays) if k + d < n and rng.random() < 0.95]
    found = deliver(made, order, utilities)
    for t in range(n):
        known = np.zeros(t + 1)
        for when, k in order:
            known[k : k + 1] = utilities[k] if when <= t else known[k : k + 1]
        best = max(best, oracle(np.ones(t + 1), known, made.wealth.means[1, 0]))
        assert found[t] == best
    assert best > 0


def test_what_is_pending_after_a_prefix_costs_it_nothing():
    utilities = np.random.default_rng(1).beta(9, 1, 150)
    at_once = deliver(accounts(), [(k, k) for k in range(150)], utilities)
    late = deliver(accounts(), [(k + 20, k) for k in range(130)], utilities)
    np.testing.assert_array_equal(late[20:], at_once[:-20])


def test_reports_after_the_longest_tail_take_their_place_exactly():
    n, rng = LONGEST_TAIL + 60, np.random.default_rng(3)
    utilities, made, at_once = rng.beta(9, 1, n), accounts(), accounts()
    for k in range(n):
        made.expect(k, [1])
    assert made.wealth.absent[1] == 60
    for k in range(10, n):
        report(made, k, 1.0, utilities[k])
    bound = made.wealth.lower[1, 0]
    for k in range(10):
        report(made, k, 1.0, utilities[k])
    deploy_and_report(at_once, np.column_stack([np.ones(n), utilities]))
    assert made.wealth.absent[1] == 0 and bound < made.wealth.lower[1, 0] == at_once.wealth.lower[1, 0]


def test_reports_count_once_and_only_for_sequences_that_had_begun():
    made = accounts()
    made.expect(0, [1])
    for _ in range(200):
        report(made, 0, 1.0, 1.0)  # repeated
        report(made, 7, 1.0, 1.0)  # never deployed
    assert made.wealth.lower[1, 0] == oracle([1.0], [1.0], made.wealth.means[1, 0])
    for k in range(100, 300):
        made.expect(k, [1])
    made.begin(1, "v3")
    for k in range(100, 300):
        report(made, k, 1.0, 1.0)  # deployments of the candidate before
    assert made.wealth.lower[1, 0] == 0 and made.num_candidates == 2


@pytest.mark.parametrize("m", [1, 2])
def test_total_below_the_least_total_ends_every_proof(m):
    made = accounts(least=0.2, m=m)
    deploy_and_report(made, [(1.0, 1.0)] * 50)
    assert made.wealth.lower[1].min() > B
    made.expect(50, [0])
    report(made, 50, 1.0, 0.1, row=0)
    assert "below the least total" in made.invalid_reason and list(made.bounds()) == ["incumbent"]
    deploy_and_report(made, [(1.0, 1.0)] * 50, first=51)
    assert made.wealth.lower[1, 0] == 0.2


def test_unknown_slack_gives_the_incumbent_a_sequence_of_its_own():
    made = accounts(slack=None)
    assert made.wealth.lower[0, 0] == 0 and made.num_candidates == 2
    for k in range(60):
        made.expect(k, [0])
        report(made, k, 1.0, 0.9, row=0)
    assert B < made.wealth.lower[0, 0] < 0.9
    made.end("drift")
    assert made.wealth.lower[0, 0] == 0


# shares


def test_shares_are_the_posterior_probabilities_of_the_components(rng):
    cmdp = es.make("tabular", seed=0)
    H, S, A = cmdp.P.shape[:3]
    policies = [es.TablePolicy(rng.dirichlet(np.ones(A), (H, S))) for _ in range(3)]
    weights, states, actions = rng.dirichlet(np.ones(3)), rng.integers(S, size=H + 1), rng.integers(A, size=H)
    acted = [math.prod(one.table()[h, states[h], actions[h]] for h in range(H)) for one in policies]
    found = shares_of(cmdp.task, policies, weights, es.Episode(states, actions))
    np.testing.assert_allclose(found, weights * acted / (weights @ acted), rtol=1e-12)
    never = [es.TablePolicy(np.eye(A)[np.full((H, S), a)]) for a in (0, 1)]
    with pytest.raises(es.InvalidEpisode, match="no component"):
        shares_of(cmdp.task, never, np.full(2, 0.5), es.Episode(states, np.arange(H) % 2))


def test_shares_of_long_episodes_do_not_underflow_and_nobody_acts_outside():
    H = 3000
    policies = [es.StepPolicy(np.tile([p, 1 - p], (H, 1))) for p in (1e-3, 2e-3)]
    task = es.Task(H, 2, (es.Constraint(None, 1.0, 1.0),), policies[0], initial_state=START)
    states = [START, *range(H - 2), ENDED, ENDED]
    found = shares_of(task, policies, np.array([0.9, 0.1]), es.Episode(states, [0, 0, 1, *[0] * (H - 3)]))
    odds = 9 * 0.5 ** (H - 3) * (0.999 / 0.998)
    assert found[0] == pytest.approx(odds / (1 + odds), rel=1e-9) and found.sum() == pytest.approx(1)


# mixtures


def test_best_pair_is_the_best_of_all_pairs(rng):
    grid = np.linspace(0, 1, 2001)
    for _ in range(100):
        lower, guess = rng.uniform(0, 2, (5, 1)), rng.uniform(0, 1, 5)
        lower[0] = 1 + rng.uniform(0, 1)
        ranking, in_use = Ranking(np.zeros((5, 2)), guess, np.zeros(1, dtype=np.int64)), np.ones(5, dtype=np.int64)
        i, j, p = choose_pair(ranking, lower, in_use, 0, 1.0, 0)
        assert admits(np.array([p * lower[i, 0] + (1 - p) * lower[j, 0]]), np.ones(1))
        best = max(
            (grid * guess[x] + (1 - grid) * guess[y])[grid * lower[x] + (1 - grid) * lower[y] >= 1].max(initial=-1)
            for x, y in itertools.product(range(5), repeat=2)
        )
        assert p * guess[i] + (1 - p) * guess[j] >= best - 1e-9


@pytest.mark.parametrize("m", [1, 2, 3])
def test_weights_solve_the_linear_program_and_pass_the_check(m, rng):
    for trial in range(150):
        n, b, base = 7, rng.uniform(0.2, 1.0, m), trial % 3
        scores, lower, in_use = rng.uniform(0, 1, n), rng.uniform(0, 1.5, (n, m)), (rng.random(n) < 0.8).astype(int)
        slacks = rng.choice([0.0, 1e-6, 1e-3, 0.3], m)
        lower[base], in_use[base] = b + slacks, 1
        used = np.flatnonzero(in_use)

        def best(scores, lower=lower, used=used, b=b):
            return -linprog(-scores[used], -lower[used].T, -b, np.ones((1, len(used))), [1.0]).fun

        found, newest = best_weights(scores, lower, b, in_use, base), int(used[-1])
        chosen, gain = choose_weights(scores, newest, lower, b, in_use, base, 2.0), scores[newest] - scores @ found
        if slacks.min() > 0:  # else rounding may leave only the base
            assert scores @ found == pytest.approx(best(scores), abs=1e-8)
            if gain > 1e-9 and newest not in (0, base):
                favoured = scores + 2.0 * gain * (np.arange(n) == newest)
                assert favoured @ chosen == pytest.approx(best(favoured), abs=1e-7)
        for weights in (found, chosen):
            assert (
                weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12) and (weights > 1e-12).sum() <= m + 1
            )
            assert admits(np.array([mixture_bound(weights, lower, c) for c in range(m)]), b)
            assert not admits(np.full(m, np.nan), b)
            assert not weights[in_use == 0].any()


# coverage at δ = 0.3, with reports that depend on what happened, and what must fail

LEVEL, MEAN, LENGTH = 0.6, 0.8, 120  # δ with δ_1 = 0.3; the true utility; deployments per run


def late(k, utility, rng):
    """Return when a report comes: failures late or never, successes at once, some of them a little later."""
    if utility < 0.5:
        return None if rng.random() < 0.3 else k + int(rng.integers(5, 40))
    return k + int(rng.integers(0, 3))


def ever_wrong(seed, arrival):
    """Return whether the bound of a candidate of utility MEAN ever exceeds it in one run."""
    rng, made, due = np.random.default_rng(seed), accounts(delta=LEVEL), {}
    for k in range(LENGTH):
        utility, share = float(rng.random() < MEAN), float(rng.uniform(0.3, 1.0))
        due.setdefault(arrival(k, utility, rng), []).append((k, share, utility))
        made.expect(k, [1])
        for number, q, X in due.pop(k, []):
            report(made, number, q, X)
        if made.wealth.lower[1, 0] > MEAN:
            return True
    return False


def allowed(num_runs, delta=0.3):
    """Return the number of wrong runs that a right certifier exceeds with probability 0.1 %."""
    return binom.ppf(0.999, num_runs, delta)


@pytest.mark.parametrize("arrival", [late, lambda k, utility, rng: k], ids=["late", "at once"])
@pytest.mark.parametrize("num_runs", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_bounds_cover_whatever_delays_or_loses_reports(num_runs, arrival):
    assert sum(ever_wrong(seed, arrival) for seed in range(num_runs)) <= allowed(num_runs)


def test_a_third_of_the_radius_fails():
    wrong = 0
    for seed in range(100):
        rng, made = np.random.default_rng(seed), accounts(delta=0.1)
        utilities = (rng.random(200) < MEAN).astype(float)
        bounds, means = deploy_and_report(made, [(1.0, X) for X in utilities]), utilities.cumsum() / np.arange(1, 201)
        wrong += (means - (means - bounds) / 3 > MEAN)[5:].any()
    assert wrong > 3 * 0.05 * 100


def test_best_of_a_hundred_on_the_batch_it_was_chosen_on_fails_and_on_fresh_episodes_does_not():
    """100 candidates of utility MEAN; the one that did best is certified on the same episodes, or on new ones."""
    wrong = [0, 0]
    for seed in range(60):
        rng = np.random.default_rng(seed)
        batch = (rng.random((100, 40)) < MEAN).astype(float)
        chosen = batch[batch.sum(axis=1).argmax()]
        for j, utilities in enumerate((chosen, (rng.random(40) < MEAN).astype(float))):
            wrong[j] += deploy_and_report(accounts(delta=0.1), [(1.0, X) for X in utilities])[-1] > MEAN
    assert wrong[0] > 3 * 0.05 * 60 and wrong[1] <= allowed(60, 0.05)
