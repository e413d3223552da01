"""OPSE on the paper's streaming problem: regret against the exact optimum, and not one unsafe episode."""

import episafe as es

cmdp = es.make("streaming", seed=0)
agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"), replan=es.Doubling(0.3))
record = es.run(cmdp, agent, num_episodes=10_000, seed=0)

print(f"optimum {cmdp.optimal_value():.3f}, threshold {cmdp.task.threshold:.3f}")
print(f"regret {record.regret()[-1]:.0f}, violation {record.violation()[-1]:.3f}")
print(f"incumbent deployed {record.safe_deployments()[-1]} times, smallest utility {record.utility_values.min():.3f}")
