"""What logs and new bets prove: coverage and controls, episodes to prove a margin, rollouts, speed.

    python benchmarks/logs.py [coverage margin rollout observation tails speed, default all] [--quick] [--jobs N]

Every target is printed with what was found, and "pass" or "MISS". Reported seeds begin at 0; bets were chosen on seeds
from 1000. The full form needs about 10 minutes of CPU.
"""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import pandas
from scipy.stats import beta

import episafe as es
from episafe.data.prove import FORMS, form_of, lower_bound, read_steps, shares_of_log
from episafe.kernels.wealth import BET_WEIGHTS, BETS

DELTA = 0.05
Each = Callable[[Callable[..., Any], list[tuple[Any, ...]]], list[Any]]  # a function on each of its arguments
CONTROLS = "wrong propensities", "failures missing", "successes three times"
SETTINGS = {  # Rollout: threshold, utility of the incumbent, mean and standard deviation of the candidate's Beta totals
    "b=.5 V=.60": (0.5, 0.7, 0.6, 0.2),
    "b=.8 V=.85": (0.8, 0.9, 0.85, 0.1),
    "b=.9 V=.95": (0.9, 0.99, 0.95, 0.1),
    "b=.9 V=.93": (0.9, 0.95, 0.93, 0.1),
}


class World:
    """A random problem with contexts: X is the mean of H successes, and the log knows its action probabilities."""

    def __init__(self, horizon, rng, num_states=3):
        H, S = horizon, num_states
        least, most = {1: (0.1, 1.0), 3: (0.3, 0.9), 10: (0.4, 0.55)}[H]
        A = 4 if H == 1 else 2
        self.least, self.shape = least, (H, S, A)
        spread = rng.dirichlet(np.ones(A), (H, S))
        self.logging = least + (1 - A * least) * spread
        if H == 1:
            self.candidate = np.eye(A)[rng.integers(A, size=(H, S))]
        else:
            p = rng.uniform(1 - most, most, (H, S))
            self.candidate = np.stack([p, 1 - p], axis=-1)
        self.P, self.start = rng.dirichlet(np.ones(S), (H, S, A)), rng.dirichlet(np.ones(S))
        self.success = rng.uniform(0.5, 1.0, (H, S, A))
        value = np.zeros(S)
        for h in reversed(range(H)):
            value = (self.candidate[h] * (self.success[h] / H + self.P[h] @ value)).sum(axis=1)
        self.value = float(self.start @ value)
        tilted = self.logging * self.success**8  # a log that prefers what succeeds, and does not say so
        self.tilted = tilted / tilted.sum(axis=2, keepdims=True)

    def draw(self, number, rng, drawn_by=None):
        """Return states, actions and successes (n, H) of logged episodes."""
        drawn_by = self.logging if drawn_by is None else drawn_by
        H = self.shape[0]
        states, actions, wins = (np.zeros((number, H), dtype=int) for _ in range(3))
        state = draw_rows(np.tile(self.start, (number, 1)), rng)
        for h in range(H):
            states[:, h], actions[:, h] = state, draw_rows(drawn_by[h, state], rng)
            wins[:, h] = rng.random(number) < self.success[h, state, actions[:, h]]
            state = draw_rows(self.P[h, state, actions[:, h]], rng)
        return states, actions, wins

    def frame(self, states, actions, wins):
        """Return a data frame of logged episodes."""
        n, H = states.shape
        steps = np.tile(np.arange(H), n)
        flat = {"state": states.ravel(), "action": actions.ravel(), "utility": wins.ravel() / H}
        at = self.logging[steps, flat["state"], flat["action"]]
        return pandas.DataFrame({"episode": np.repeat(np.arange(n), H), "step": steps, **flat, "propensity": at})


def draw_rows(probabilities, rng):
    """Draw an index from each row."""
    return (probabilities.cumsum(axis=1) < rng.random(len(probabilities))[:, None]).sum(axis=1)


def check(what, found, passed):
    """Print a target, what was found, and whether it was reached."""
    print(f"  {'pass' if passed else 'MISS'}  {what}: {found}", flush=True)


def at_most(count, runs):
    """Return the upper end of the exact 95 % confidence interval (one-sided) of a probability."""
    return 1.0 if count == runs else float(beta.ppf(0.95, count + 1, runs - count))


def coverage(quick, each):
    """Print how many bounds are wrong, of 100 worlds with several logs each, and in controls that must fail."""
    print("\ncoverage: 100 worlds each; controls have no test of the mean ratio")
    logs, length = (1, 1000) if quick else (5, 2000)
    for H in (1, 3, 10):
        found = np.sum(each(world_coverage, [(H, seed, logs, length) for seed in range(100)]), axis=0)
        runs = 100 * logs
        for delta, wrong in ((0.05, found[0]), (0.3, found[1])):
            most = at_most(wrong, runs)
            what = f"H={H}, coverage at least {1 - delta:.0%}"
            check(what, f"{1 - wrong / runs:.1%} of {runs} (95 % confident: at least {1 - most:.1%})", most <= delta)
        for name, wrong in zip(CONTROLS, found[2:5], strict=True):
            check(f"H={H}, control fails at delta 0.3: {name}", f"{wrong / runs:.1%} wrong", wrong / runs > 0.3)
        alarms = found[5] / runs
        check(f"H={H}, false alarms of the mean ratio at most 1 %", f"{alarms:.1%}", alarms <= 0.01)


def world_coverage(H, seed, logs, length):
    """Return wrong bounds at δ = 0.05 and 0.3, wrong bounds of three controls at 0.3, and alarms, of one world."""
    world, found = World(H, np.random.default_rng([H, seed])), np.zeros(6)
    for k in range(logs):
        rng = np.random.default_rng([H, seed, k])
        states, actions, wins = world.draw(length, rng)
        lost = (wins.mean(axis=1) < world.value) & (rng.random(length) < 0.7)
        twice = np.repeat(np.arange(length), 1 + 2 * (wins.mean(axis=1) > world.value))
        proof = es.prove(
            world.frame(states, actions, wins), world.candidate, 0.5, total_range=(0, 1), min_propensity=world.least
        )
        found[0] += proof.bound > world.value
        found[5] += bool(proof.alarm)
        logged = (
            (states, actions, wins),
            world.draw(length, rng, world.tilted),
            (states[~lost], actions[~lost], wins[~lost]),
            (states[twice], actions[twice], wins[twice]),
        )
        for j, one in enumerate(logged, 1):
            steps = read_steps(world.frame(*one), [""])
            q, largest = shares_of_log(steps, es.TablePolicy(world.candidate), world.least)
            found[j] += lower_bound(q, steps.totals[:, 0], 0.3, (0.0, 1.0), largest) > world.value
    return found


def first(logs, log_term):
    """Return how many episodes it takes until the wealth, mixed over bets, reaches 1/δ; inf if never."""
    top = logs.max(axis=1)
    reached = top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) >= log_term
    return float(reached.argmax() + 1) if reached.any() else np.inf


def episodes_to_prove(q, X, largest, limit):
    """Return episodes until `es.prove`, the wealth of ρX, and an empirical-Bernstein sequence of ρX prove a limit.

    The last is the predictable plug-in of Waudby-Smith and Ramdas for values in [0, 1], here qX of mean V/ρ_max.
    """
    log_term, logs = np.log(1 / DELTA), []
    for part, weight in FORMS.items():
        s, Y = form_of(q, X, 0.0, largest, part)
        logs.append(np.log1p(BETS * (s * (Y / limit - 1))[:, None]).cumsum(axis=0) + np.log(weight * BET_WEIGHTS))
    weighted = np.log1p(BETS * (q * X * largest / limit - 1)[:, None]).cumsum(axis=0) + np.log(BET_WEIGHTS)
    Y, n = q * X, np.arange(1, len(q) + 1)
    means = (0.5 + Y.cumsum()) / (n + 1)
    spread = (0.25 + ((Y - means) ** 2).cumsum()) / (n + 1)
    before = np.append(0.5, means[:-1]), np.append(0.25, spread[:-1])
    bets = np.minimum(np.sqrt(2 * log_term / (before[1] * n * np.log(1 + n))), 0.5)
    cost = (Y - before[0]) ** 2 * (-np.log1p(-bets) - bets)
    proved = ((bets * Y).cumsum() - log_term - cost.cumsum()) / bets.cumsum() * largest >= limit
    bernstein = float(proved.argmax() + 1) if proved.any() else np.inf
    return first(np.concatenate(logs, axis=1), log_term), first(weighted, log_term), bernstein


def margin(quick, each):
    """Print how many logged episodes prove a margin, beside two sequences of importance-weighted totals."""
    print("\nmargin: logged episodes that prove a limit at delta = 0.05; medians with 95 % intervals")
    for rate in (0.05, 0.1, 0.2):
        found = np.array(each(toy_margin, [(rate, seed) for seed in range(20 if quick else 100)]))
        if rate == 0.1:
            needed = np.median(found[:, 0])
            check("toy b=.9 V=.97 at match rate 0.1, at most 1.3 · 1,705", interval(found[:, 0]), needed <= 1.3 * 1705)
        compare(f"toy b=.9 V=.97, match rate {rate}", found)
    for H, name in ((1, "bandits"), (3, "three steps"), (10, "ten steps")):
        found = np.array(each(world_margin, [(H, seed) for seed in range(40 if quick else 400)]))
        if H == 3:
            needed = np.median(found[:, 0])
            check("random problems of three steps, at most 1.3 · 3,162", interval(found[:, 0]), needed <= 1.3 * 3162)
        compare(f"{len(found)} random problems, {name}, match rate {np.median(found[:, 3]):.2f}", found)


def compare(what, found):
    """Print medians of the share form and of both importance-weighted sequences, against the target of one half."""
    ours, wealth, bernstein = (np.median(found[:, j]) for j in range(3))
    for name, theirs in (("Bernstein sequence of ρX", bernstein), ("wealth of ρX", wealth)):
        check(
            f"{what}, at most half of the {name}",
            f"{show(ours)} against {show(theirs)}, ratio {ours / theirs:.2f}",
            ours <= theirs / 2,
        )


def toy_margin(rate, seed):
    """Return episodes of the three methods, and the match rate, in a toy with totals 0 and 1."""
    rng, n = np.random.default_rng([7, seed]), int(6000 / rate)
    return *episodes_to_prove((rng.random(n) < rate) * 1.0, (rng.random(n) < 0.97) * 1.0, 1 / rate, 0.9), rate


def world_margin(H, seed):
    """Return episodes of the three methods to prove V − 0.03, and the match rate 1/ρ_max, in one random problem."""
    world = World(H, np.random.default_rng([H, seed]))
    states, actions, wins = world.draw(60_000, np.random.default_rng([H, seed, 9]))
    steps = np.arange(H)
    ratio = world.candidate[steps, states, actions] / world.logging[steps, states, actions]
    largest = (world.candidate.max(axis=(1, 2)) / world.least).prod()
    shares = ratio.prod(axis=1) / largest
    return *episodes_to_prove(shares, wins.mean(axis=1), largest, world.value - 0.03), 1 / largest


def interval(numbers):
    """Return a median with its bootstrap interval as text."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(numbers, (1000, len(numbers))), axis=1)
    low, high = np.sort(medians)[[25, 975]]
    return f"{show(np.median(numbers))} [{show(low)}, {show(high)}]"


def show(number):
    """Return a number of episodes as text."""
    return f"{number:,.0f}" if np.isfinite(number) else "over 60,000"


def rollout(quick, each):
    """Print deployments of `Rollout` until the candidate acts alone."""
    print("\nrollout: deployments until the candidate acts alone, median")
    for (name, setting), most in zip(SETTINGS.items(), (60, 190, 240, 480), strict=True):
        needed = np.array(each(alone, [(*setting, seed) for seed in range(20 if quick else 100)]))
        check(f"{name}, at most {most}", interval(needed), np.median(needed) <= most)


def alone(b, incumbent, mean, spread, seed):
    """Return after how many deployments the candidate acts alone."""
    rng, size = np.random.default_rng(seed), mean * (1 - mean) / spread**2 - 1
    agent = es.Rollout(b, incumbent - b, {"v2": "v2"}, "v1")
    for k in range(5000):
        plan = agent.plan()
        if plan.source != "safe" and not isinstance(plan.policy, es.Mixture):
            return k
        component = int(rng.random() >= plan.policy.weights[0]) if isinstance(plan.policy, es.Mixture) else 0
        acted = isinstance(plan.policy, es.Mixture) and plan.policy.names[component] == "v2"
        X = rng.beta(mean * size, (1 - mean) * size) if acted else incumbent
        agent.learn(es.Episode.of_totals(X, component=component), plan.id)
    return 5000


@cache
def problem_of(name, at_least, seed):
    """Return a problem, as it is or with a limit on the worst tenth, the incumbent's reward and the optimum."""
    problem = es.make(name, seed=seed)
    if at_least is not None:
        problem = es.tail(problem, 0.1, at_least)
    return problem, problem.evaluate(problem.task.incumbent)[0], problem.optimal_value()


def share_of_way(name, at_least, certifier, seed):
    """Return the share of the way from incumbent to optimum at 100, 300 and 1,000 episodes, and a violation."""
    problem, start, best = problem_of(name, at_least, seed if at_least is None else 0)
    record = es.run(problem, es.SafeAgent(problem, getattr(es.certify, certifier)(delta=DELTA)), 1000, seed=seed)
    violated = (record.utility_values < record.threshold - 1e-9).any()
    return [*((record.reward_values - start) / (best - start))[[99, 299, 999]], violated]


def observation(quick, each):
    """Print the share of the way from incumbent to optimum at 1,000 episodes under `Observation`."""
    print("\nobservation: share of the way from incumbent to optimum at 1,000 episodes")
    runs = 3 if quick else 20
    for name, least in (("inventory", 0.78), ("battery", 0.5), ("cloud", 0.86)):
        found = np.array(each(share_of_way, [(name, None, "Observation", seed) for seed in range(runs)]))
        mean, error = found[:, 2].mean(), found[:, 2].std() / np.sqrt(runs)
        wrong = f"{found[:, 3].sum():.0f} of {runs} runs have a violation"
        check(f"{name}, at least {least}", f"{mean:.3f} ± {error:.3f}; {wrong}", mean >= least)


def tails(quick, each):
    """Print gains on problems with a limit on the worst tenth, and wrong mixtures in many short runs."""
    print("\ntails: limit on the mean of the worst tenth of episodes")
    runs = 2 if quick else 10
    for name, at_least in (("inventory", 10.0), ("cloud", 22.0)):
        for certifier in ("Hindsight", "Observation"):
            found = np.array(each(share_of_way, [(name, at_least, certifier, seed) for seed in range(runs)]))
            shares = ", ".join(f"{one:.2f}" for one in found[:, :3].mean(axis=0))
            least = found[:, 2].mean() - 2 * found[:, 2].std() / np.sqrt(runs)
            result = f"share of the way at 100, 300, 1,000: {shares}; {found[:, 3].sum():.0f} of {runs} runs violate"
            check(f"{name}, {certifier}, gain within 1,000 episodes", result, least > 0 and not found[:, 3].any())
    runs = 50 if quick else 1000
    found = np.array(each(tail_rollout, [(seed,) for seed in range(runs)]))
    wrong, trials = found[:, 0].sum(), found[:, 1].mean()
    result = f"{wrong:.0f} of {runs} runs deploy a mixture below the limit; {trials:.1f} trials per run"
    check(f"Rollout, violations in at most {DELTA:.0%} of {runs} runs", result, wrong <= DELTA * runs)


def tail_rollout(seed):
    """Return whether a run of `Rollout` with a tail limit deploys a mixture below it, and how often a trial acted."""
    rng, acted = np.random.default_rng([11, seed]), 0
    agent = es.Rollout(es.tail(None, 0.1, 0.5, cut=0.8), 0.02, {"good": "good", "bad": "bad"}, "v1")
    values = {"v1": 0.79, "good": 0.785, "bad": 0.74}  # E[min(X, 0.8)]; the limit is 0.77
    for _ in range(120):
        plan = agent.plan()
        parts = parts_of(plan)
        component = int(rng.choice(len(parts), p=[w for _, w in parts]))
        name = parts[component][0]
        if sum(w * values[one] for one, w in parts) < 0.77 - 1e-9:
            return 1, acted
        acted += name != "v1"
        low = {"v1": 0.0125, "good": 0.01875, "bad": 0.075}[name]  # how often the total is 0; else it is 1 at least
        total = 0.0 if rng.random() < low else 1.0 + rng.random()
        agent.learn(es.Episode.of_totals(total, component=component), plan.id)
    return 0, acted


def parts_of(plan):
    """Return names and weights of the policies that a plan of `tails` may let act."""
    if isinstance(plan.policy, es.Mixture):
        names = ["v1" if one == "incumbent" else one for one in plan.policy.names]
        return list(zip(names, plan.policy.weights.tolist(), strict=True))
    return [("v1" if plan.source == "safe" else plan.policy.name, 1.0)]


def speed(quick, each):
    """Print the CPU seconds of `es.prove` on 10⁵ rows."""
    rng, n = np.random.default_rng(0), 100_000
    told = {"step": np.tile(np.arange(10), n // 10), "action": rng.integers(2, size=n), "propensity": 0.5}
    frame = pandas.DataFrame({"episode": np.repeat(np.arange(n // 10), 10), **told, "utility": rng.random(n) / 10})
    print("\nspeed: es.prove on 100,000 rows")
    for name, states in (
        ("numbers", {"state": rng.integers(500, size=n)}),
        ("pairs", {"state_0": rng.random(n), "state_1": 1.0}),
    ):
        for _ in range(2):  # the first call compiles
            began = time.process_time()
            es.prove(frame.assign(**states), lambda h, s: [0.4, 0.6], 0.4, total_range=(0, 1), min_propensity=0.5)
        took = time.process_time() - began
        check(f"states are {name}, at most 1 s", f"{took:.2f} s of CPU", took <= 1)


def run_parts(*parts):
    """Run the parts that are named on the command line, or all."""
    every = {one.__name__: one for one in parts}
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[[], *every], default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    told = parser.parse_args()
    with ProcessPoolExecutor(told.jobs) as pool:

        def each(function, arguments):
            return list(pool.map(function, *zip(*arguments, strict=True)))

        for name in told.parts or every:
            every[name](told.quick, each)


if __name__ == "__main__":
    run_parts(coverage, margin, rollout, observation, tails, speed)
