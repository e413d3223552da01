"""Explore with a proof: every deployed mixture keeps the threshold, with probability 0.95 over the whole run."""

import numpy as np

import episafe as es

cmdp = es.make("streaming", seed=0)
task = cmdp.task
agent = es.OPSE(task)  # by observed utilities: es.certify.Observation(delta=0.05)
rng = np.random.default_rng(0)

for _ in range(300):  # your own loop; es.run does the same, faster
    plan = agent.plan()
    component, policy = plan.policy.draw(rng)  # of a mixture one policy acts, for the whole episode
    states, actions = [task.initial_state], []
    for h in range(task.horizon):
        actions.append(int(rng.choice(task.num_actions, p=policy.probabilities(h, states[-1]))))
        states.append(int(rng.choice(task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
    agent.learn(es.Episode(states, actions, component=component), plan_id=plan.id)

plan = agent.plan()
print("source", plan.source, "level", plan.level, "proved utility", plan.utility_bound, "required", task.threshold)
print("exact utility", cmdp.evaluate(plan.policy)[1], "reward", cmdp.evaluate(plan.policy)[0])
print("reward of the incumbent", cmdp.evaluate(task.safe_policy)[0], "of the optimum", cmdp.optimal_value())
