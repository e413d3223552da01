"""What logs and new bets prove: coverage and controls, episodes to prove a margin, rollouts, speed.

    python benchmarks/logs.py [coverage margin rollout observation tails speed, default all] [--quick]

Reported seeds begin at 0; bets were chosen on seeds from 1000.
"""

import sys
import time

import numpy as np
import pandas

import episafe as es
from episafe.data.prove import FORMS, form_of, lower_bound, read_steps, shares_of_log
from episafe.kernels.wealth import BET_WEIGHTS, BETS

DELTA = 0.05
OLD_BETS = np.concatenate([[0.98], 0.9 * 2.0 ** (-0.75 * np.arange(13))])
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


def coverage(quick):
    """Print how many bounds are wrong, of 100 worlds with several logs each, and in controls that must fail."""
    print(
        "\ncoverage: wrong bounds at delta = 0.3 (aim: at most 30 %), and controls without the test of the mean ratio"
    )
    logs, length = (1, 1000) if quick else (5, 2000)
    for H in (1, 3, 10):
        wrong, alarms, runs = np.zeros(4), np.zeros(4), 0
        for seed in range(100):
            world = World(H, np.random.default_rng([H, seed]))
            for k in range(logs):
                rng, runs = np.random.default_rng([H, seed, k]), runs + 1
                states, actions, wins = world.draw(length, rng)
                lost = (wins.mean(axis=1) < world.value) & (rng.random(length) < 0.7)
                twice = np.repeat(np.arange(length), 1 + 2 * (wins.mean(axis=1) > world.value))
                logged = [
                    (states, actions, wins),
                    world.draw(length, rng, world.tilted),
                    (states[~lost], actions[~lost], wins[~lost]),
                    (states[twice], actions[twice], wins[twice]),
                ]
                for j, one in enumerate(logged):
                    frame = world.frame(*one)
                    if j == 0:
                        told = {"total_range": (0, 1), "min_propensity": world.least, "delta": 0.3}
                        proof = es.prove(frame, world.candidate, 0.5, **told)
                        wrong[0] += proof.bound > world.value
                        alarms[0] += bool(proof.alarm)
                        continue
                    steps = read_steps(frame, [""])
                    q, largest = shares_of_log(steps, es.TablePolicy(world.candidate), world.least)
                    wrong[j] += lower_bound(q, steps.totals[:, 0], 0.3, (0.0, 1.0), largest) > world.value
        names = "true log", "wrong propensities", "failures missing", "successes three times"
        row = ", ".join(f"{name} {share:.1%}" for name, share in zip(names, wrong / runs, strict=True))
        print(f"  H={H:2d}, {runs} logs: {row}; false alarms {alarms[0] / runs:.1%} (at most 1 %)")


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


def margin(quick):
    """Print how many logged episodes prove a margin, beside two sequences of importance-weighted totals."""
    print(
        "\nmargin: logged episodes until a limit is proved, delta = 0.05, medians: share form, wealth of ρX, Bernstein"
    )
    runs = 20 if quick else 100
    for rate in (0.05, 0.1, 0.2):
        found = []
        for seed in range(runs):
            rng, n = np.random.default_rng([7, seed]), int(6000 / rate)
            found.append(episodes_to_prove((rng.random(n) < rate) * 1.0, (rng.random(n) < 0.97) * 1.0, 1 / rate, 0.9))
        one = np.median(found, axis=0)
        aim = "; aim at most 2,216, prototype 1,705" if rate == 0.1 else ""
        print(f"  b=.9 V=.97, match rate {rate}: {show(one)}; ratio {one[0] / one[1:].min():.2f} (aim 0.5){aim}")
    for H, name in ((1, "bandits"), (3, "three steps"), (10, "ten steps")):
        found = []
        for seed in range(40 if quick else 400):
            world = World(H, np.random.default_rng([H, seed]))
            states, actions, wins = world.draw(60_000, np.random.default_rng([H, seed, 9]))
            steps = np.arange(H)
            ratio = world.candidate[steps, states, actions] / world.logging[steps, states, actions]
            largest = (world.candidate.max(axis=(1, 2)) / world.least).prod()
            found.append(
                episodes_to_prove(ratio.prod(axis=1) / largest, wins.mean(axis=1), largest, world.value - 0.03)
            )
        one = np.median(found, axis=0)
        print(f"  {len(found)} random problems, {name}: {show(one)}; ratio {one[0] / one[1:].min():.2f}")


def show(numbers):
    """Return numbers of episodes as text."""
    return ", ".join(f"{one:,.0f}" if np.isfinite(one) else "over 60,000" for one in numbers)


def rollout(quick):
    """Print deployments of `Rollout` until the candidate stands alone, with the bets before and now."""
    print("\nrollout: deployments until the candidate acts alone, median (aims 60 190 240 480; before 74 230 290 560)")
    for name, (b, incumbent, mean, spread) in SETTINGS.items():
        needed = [alone(b, incumbent, mean, spread, seed) for seed in range(20 if quick else 100)]
        print(f"  {name}: {np.median(needed):.0f} (quartiles {np.percentile(needed, [25, 75]).round().tolist()})")


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


def observation(quick):
    """Print the share of the way from incumbent to optimum at 1,000 episodes under `Observation`."""
    print("\nobservation: share of the way at 1,000 episodes (aims .78 .50 .86; before .68 .55 .83)")
    for name in ("inventory", "battery", "cloud"):
        shares, violations = [], 0
        for seed in range(3 if quick else 20):
            problem = es.make(name, seed=seed)
            record = es.run(problem, es.SafeAgent(problem, es.certify.Observation(delta=DELTA)), 1000, seed=seed)
            start = problem.evaluate(problem.task.incumbent)[0]
            shares.append((record.reward_values[-1] - start) / (problem.optimal_value() - start))
            violations += record.utility_values.min() < record.threshold - 1e-9
        error = np.std(shares) / np.sqrt(len(shares))
        print(f"  {name}: {np.mean(shares):.3f} ± {error:.3f}, runs with a violation {violations} of {len(shares)}")


def tails(quick):
    """Print the share of the way on problems with a limit on the worst tenth, and wrong mixtures in many short runs."""
    print("\ntails: mean of the worst tenth; share of the way at 100, 300 and 1,000 episodes, and violations (aim 5 %)")
    for name, at_least in (("inventory", 10.0), ("cloud", 22.0)):
        problem = es.tail(es.make(name, seed=0), 0.1, at_least)
        start, least = problem.evaluate(problem.task.incumbent)[0], problem.task.thresholds[0] - 1e-9
        for certifier in (es.certify.Hindsight, es.certify.Observation):
            way = []
            for seed in range(2 if quick else 5):
                record = es.run(problem, es.SafeAgent(problem, certifier(delta=DELTA)), 1000, seed=seed)
                way.append((record.reward_values - start) / (problem.optimal_value() - start))
                assert record.utility_values.min() >= least
            shares = np.mean(way, axis=0)[[99, 299, 999]].round(2).tolist()
            print(f"  {name}, cut {problem.origin['tail'].split()[-1]}, {certifier.__name__}: {shares}")
    runs, wrong, acted = 50 if quick else 1000, 0, 0
    for seed in range(runs):
        rng = np.random.default_rng([11, seed])
        agent = es.Rollout(es.tail(None, 0.1, 0.5, cut=0.8), 0.02, {"good": "good", "bad": "bad"}, "v1")
        values = {"v1": 0.79, "good": 0.785, "bad": 0.74}  # E[min(X, 0.8)]; the limit is 0.77
        for _ in range(120):
            plan = agent.plan()
            parts = parts_of(plan)
            component = int(rng.choice(len(parts), p=[w for _, w in parts]))
            name = parts[component][0]
            wrong_now = sum(w * values[one] for one, w in parts) < 0.77 - 1e-9
            if wrong_now:
                wrong += 1
                break
            acted += name != "v1"
            low = {"v1": 0.0125, "good": 0.01875, "bad": 0.075}[name]  # how often the total is 0; else it is 1 at least
            total = 0.0 if rng.random() < low else 1.0 + rng.random()
            agent.learn(es.Episode.of_totals(total, component=component), plan.id)
    print(
        f"  Rollout: {wrong} of {runs} runs deploy a mixture below the limit (aim 5 %), {acted / runs:.0f} trials each"
    )


def parts_of(plan):
    """Return names and weights of the policies that a plan of `tails` may let act."""
    if isinstance(plan.policy, es.Mixture):
        names = ["v1" if one == "incumbent" else one for one in plan.policy.names]
        return list(zip(names, plan.policy.weights.tolist(), strict=True))
    return [("v1" if plan.source == "safe" else plan.policy.name, 1.0)]


def speed(quick):
    """Print the CPU seconds of `es.prove` on 10⁵ rows."""
    rng, n = np.random.default_rng(0), 100_000
    told = {"step": np.tile(np.arange(10), n // 10), "action": rng.integers(2, size=n), "propensity": 0.5}
    frame = pandas.DataFrame({"episode": np.repeat(np.arange(n // 10), 10), **told, "utility": rng.random(n) / 10})
    print("\nspeed: CPU seconds of es.prove on 100,000 rows (aim 1)")
    for name, states in (
        ("numbers", {"state": rng.integers(500, size=n)}),
        ("pairs", {"state_0": rng.random(n), "state_1": 1.0}),
    ):
        for _ in range(2):  # the first call compiles
            began = time.process_time()
            es.prove(frame.assign(**states), lambda h, s: [0.4, 0.6], 0.4, total_range=(0, 1), min_propensity=0.5)
        print(f"  states are {name}: {time.process_time() - began:.2f}")


def main():
    """Run the named parts."""
    quick, parts = "--quick" in sys.argv, [one for one in sys.argv[1:] if one != "--quick"]
    every = {one.__name__: one for one in (coverage, margin, rollout, observation, tails, speed)}
    for name in parts or every:
        every[name](quick)


if __name__ == "__main__":
    main()
