"""A problem of your own as arrays, and your own loop around plan and learn."""

import numpy as np

import episafe as es

# A shelf of 0..4 units, 0..2 ordered each morning of a week. Reward: units sold less those unsold, scaled to [0, 1];
# utility: the probability that nobody is turned away.
H, S, A = 7, 5, 3
demand = np.array([0.2, 0.5, 0.3])  # of 0, 1, 2 units
P, reward, utility = np.zeros((H, S, A, S)), np.zeros((H, S, A)), np.zeros((H, S, A))
for stock in range(S):
    for order in range(A):
        available = min(stock + order, S - 1)
        for wanted, probability in enumerate(demand):
            P[:, stock, order, max(available - wanted, 0)] += probability
            sold, unsold = min(available, wanted), max(available - wanted, 0)
            reward[:, stock, order] += probability * (sold + 4 - unsold) / 6
            utility[:, stock, order] += probability * (wanted <= available)

incumbent = np.zeros((H, S, A))
incumbent[:, :, 2] = 1.0  # always order two

cmdp = es.LinearCMDP(P, reward, utility, initial_state=2, threshold=5.6, safe_policy=incumbent)
constants = es.Constants(C_r=4, C_u=1, C_dagger=0.3, B_dagger=4, kappa=0.005, lam_max=300, num_halvings=26)
agent = es.OPSE(cmdp.task, constants, replan=es.Doubling(0.3))

rng = np.random.default_rng(0)
worst = np.inf
for _ in range(10_000):
    plan = agent.plan()
    worst = min(worst, cmdp.evaluate(plan.policy)[1])
    states, actions = [cmdp.task.initial_state], []
    for h in range(H):  # your system goes here
        actions.append(rng.choice(A, p=plan.policy.probabilities(h, states[-1])))
        states.append(rng.choice(S, p=cmdp.P[h, states[-1], actions[-1]]))
    agent.learn(es.Episode(states, actions), plan_id=plan.id)

before, reached = (cmdp.evaluate(policy)[0] for policy in (incumbent, agent.plan().policy))
print(f"reward: incumbent {before:.3f}, now {reached:.3f}, optimum {cmdp.optimal_value():.3f}")
print(f"smallest utility deployed {worst:.3f}, threshold {cmdp.task.threshold}, level {agent.plan().level}")
