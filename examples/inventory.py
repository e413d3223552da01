"""A shop orders every morning: more profit, while 90 % of the demand of 14 days is served in expectation.

The demand does not depend on what is ordered and is known in the evening. So every day tells what every policy would
have earned (`Hindsight`), and a better policy is deployed within weeks. The session runs on a log in a folder: `make
demo` runs this file and writes a page of the session.
"""

import numpy as np

import episafe as es


def value(shop, plan):
    """Return the exact expected reward and utility of a plan, which the agent does not see."""
    mixture = plan.policy
    parts = zip(mixture.weights, mixture.components, strict=True) if isinstance(mixture, es.Mixture) else [(1, mixture)]
    return sum(weight * np.array(shop.evaluate(policy)) for weight, policy in parts)


def main(num_episodes=150, seed=0, folder="demo"):
    shop, rng = es.make("inventory", seed), np.random.default_rng(seed)
    session = es.open(folder, es.SafeAgent(shop, delta=0.05))  # Hindsight, because the problem has exogenous chance
    values = []
    for _ in range(num_episodes):  # an episode has 14 days
        stock, demands = shop.draw_trace(rng)  # your system does this part
        with session.deploy() as deployment:
            for day, demand in enumerate(demands):
                order = deployment.act(stock)
                stock, reward, utility = shop.task.move(day, stock, order, demand)
                deployment.record(reward=reward, utility=utility, chance=demand)
        values.append(value(shop, deployment.plan))
    session.close()
    rewards, utilities = np.array(values).T
    before, optimum = shop.evaluate(shop.task.incumbent)[0], shop.optimal_value()
    for k in (1, 10, 30, 100, num_episodes):
        if k <= num_episodes:
            print(f"episode {k:4}: {(rewards[k - 1] - before) / (optimum - before):4.0%} of the way to the optimum")
    print(f"lowest expected utility of a deployed plan: {utilities.min():.2f}, limit {shop.task.thresholds[0]:.2f}")
    print(es.audit(folder))
    return rewards, utilities


if __name__ == "__main__":
    main()
