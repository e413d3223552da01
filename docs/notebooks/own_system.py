# %% [markdown]
# # A system of your own
#
# You run something every day, by a rule that is known to be good enough. Could another rule do better, without the days getting
# worse on average? Here it is a **help desk**: how many people to put on duty, hour by hour. This notebook states the problem,
# forecasts how long learning takes, rehearses it on a simulator, runs it *live*, and lets an auditor verify it.

# %% [markdown]
# ## 1. Say what the system is
#
# A state is how many calls wait. An action is how many people are on duty, 2 to 5; each answers one call an hour. Chance brings
# the calls. `move` says what follows from all three: it is what you know about the system. How many calls come you do not
# know, and the agent is not told.
#
# *Reward*: people who need not be on duty, as a share of three. *Utility*: 1 in an hour after which at most one call waits, else 0.

# %%
import numpy as np

import episafe as es
from episafe.problems.rules import Rules, listed


class HelpDesk(Rules):
    horizon, num_actions, shape, start = 8, 4, (9,), (0,)  # hours, actions, 0 to 8 calls wait, nobody waits at first

    def chances(self, h, state):
        busy = (0.1, 0.15, 0.2, 0.25, 0.15, 0.1, 0.05)  # of 0 to 6 calls; quieter in the last hours
        quiet = (0.3, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02)
        return [(range(7), np.array(busy if h < 5 else quiet))]

    def move(self, h, state, action, luck):
        waiting = max(state[0] + luck[0] - (action + 2), 0)
        return (min(waiting, 8),), (3 - action) / 3, float(waiting <= 1)

    def incumbent(self, h, state):
        return np.array([0.0, 0.1, 0.8, 0.1])  # mostly four people, as today


desk = listed(HelpDesk(), threshold=7.0)  # in expectation at least 7 of 8 hours must be good
kept = desk.evaluate(desk.task.safe_policy)[1]
print(
    f"the incumbent keeps {kept:.2f} good hours of 8; required are {desk.task.threshold}; to spare: {desk.task.slack:.2f}"
)

# %% [markdown]
# ## 2. How long will it take?

# %%
print(es.forecast(desk))

# %% [markdown]
# ## 3. Rehearse it
#
# Calls do not depend on who is on duty, and they are seen: chance is *exogenous*. So every day that was ever seen says what any
# rule would have done on it, and `es.OPSE(task)` certifies by that, for 95 %. (Where that is not so it takes `Observation`, which needs no model.)

# %%
agent = es.OPSE(desk.task)
record = es.run(desk, agent, num_episodes=300, seed=0)
before, optimum = desk.evaluate(desk.task.safe_policy)[0], desk.optimal_value()
way = (record.reward_values[-1] - before) / (optimum - before)
print(f"reward {before:.2f} -> {record.reward_values[-1]:.2f}: {way:.0%} of the way to the optimum {optimum:.2f}")
print(f"deployed policies below the threshold: {record.violating().sum()} of {len(record.sources)}")

# %%
record.plot()

# %% [markdown]
# ## 4. Run it live
#
# Your program asks what acts today, acts, and reports the day, at once or later. Everything is in a journal before anybody
# acts: a crash, a late report or a full disk loses nothing, and whatever goes wrong deploys the incumbent.

# %%
task, rng = desk.task, np.random.default_rng(1)
agent = es.OPSE(task)
with es.open("journals/desk", agent=agent) as session:
    for _ in range(60):
        today = session.deploy(rng)  # who acts, registered
        calls = desk.draw_trace(rng)  # the real world; you would simply see it
        played = task.replay(today.policy, calls, rng)  # act by today.policy, hour by hour
        session.learn(played, deployment=today.id)
    status = session.status()
print(
    f"{status.reported} days reported, {sum(status.missing.values())} missing, alarms: {status.monitors['alarms'] or 'none'}"
)

# %% [markdown]
# ## 5. Let somebody else verify it
#
# `episafe audit journals/desk` does the same on the command line, and `episafe report journals/desk` draws it.

# %%
found = es.audit("journals/desk")
print(f"whole: {found.is_whole}; certificates made again from the recorded days: {found.recomputed}")
