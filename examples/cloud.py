"""A service lets requests in, and keeps its latency in nine minutes of ten. `--full` for the figures."""

import sys

import episafe as es
from episafe.envs.cloud import Cloud
from episafe.envs.gymnasium import RulesEnv
from episafe.reports.outcome import Outcome, draw_outcomes

FULL = "--full" in sys.argv
SEEDS = range(3) if FULL else range(1)


def learn(problem, num_episodes, seed):
    """Every deployed mixture keeps the threshold in expectation, with probability 0.95 over the whole run."""
    agent = es.OPSE(problem.task)  # chance is exogenous and seen: every trace judges every policy, at δ = 0.05
    return es.run(problem, agent, num_episodes, seed=seed), agent.plan()


def small(num_episodes):
    """A queue of 12 and three loads, 39 states, exact values. Chance is seen: every hour judges every policy."""
    problems = [es.make("cloud", seed) for seed in SEEDS]
    pairs = zip(SEEDS, problems, strict=True)
    records = [es.run(problem, es.OPSE(problem.task), num_episodes, seed=seed) for seed, problem in pairs]
    incumbents = [problem.evaluate(problem.task.safe_policy) for problem in problems]
    optima = [problem.optimal_value() for problem in problems]
    outcome = Outcome("Small service: 39 states, exact", records, incumbents, optima, "minutes within the objective")
    for seed, record in zip(SEEDS, records, strict=True):
        share, spare = outcome.shares(record.reward_values, seed), record.utility_values - record.threshold
        regrets = f"{record.regret()[-1]:,.0f} ({num_episodes * outcome.span(seed):,.0f})"
        half = int((share > 0.5).argmax()) + 1 if (share > 0.5).any() else "never"
        print(
            f"small, seed {seed}: {share[-1]:.0%} of the way to the optimum, half at episode {half}; lowest utility "
            f"{spare.min():+.2f} over b; regret (the incumbent's) {regrets}"
        )
    return outcome


def large(num_episodes):
    """A queue of 499 and 20 loads: 10,000 states, none of them listed. Put your own service here."""
    service = Cloud(
        caps=(30, 40, 50, 80), arrivals=(20.0, 60.0), served=40.0, longest=499, patience=80, loads=20, calm=0.5,
        variation=0.2,
    )  # fmt: skip
    env = RulesEnv(service)
    problem = es.from_gymnasium(
        env,
        move=env.move,  # what chance brings is seen afterwards, so that every trace judges every policy
        # coarse cells: not quite true, so proposals suffer; the certificate does not rest on them
        features=es.features.OneHot(lambda s: (min(int(s[0]) // 8, 20), int(s[1]) // 4), size=21 * 5),
        time_homogeneous=True,
        horizon=service.horizon,
        threshold=0.9 * service.horizon,
        slack=2.9,  # what the incumbent has to spare, at least; printed below with its interval
        safe_policy=lambda h, state: service.incumbent(h, tuple(state)),
    )
    found = [learn(problem, num_episodes, seed) for seed in SEEDS]
    fresh = 500 if FULL else 100  # episodes that no run has seen
    incumbent = es.estimate(problem, problem.task.safe_policy, fresh, seed=1_000)
    print(f"large, incumbent: {incumbent}, b = {problem.task.threshold:.2f}")
    for seed, (_, plan) in zip(SEEDS, found, strict=True):
        last = es.estimate(problem, plan.policy, fresh, seed=2_000 + seed)
        print(f"large, seed {seed}, last plan: {last}, level {plan.level}")
    incumbents = [(incumbent.reward, incumbent.utility)] * len(found)
    return Outcome(
        "Large service: 10,000 states",
        [record for record, _ in found],
        incumbents,
        None,
        "minutes within the objective",
    )


if __name__ == "__main__":
    rows = [small(300), large(100)] if FULL else [small(100), large(40)]
    print(draw_outcomes(rows, 30, "cloud.png"))
