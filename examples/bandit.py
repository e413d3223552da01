"""A shop shows one item a visit. Reward: a click. Utility: its margin, which must stay above a floor in expectation."""

import numpy as np

import episafe as es

shop = es.bandits.make("catalogue", seed=0, slack=0.15)  # 40 items; the incumbent shows the four of best margin
# optimism below the theorem's 1 + 2B/ξ gives up its regret bound, not its safety; on few visits it earns more
agent = es.bandits.OPLBSP(shop.task, radius="determinant", delta=0.05, replan=es.Doubling(0.3), optimism=1.0)

rng = np.random.default_rng(0)
worst = np.inf
late = []  # margins are known only when a day's orders are booked: feedback comes in batches
for visit in range(50_000):
    if visit % 500 == 0:
        plan = agent.plan()
        worst = min(worst, shop.evaluate(plan)[1])
    item = plan.draw(rng)
    click, margin = (
        rng.random() < item @ shop.theta_r,
        item @ shop.theta_u + 0.5 * rng.normal(),
    )  # your system goes here
    late.append((item, float(click), margin))
    if len(late) == 500:
        agent.learn(*(np.array(column) for column in zip(*late, strict=True)))
        late = []

before, now = (shop.evaluate(policy)[0] for policy in (shop.safe_policy(), agent.plan()))
print(f"click rate: incumbent {before:.3f}, now {now:.3f}, optimum {shop.optimal_value():.3f}")
print(f"smallest expected margin deployed {worst:.3f}, floor {shop.task.threshold:.3f}, level {agent.plan().level}")
plan = agent.plan()
print(f"now: {len(plan.atoms)} items with probabilities {plan.probabilities.round(3)}, bound {plan.utility_bound:.3f}")
