"""FreshData: bounds of Markov policies from an epoch of data before which they were fixed."""

import math

import numpy as np
import pytest

import episafe as es
from episafe.certify.fresh_data import BETS, FIRST_EPOCH, RIDGE, pessimistic_utility


def small(seed=0, phi=None, **options):
    rng = np.random.default_rng(seed)
    P, utility = rng.dirichlet(np.ones(3), (3, 3, 2)), (rng.random((3, 3, 2)) > 0.4).astype(float)
    return es.LinearCMDP(P, rng.random((3, 3, 2)), utility, phi, threshold_share=0.6, **options)


def folds_of(cmdp, n, rng):
    """Return n transitions of each step under the uniform policy."""
    H, S, A, _ = cmdp.P.shape
    folds = []
    for h in range(H - 1):
        s, a = rng.integers(S, size=n), rng.integers(A, size=n)
        following = [rng.choice(S, p=cmdp.P[h, i, j]) for i, j in zip(s, a, strict=True)]
        folds.append(np.stack([s, a, np.array(following)], axis=1))
    return folds


def slow_bound_by_counts(fold, V, s, a, log_term):
    """Find the largest refuted mean of one pair by trying every bet on a grid of means."""
    values = [V[t] - V.min() for i, j, t in fold.tolist() if (i, j) == (s, a)]
    best = 0.0
    for mean in np.linspace(1e-3, V.max() - V.min() + 1e-3, 4000) if values else ():
        z = np.array(values) / mean - 1
        if max((bet * z - (-math.log1p(-bet) - bet) * z**2).sum() for bet in BETS) >= log_term:
            best = max(best, float(mean))
    return V.min() + best


def slow_bound_by_features(cmdp, fold, V, s, a, log_term):
    """Evaluate φᵀŵ − r‖φ‖_{Λ⁻¹} with solves in place of the inverse."""
    phi, B = cmdp.task.features.phi, cmdp.task.norm_bound
    d = phi.shape[2]
    ridge = RIDGE * d / B**2
    gram = ridge * np.eye(d)
    target = np.zeros(d)
    for i, j, t in fold.tolist():
        gram += np.outer(phi[i, j], phi[i, j])
        target += phi[i, j] * V[t]
    grown = math.log(np.linalg.det(gram) / ridge**d)
    radius = math.sqrt(ridge) * B * V.max() + np.ptp(V) / 2 * math.sqrt(grown + 2 * log_term)
    width = math.sqrt(phi[s, a] @ np.linalg.solve(gram, phi[s, a]))
    return phi[s, a] @ np.linalg.solve(gram, target) - radius * width


@pytest.mark.parametrize("kind", ["counts", "features"])
def test_the_bound_is_that_of_a_slow_backward_induction(kind):
    cmdp = small(1) if kind == "counts" else es.make("linear", seed=0)
    rng, log_term = np.random.default_rng(0), 3.0
    H, S, A, _ = cmdp.P.shape
    folds, table = folds_of(cmdp, 300, rng), rng.dirichlet(np.ones(A), (H, S))
    V = np.zeros(S)
    for h in reversed(range(H)):
        Q = cmdp.task.utilities[0, h].copy()
        for s, a in np.ndindex(S, A) if h < H - 1 else ():
            if kind == "counts":
                bound = slow_bound_by_counts(folds[h], V, s, a, log_term)
            else:
                bound = slow_bound_by_features(cmdp, folds[h], V, s, a, log_term)
            Q[s, a] += min(max(bound, V.min()), V.max())
        V = (table[h] * Q).sum(axis=1)
    found = pessimistic_utility(cmdp.task, 0, table, folds, log_term)
    assert found == pytest.approx(V[cmdp.task.initial_state], abs=2e-3 if kind == "counts" else 1e-10)


def test_bounds_hold_as_often_as_promised_and_a_third_of_the_radius_does_not():
    cmdp, wrong, careless = small(2), 0, 0
    table = np.full(cmdp.P.shape[:3], 0.5)
    true, delta = cmdp.evaluate(table)[1], 0.2
    for seed in range(150):
        folds = folds_of(cmdp, 120, np.random.default_rng(seed))
        log_term = math.log(2 * 3 * 2 * len(BETS) / delta)
        wrong += pessimistic_utility(cmdp.task, 0, table, folds, log_term) > true
        careless += pessimistic_utility(cmdp.task, 0, table, folds, -2.0) > true  # no price for chance
    assert wrong <= 0.2 * 150
    assert careless > 0.2 * 150


def test_every_deployed_policy_is_safe_by_itself_and_something_is_certified():
    cmdp = es.make("tabular", seed=0)
    agent = es.SafeAgent(cmdp, es.certify.FreshData())
    record = es.run(cmdp, agent, 6000)
    assert (record.utility_values >= cmdp.task.thresholds[0] - 1e-9).all()
    assert (record.bounds >= cmdp.task.thresholds[0]).all()
    assert (record.bounds <= record.utility_values + 1e-9).all()
    assert not np.array_equal(agent.certifier.certified, cmdp.task.incumbent.table())
    assert record.reward_values[-1] > cmdp.evaluate(cmdp.task.incumbent)[0]
    assert record.weights is None or record.weights.shape[1] == 1  # nothing is drawn


def play_epoch(agent, cmdp, lose=()):
    """Deploy and report until an epoch is over; the reports of some of its episodes are lost."""
    rng, k = np.random.default_rng(0), 0
    while k == 0 or agent.certifier.goal() is None:
        plan, states, actions = agent.plan(), [cmdp.task.initial_state], []
        for h in range(cmdp.task.horizon):
            actions.append(plan.policy.act(h, states[-1], rng))
            states.append(int(rng.choice(cmdp.task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
        if k in lose:
            agent.certifier.abandoned(plan.id)
        else:
            agent.learn(es.Episode(states, actions), plan.id)
        k += 1


def test_an_incomplete_epoch_certifies_nothing_and_its_delta_is_spent():
    cmdp = small(3)
    whole, holed = (es.SafeAgent(cmdp, es.certify.FreshData()) for _ in range(2))
    play_epoch(whole, cmdp)
    play_epoch(holed, cmdp, lose={FIRST_EPOCH - 2})
    stated = cmdp.task.thresholds + cmdp.task.slacks
    holed.plan()
    assert np.array_equal(holed.certifier.certified, cmdp.task.incumbent.table())
    assert (holed.certifier.bound == stated).all()
    assert holed.certifier.num_epochs >= 2
    whole.plan()
    assert whole.certifier.num_epochs == 2


def test_a_false_norm_bound_is_refused():
    """H = 2, φ(safe) = c(1, 0), φ(risky) = c(1, −0.2): small features need a large μ."""
    c = 0.1
    phi = np.zeros((2, 2, 2))
    phi[:, 0], phi[:, 1] = (c, 0.0), (c, -0.2 * c)
    P = np.zeros((2, 2, 2, 2))
    P[:, :, 0], P[:, :, 1] = (0.9, 0.1), (0.1, 0.9)
    utility = np.zeros((2, 2, 2))
    utility[1, 0] = 1.0
    safe = np.zeros((2, 2, 2))
    safe[:, :, 0] = 1.0
    cmdp = es.LinearCMDP(P, utility, utility, phi, 0, 0.6, safe)
    assert cmdp.task.norm_bound > 40  # computed from the kernel
    with pytest.raises(ValueError, match="norm_bound"):
        es.LinearCMDP(P, utility, utility, phi, 0, 0.6, safe, norm_bound=math.sqrt(2))
    record = es.run(cmdp, es.SafeAgent(cmdp, es.certify.FreshData()), 2000)
    assert (record.utility_values >= 0.6 - 1e-9).all()


def test_the_statement_names_all_assumptions_and_tasks_that_do_not_fit_are_refused():
    agent = es.SafeAgent(small(), es.certify.FreshData(delta=0.1))
    for word in ("0.9", "norm_bound", "fixed in advance", "misses one certifies nothing", "Markov", "known", "drift"):
        assert word in agent.settings()["statement"]
    with pytest.raises(es.InvalidProblem, match="known utilities"):
        es.SafeAgent(small().without_signals(), es.certify.FreshData())


def test_a_users_candidate_is_tried_certified_promoted_and_withdrawn():
    cmdp = small(4)
    best = cmdp.optimal_policy()
    agent = es.SafeAgent(cmdp, es.certify.FreshData(), candidates={"mine": cmdp.task.incumbent, "best": best})
    with pytest.raises(ValueError, match="not proved to reach"):
        agent.promote("mine")
    for _ in range(4):
        play_epoch(agent, cmdp)
    agent.plan()
    bound = agent.bounds()["mine"]
    assert cmdp.task.thresholds[0] <= bound[0] <= cmdp.evaluate(cmdp.task.incumbent)[1]
    epochs, before = agent.certifier.num_epochs, agent.certifier.certified
    assert not np.array_equal(before, cmdp.task.incumbent.table())
    agent.promote("mine")
    assert agent.plan().bounds[0] <= bound[0] + 1e-12
    assert agent.certifier.num_epochs == epochs + 1  # the choice may depend on the data of the epoch, which ends
    assert np.array_equal(agent.certifier.certified, cmdp.task.incumbent.table())
    agent.withdraw("best")
    assert "best" not in agent.bounds()
    agent.change(threshold=cmdp.task.thresholds[0] / 2)
    assert agent.plan().bounds[0] >= cmdp.task.thresholds[0] / 2
