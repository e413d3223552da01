"""Certified agents: the bound of each plan against a slow version, from the episodes alone, on random problems."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import betaln

import episafe as es
import oracles
from episafe.certify.fresh_data import FIRST_EPOCH, LEAST_DEVIATION, STEPS
from episafe.certify.hindsight import BET_WEIGHTS
from episafe.kernels.confidence_sequence import BETS as FRESH_BETS
from episafe.kernels.wealth import BETS

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import lives

DELTA, CLOSE = 0.05, 1e-8
EVENLY = np.full(len(BETS), 1 / len(BETS))
SOME_AND_200 = pytest.mark.parametrize("seeds", [range(4), pytest.param(range(200), marks=pytest.mark.slow)])


def drawn(seed):
    """A tiny problem, whose incumbent is the policy of the largest utility."""
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, 3, 2, int(rng.integers(2, 4)))
    told = {name: raw[name] for name in ("P", "reward", "utility", "initial_state")}
    free = es.LinearCMDP(**told, threshold=-1)
    return es.LinearCMDP(**told, threshold=rng.uniform(0.6, 0.9) * free.evaluate(free.task.safe_policy)[1])


def tight(seed):
    """The same with an incumbent of little slack, beside which others have more."""
    cmdp = drawn(seed)
    uniform = np.full(cmdp.task.reward.shape, 0.5)
    utility = cmdp.evaluate(es.TablePolicy(uniform))[1]
    told = {"initial_state": cmdp.task.initial_state, "safe_policy": uniform}
    return es.LinearCMDP(
        cmdp.P, cmdp.task.reward, cmdp.task.utility, **told, threshold=0.97 * utility, slack=0.03 * utility
    )


def certified(task, certifier):
    return es.OPSE(task, es.Constants.proposing(), certifier=certifier)


def played(cmdp, agent, num_episodes, rng):
    """Plan and learn; yields what was planned, and states, actions and total utility of what came of it."""
    task = cmdp.task
    for _ in range(num_episodes):
        plan = agent.plan()
        component, policy = plan.policy.draw(rng)
        states, actions = oracles.random_episodes(
            rng, {"P": cmdp.P, "initial_state": task.initial_state}, policy.table(), 1
        )[0]
        yield plan, states, actions, float(task.utility[np.arange(task.horizon), states[:-1], actions].sum())
        agent.learn(es.Episode(states, actions, component=component), plan_id=plan.id)


def shares(policy, states, actions):
    """q_i = w_i π_i(τ) / Σ_j w_j π_j(τ)."""
    steps = np.arange(len(actions))
    chances = [
        weight * one.table()[steps, states[:-1], actions].prod()
        for weight, one in zip(policy.weights, policy.components, strict=True)
    ]
    return np.array(chances) / sum(chances)


def proved(outcomes, means, delta, weights=EVENLY):
    """The largest mean of the grid against which some prefix of the (q, X) has a wealth of 1/δ; 0 if there is none."""
    reached = [m for m in means if lives.largest_log_wealth(outcomes, m, 0.0, weights) >= math.log(1 / delta)]
    return max(reached, default=0.0)


def delta_of(policy, delta):
    """δ_j = δ/(j(j+1)) of the proposal j."""
    j = int(policy.name.removeprefix("proposal-"))
    return delta / (j * (j + 1))


@pytest.mark.parametrize(("certifier", "draw"), [(es.certify.Observation, drawn), (es.certify.Roomier, tight)])
@SOME_AND_200
def test_what_was_observed_proves_the_bound_of_a_mixture(seeds, certifier, draw):
    left = 0
    for seed in seeds:
        cmdp, came = draw(seed), {}
        task, agent = cmdp.task, certified(cmdp.task, certifier(DELTA))
        for k, (plan, states, actions, total) in enumerate(played(cmdp, agent, 240, np.random.default_rng(seed))):
            if k % 40 == 39 and plan.source != "safe":
                means, lower = agent.certificate.ledger.trials.means, []
                for one in plan.policy.components:
                    is_incumbent = one is task.safe_policy
                    own = 0.0 if is_incumbent else proved(came.get(one, ()), means, delta_of(one, DELTA))
                    lower.append(task.threshold + task.slack if is_incumbent else own)
                    left += not is_incumbent and own >= task.threshold
                assert plan.utility_bound == pytest.approx(np.dot(plan.policy.weights, lower), abs=CLOSE)
                assert plan.utility_bound >= task.threshold
                if min(lower) < task.threshold:  # and there is no more of it than the bounds allow
                    assert plan.utility_bound == pytest.approx(task.threshold, abs=CLOSE)
            for one, share in zip(plan.policy.components, shares(plan.policy, states, actions), strict=True):
                came.setdefault(one, []).append((share, total))
    assert left  # else nothing was proved


@SOME_AND_200
def test_replays_prove_the_bound_of_a_mixture(seeds):
    left = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        world = lives.Stock(rng)
        task, agent = world.cmdp.task, certified(world.cmdp.task, es.certify.Hindsight(DELTA))
        replays, came = {}, {}
        for k in range(120):
            plan = agent.plan()
            ledger, observed = agent.certificate.replayed, agent.certificate.observed.ledger
            for one in filter(None, ledger.policies[1:]):
                replays.setdefault(one, [])
            if k % 40 == 39 and plan.source != "safe":
                lower = []
                for one in plan.policy.components:
                    if one is task.safe_policy:
                        lower.append(task.threshold + task.slack)
                        continue
                    by_replays = proved(replays[one], ledger.trials.means, delta_of(one, 0.9 * DELTA), BET_WEIGHTS)
                    by_totals = proved(came.get(one, ()), observed.trials.means, delta_of(one, 0.1 * DELTA))
                    lower.append(max(by_replays, by_totals))
                    left += lower[-1] >= task.threshold
                assert plan.utility_bound == pytest.approx(np.dot(plan.policy.weights, lower), abs=CLOSE)
                assert plan.utility_bound >= task.threshold
            component, policy = plan.policy.draw(rng)
            episode, total = world.play(plan, component, policy, rng)
            for one, told in replays.items():
                if episode.trace is not None:
                    told.append((1.0, world.worth(one)))
                elif any(one is on_trial for on_trial in ledger.policies):
                    told.append((1.0, 0.0))  # what nobody saw counts at its worst
            parts = world.shares(plan, component, episode)
            for one, share in zip(plan.policy.components, parts, strict=True):
                came.setdefault(one, []).append((share, total))
            agent.learn(episode, plan_id=plan.id)
    assert left


def interval(k, n, log_term):
    """All p against which k of n have not gained 1/δ': the wealth is B(k+½, n−k+½)/B(½, ½) over p^k (1−p)^(n−k)."""

    def too_much(p):
        return betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5) - k * np.log(p) - (n - k) * np.log1p(-p) - log_term

    tiny = 1e-13
    low = 0.0 if k == 0 else brentq(too_much, tiny, k / n - (k == n) * tiny, xtol=1e-15)
    return low, 1.0 if k == n else brentq(too_much, k / n + (k == 0) * tiny, 1 - tiny, xtol=1e-15)


@SOME_AND_200
def test_the_box_proves_the_least_utility_of_a_plan(seeds):
    alone = 0
    for seed in seeds:
        cmdp, rng = drawn(seed), np.random.default_rng(seed)
        task, agent = cmdp.task, certified(cmdp.task, es.certify.Box(DELTA))
        steps, S, A = task.horizon - 1, task.num_states, task.num_actions
        counts, lower, upper = np.zeros((steps, S, A, S)), np.zeros((steps, S, A, S)), np.ones((steps, S, A, S))
        before = None
        for k, (plan, states, actions, _) in enumerate(played(cmdp, agent, 300, rng)):
            if plan is not before:  # the box is looked at when a plan is made, and only ever shrinks
                log_term, visits = math.log(counts.size / DELTA), counts.sum(axis=-1)
                for place in np.argwhere(counts.sum(axis=-1, keepdims=True).repeat(S, -1) > 0):
                    low, high = interval(counts[tuple(place)], visits[tuple(place[:3])], log_term)
                    lower[tuple(place)], upper[tuple(place)] = (
                        max(lower[tuple(place)], low), min(upper[tuple(place)], high)
                    )  # fmt: skip
                if k % 7 == 0 and plan.source != "safe":
                    least = [
                        task.threshold + task.slack if one is task.safe_policy and len(plan.policy.components) > 1
                        else oracles.box_value(task.utility, one.table(), lower, upper, task.initial_state, 1)
                        for one in plan.policy.components
                    ]  # fmt: skip
                    assert plan.utility_bound == pytest.approx(np.dot(plan.policy.weights, least), abs=CLOSE)
                    assert plan.utility_bound >= task.threshold
                    alone += len(least) == 1
            before = plan
            counts[np.arange(steps), states[:-2], actions[:-1], states[1:-1]] += 1
    assert alone


def fresh_bound(values, log_term):
    """The largest m against which some bet λ has Σ(λz − ψ(λ)z²) ≥ ln(1/δ'), z = X/m − 1; 0 if there is none."""
    found, (each, times) = [0.0], np.unique(values, return_counts=True)
    for bet in FRESH_BETS if each.any() else ():

        def missing(inverse, bet=bet):  # convex in 1/m, and more than 0 at the largest X
            z = each * inverse - 1
            return log_term - ((bet * z + (math.log1p(-bet) + bet) * z**2) * times).sum()

        first = 1 / each.max()
        least = minimize_scalar(missing, bounds=(first, 1e4 * first), method="bounded", options={"xatol": 1e-9})
        if least.fun <= 0:
            found.append(1 / brentq(missing, first, least.x, xtol=1e-15, rtol=1e-14))
    return max(found)


@SOME_AND_200
def test_fresh_data_prove_the_bound_of_a_policy(seeds):
    moved = 0
    for seed in seeds:
        cmdp, rows = drawn(seed), []
        task, agent = cmdp.task, certified(cmdp.task, es.certify.FreshData(DELTA))
        H, S, A, folds = task.horizon, task.num_states, task.num_actions, max(task.horizon - 1, 1)
        first = None
        for k, (plan, states, actions, _) in enumerate(
            played(cmdp, agent, FIRST_EPOCH + folds, np.random.default_rng(seed))
        ):
            first = first or (plan, agent.certificate._proposal)
            if plan is not first[0]:
                break
            h = k % folds
            rows.append((states[h], actions[h], states[h + 1]))
        log_term = math.log(1 * 2 * len(STEPS) * folds * S * A * len(FRESH_BETS) / DELTA)

        def bound_of(table, task=task, rows=rows, log_term=log_term, H=H, S=S, A=A, folds=folds):
            V = np.zeros(S)
            for h in reversed(range(H)):
                Q = task.utility[h].copy()
                for s, a in np.ndindex(S, A) if h < H - 1 else ():
                    seen = [V[then] - V.min() for at, did, then in rows[h::folds] if (at, did) == (s, a)]
                    Q[s, a] += V.min() + min(fresh_bound(seen, log_term), np.ptp(V))
                V = (table[h] * Q).sum(axis=1)
            return V[task.initial_state]

        incumbent, proposal = task.safe_policy.table(), first[1].policy.table()
        needed = task.threshold * (1 - LEAST_DEVIATION) ** -H
        tried = ((step, bound_of((1 - step) * incumbent + step * proposal)) for step in STEPS)
        step, bound = next((step, bound) for step, bound in tried if step == 0 or bound >= needed)
        moved += step > 0
        bound = bound if step > 0 else max(bound, task.threshold + task.slack)
        kept = (task.threshold / bound) ** (1 / H)
        assert plan.utility_bound == pytest.approx(kept**H * bound, abs=CLOSE)
        assert agent.certificate.bound == pytest.approx(bound, abs=CLOSE)
        certified_table = (1 - step) * incumbent + step * proposal
        then = kept * certified_table + (1 - kept) * agent.certificate._proposal.policy.table()
        np.testing.assert_allclose(plan.policy.table(), then, atol=CLOSE)
    assert moved
