"""A shop orders every morning: more profit, while 90 % of the demand of 14 days is served in expectation.

The demand does not depend on what is ordered and is known in the evening. So every day tells what every policy would
have earned (`Hindsight`), and a better policy is deployed within weeks.
"""

import episafe as es


def main(num_episodes=200, seed=0):
    shop = es.make("inventory", seed)
    agent = es.SafeAgent(shop, delta=0.05)  # Hindsight, because the problem has exogenous chance
    record = es.run(shop, agent, num_episodes, seed)
    before, optimum = shop.evaluate(shop.task.incumbent)[0], shop.optimal_value()
    for k in (1, 10, 30, 100, num_episodes):
        if k <= num_episodes:
            share = (record.reward_values[k - 1] - before) / (optimum - before)
            print(f"episode {k:4}: {share:4.0%} of the way from the incumbent to the optimum")
    lowest, limit, level = record.utility_values.min(), shop.task.thresholds[0], record.settings["level"]
    print(f"lowest expected utility of a deployed mixture: {lowest:.2f}, limit {limit:.2f}, level {level}")
    return record


if __name__ == "__main__":
    main().plot().savefig("inventory.png")
