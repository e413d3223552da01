"""What monitors see, and how soon: the tables of docs/monitors.md.

    python benchmarks/monitors.py honest          # false alarms
    python benchmarks/monitors.py late            # reports that are late, lost or repeated
    python benchmarks/monitors.py coin            # components that are not drawn by the weights
    python benchmarks/monitors.py sizes           # columns of features of other sizes
    python benchmarks/monitors.py lying           # an incumbent below b + ξ
    python benchmarks/monitors.py drift           # an incumbent that gets worse
    python benchmarks/monitors.py spell           # a bad spell after good times
    python benchmarks/monitors.py residual        # how soon features that are not linear are seen
    python benchmarks/monitors.py misspecified    # what they do to safety and regret
    python benchmarks/monitors.py halted          # the same, watched, where it hurts

Each prints a Markdown table. Problems have seeds from 20,000 on, which nothing was tuned on.
"""

import math
import sys

import numpy as np

import episafe as es
from episafe.deployment.session import Session
from episafe.kernels.spell_wealth import follow_spells, new_spell
from episafe.monitors.statements import STATEMENTS
from episafe.problems import exact_answers
from episafe.problems.policy import TablePolicy
from episafe.runs.record import Columns
from episafe.runs.run import plain_loop
from episafe.runs.worlds import ListedWorld

FIRST_SEED = 20_000
ENVS = ("tabular", "streaming", "linear")
BLOCK = 500  # episodes handed to the monitors at once
MIXED = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


# Episodes of a fixed table


def episodes(P, table, initial_state, count, rng):
    """States (n, H+1) and actions (n, H) of so many episodes."""
    H, S, A, _ = P.shape
    states, actions = np.empty((count, H + 1), dtype=np.int64), np.empty((count, H), dtype=np.int64)
    states[:, 0] = initial_state
    choices, moves = np.cumsum(table, axis=-1), np.cumsum(P, axis=-1)
    for h in range(H):
        now = states[:, h]
        actions[:, h] = _drawn(choices[h, now], rng, A)
        states[:, h + 1] = _drawn(moves[h, now, actions[:, h]], rng, S)
    return states, actions


def _drawn(running, rng, size):
    return np.minimum((running <= rng.random((len(running), 1))).sum(axis=-1), size - 1)


def alarm_of(what, monitors, draw, num_episodes):
    """After how many episodes of the incumbent the monitor `what` raises its alarm, inf if it does not."""
    yes = np.ones(BLOCK, dtype=bool)
    for _ in range(num_episodes // BLOCK):
        monitors.watch_batch(*draw(BLOCK), np.full(BLOCK, math.nan), yes, ~yes)
        if monitors.status()[what]["alarm_at"]:
            return monitors.status()[what]["alarm_at"]
    return math.inf


# An incumbent that is not what it is said to be


def worse_incumbent(cmdp, gap):
    """The incumbent drawn to the policy of least utility until it has `gap` less; None if that cannot be."""
    told, task = cmdp.evaluate(cmdp.task.safe_policy)[1], cmdp.task
    best, worst = task.safe_policy.table(), exact_answers.utility_greedy(cmdp.P, 1.0 - task.utility)[0]
    low, high = 0.0, 1.0
    if cmdp.evaluate(worst)[1] > told - gap:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        value = cmdp.evaluate((1 - middle) * best + middle * worst)[1]
        low, high = (middle, high) if value > told - gap else (low, middle)
    return (1 - high) * best + high * worst


def lie(cmdp, gap):
    """A task that states b + ξ of the true incumbent, and holds one with `gap` less; None if that cannot be."""
    table, task = worse_incumbent(cmdp, gap), cmdp.task
    if table is None:
        return None
    return es.Task(
        task.horizon, task.num_states, task.num_actions, task.reward, task.phi, task.initial_state, task.constraint,
        TablePolicy(table),
    )  # fmt: skip


def lying(name, share, num_problems=100, num_episodes=20_000):
    """Episodes of a lying incumbent, share·H below what is stated, until the alarm: one number a problem."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems):
        cmdp = es.make(name, seed)
        task = lie(cmdp, share * cmdp.task.horizon)
        if task is not None:
            rng, table = np.random.default_rng(seed), task.safe_policy.table()

            def draw(n, rng=rng, table=table, cmdp=cmdp):
                return episodes(cmdp.P, table, cmdp.task.initial_state, n, rng)

            found.append(alarm_of("incumbent", es.Monitors(task), draw, num_episodes))
    return found


def exploring(name, share, num_problems=10, num_episodes=2_000):
    """The same while OPSE explores under `Observation`, as live: (alarm, violating episodes with, without) each."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems):
        cmdp = es.make(name, seed)
        task = lie(cmdp, share * cmdp.task.horizon)
        if task is not None:
            alarm, halted = live(cmdp, task, num_episodes, seed, watched=True)
            _, free = live(cmdp, task, num_episodes, seed, watched=False)
            found.append((alarm, halted, free))
    return found


def live(cmdp, task, num_episodes, seed, watched):
    """OPSE under `Observation` on a world that is not what its task says, which `es.run` would refuse to simulate."""
    agent, monitors = es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation()), es.Monitors(task)
    world, session = ListedWorld(cmdp), Session(agent, monitors if watched else None)
    world.begin(seed, 0)
    columns = Columns(num_episodes, totals=False, changing=False, mixes=True)
    list(plain_loop(world, session, columns))
    facts = columns.facts
    first = min((alarm.after for alarm in monitors.alarms if alarm.halts), default=math.inf)
    explored = facts.sources != 0
    return first, int(((facts.values[:, 1] < task.threshold - 1e-9) & explored).sum())


def drifting(name, share, change, num_problems=50, num_episodes=20_000):
    """Episodes after the `change` until "drift" is raised, when the incumbent loses share·H at once."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems):
        cmdp = es.make(name, seed)
        later = worse_incumbent(cmdp, share * cmdp.task.horizon)
        if later is not None:
            rng, monitors, sofar = np.random.default_rng(seed), es.Monitors(cmdp.task), [0]

            def draw(n, rng=rng, later=later, cmdp=cmdp, sofar=sofar):
                table = cmdp.task.safe_policy.table() if sofar[0] < change else later
                sofar[0] += n
                return episodes(cmdp.P, table, cmdp.task.initial_state, n, rng)

            found.append(alarm_of("drift", monitors, draw, change + num_episodes) - change)
    return found


def honest(name, num_problems=200, num_episodes=10_000):
    """Alarms of any kind in honest runs: the incumbent alone; OPSE under `Observation`, half as many runs, shorter."""
    alone = explored = 0
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems):
        cmdp = es.make(name, seed)
        monitors, rng = es.Monitors(cmdp.task), np.random.default_rng(seed)
        for _ in range(num_episodes // BLOCK):
            states, actions = episodes(cmdp.P, cmdp.task.safe_policy.table(), cmdp.task.initial_state, BLOCK, rng)
            yes = np.ones(BLOCK, dtype=bool)
            monitors.watch_batch(states, actions, np.full(BLOCK, math.nan), yes, ~yes)
        alone += bool(monitors.alarms)
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems // 2):
        cmdp = es.make(name, seed)
        agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
        monitors = es.Monitors(cmdp.task)
        es.run(cmdp, agent, num_episodes // 20, seed, monitors=monitors)
        explored += bool(monitors.alarms)
    return f"{alone} of {num_problems}", f"{explored} of {num_problems // 2}"


# Reports that are late, lost or repeated

SAFE, TRIED, LIE = 0.9, 0.1, 0.8  # how often the incumbent succeeds, a candidate, and an incumbent that lies
LATER = 200


def gamble():
    """One step, success or failure: the incumbent has b + ξ = 0.9 exactly, and b = 0.5 is that of HALF."""
    utility = np.array([[[1.0, 0.0]]])
    cmdp = es.LinearCMDP(np.ones((1, 1, 2, 1)), 1 - utility, utility, threshold=0.5, safe_policy=[[[SAFE, 1 - SAFE]]])
    return cmdp.task


TASK = gamble()
CANDIDATE = TablePolicy([[[TRIED, 1 - TRIED]]])
ALONE = es.Plan(TASK.safe_policy, "safe")
HALF = es.Plan(es.MixturePolicy((CANDIDATE, TASK.safe_policy), (0.5, 0.5)), "search", utility_bound=0.5)

# After how many more deployments a report comes, None for never, and how often it does.
ARRIVALS = {
    "all at once": lambda rng, k, success, safe: (0, 1),
    "all 20 late": lambda rng, k, success, safe: (20, 1),
    "all 200 late": lambda rng, k, success, safe: (LATER, 1),
    "all up to 40 late": lambda rng, k, success, safe: (int(rng.integers(41)), 1),
    "failures at once, successes 200 late": lambda rng, k, success, safe: (LATER * success, 1),
    "the candidate's at once, the incumbent's 200 late": lambda rng, k, success, safe: (LATER * safe, 1),
    "failures 100 late": lambda rng, k, success, safe: (100 * (not success), 1),
    "half of the successes lost": lambda rng, k, success, safe: (_lost(rng, 0.5 * success), 1),
    "half of the failures lost": lambda rng, k, success, safe: (_lost(rng, 0.5 * (not success)), 1),
    "successes lost, later failures": lambda rng, k, success, safe: (_lost(rng, 0.5 * (success == (k < 250))), 1),
    "2 % lost": lambda rng, k, success, safe: (_lost(rng, 0.02), 1),
    "5 % lost": lambda rng, k, success, safe: (_lost(rng, 0.05), 1),
    "failures three times, successes 200 late": lambda rng, k, success, safe: (LATER * success, 1 if success else 3),
}


def _lost(rng, p):
    return None if rng.random() < p else 0


def deployed(monitors, rng, plans, rate, arrival, num_deployments, told=True):
    """After how many deployments an alarm is raised, inf if none is.

    `told`: whether the monitors are told of deployments, or see what arrives alone.
    """
    due = {}
    for k in range(num_deployments):
        plan = plans[k % len(plans)]
        mixed = len(plan.policy.components) > 1
        component = int(rng.random() < 0.5) if mixed else 1
        success = bool(rng.random() < (rate if component else TRIED))
        seen = es.Episode([0, 0], [int(not success)], component=component if mixed else None)
        later, times = arrival(rng, k, success, bool(component))
        if told:
            monitors.expect(k, plan, component if k % 4 < 2 else None)
        if later is not None:
            due.setdefault(k + later, []).extend([(k, plan, seen)] * times)
        for number, plan_then, then in due.pop(k, []):
            monitors.report(number, then) if told else monitors.watch(plan_then, then)
        if monitors.alarms:
            return k + 1
    return math.inf


def false_alarm(arrival, seed, num_deployments=500, told=True):
    """The same where every claim is just true: half of the deployments are mixtures, half the incumbent."""
    rng = np.random.default_rng([FIRST_SEED, seed])
    return deployed(es.Monitors(TASK), rng, (HALF, ALONE), SAFE, ARRIVALS[arrival], num_deployments, told)


def late(arrival, num_runs=200, num_deployments=500):
    """False alarms, if told of deployments and if not; and when an incumbent that lies is found, one number a run."""
    honest = [
        sum(false_alarm(arrival, seed, num_deployments, told) < math.inf for seed in range(runs))
        for told, runs in ((True, num_runs), (False, num_runs // 10))
    ]
    lying = [
        deployed(es.Monitors(TASK), np.random.default_rng([FIRST_SEED, 1, seed]), (ALONE,), LIE, ARRIVALS[arrival],
                 4 * num_deployments)
        for seed in range(num_runs // 10)
    ]  # fmt: skip
    return *honest, lying


# Coins

COINS = {
    "true": lambda rng, k, p: int(rng.random() >= p),
    "always the candidate": lambda rng, k, p: 0,
    "always the incumbent": lambda rng, k, p: 1,
    "always the heavier": lambda rng, k, p: int(p < 0.5),
    "one half": lambda rng, k, p: int(rng.random() < 0.5),
    "by turns": lambda rng, k, p: k % 2,
    "the other way round": lambda rng, k, p: int(rng.random() < p),
}


def coin(toss, weight, num_runs, num_coins=1_000):
    """After how many coins with this weight on the candidate the alarm is raised, one number a run."""
    plan, found = es.Plan(es.MixturePolicy((CANDIDATE, TASK.safe_policy), (weight, 1 - weight)), "fixed"), []
    for seed in range(num_runs):
        monitors, rng, after = es.Monitors(TASK), np.random.default_rng([FIRST_SEED, 2, seed]), math.inf
        for k in range(num_coins):
            if monitors.expect(k, plan, COINS[toss](rng, k, weight)):
                after = k + 1
                break
        found.append(after)
    return found


# Features that are not linear


def sizes(size, num_problems=20, num_episodes=5_000):
    """How many linear problems raise "residual", one column of their features being of another size."""
    false = 0
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems):
        cmdp = es.make("linear", seed)
        task, rng = cmdp.task, np.random.default_rng(seed)
        phi = task.phi * np.array([size] + [1.0] * (task.dim - 1))
        told = es.Task(task.horizon, task.num_states, task.num_actions, task.reward, phi, task.initial_state,
                       task.constraint, task.safe_policy)  # fmt: skip
        monitors, no = es.Monitors(told), np.zeros(BLOCK, dtype=bool)
        table = (cmdp.task.safe_policy.table() + cmdp.optimal_policy().table()) / 2
        for _ in range(num_episodes // BLOCK):
            states, actions = episodes(cmdp.P, table, task.initial_state, BLOCK, rng)
            monitors.watch_batch(states, actions, np.full(BLOCK, math.nan), no, no)
        false += bool(monitors.alarms)
    return f"{false} of {num_problems}"


def random_kernel(seed, epsilon):
    """`linear` with P = (1−ε)·linear + ε·other, every row of the other from a Dirichlet distribution, as on tabular.

    Incumbent and slack are those of the mixture, so both are honest.
    """
    base = es.make("linear", seed)
    task, rng = base.task, np.random.default_rng([seed, 1])
    other = rng.dirichlet(np.full(task.num_states, 0.1), base.P.shape[:3])
    P = (1 - epsilon) * base.P + epsilon * other
    return es.LinearCMDP(P, task.reward, task.utility, task.phi, task.initial_state, task.threshold)


def twins(seed, epsilon):
    """The same, made to hurt: every action has a twin with the same features and utility, and a better reward.

    Twins lead to the worst state with probability ε, so that what is learned of one is wrong of the other. The
    threshold, 0.9 of the largest utility, binds.
    """
    base = es.make("linear", seed, threshold_scale=0.9)
    task, H = base.task, base.task.horizon
    V, worst = np.zeros(task.num_states), np.zeros_like(base.P)
    for h in reversed(range(H)):
        worst[h, :, :, V.argmin()] = 1.0
        V = (task.utility[h] + base.P[h] @ V).max(axis=-1)
    P = np.concatenate([base.P, (1 - epsilon) * base.P + epsilon * worst], axis=2)
    reward = np.concatenate([task.reward / 2, (1 + task.reward) / 2], axis=2)
    utility, phi = np.tile(task.utility, (1, 1, 2)), np.tile(task.phi, (1, 2, 1))
    safe = np.concatenate([task.safe_policy.table(), np.zeros_like(task.reward)], axis=2)
    return es.LinearCMDP(P, reward, utility, phi, task.initial_state, task.threshold, safe)


OTHERS = {"random": random_kernel, "twins": twins}
EPISODES = {"random": 5_000, "twins": 10_000}


def residual(epsilon, other, num_problems=20, num_episodes=100_000):
    """Episodes until "residual" is raised; half of them the incumbent's, half of the optimum's."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems):
        cmdp = OTHERS[other](seed, epsilon)
        monitors, rng = es.Monitors(cmdp.task), np.random.default_rng(seed)
        table = (cmdp.task.safe_policy.table() + cmdp.optimal_policy().table()) / 2
        after = math.inf
        for _ in range(num_episodes // BLOCK):
            states, actions = episodes(cmdp.P, table, cmdp.task.initial_state, BLOCK, rng)
            no = np.zeros(BLOCK, dtype=bool)
            alarms = monitors.watch_batch(states, actions, np.full(BLOCK, math.nan), no, no)
            if alarms:
                after = alarms[0].after
                break
        found.append(after)
    return found


AGENTS = {
    "paper": lambda task: es.OPSE(task, es.Constants.paper("linear"), replan=es.Doubling(0.3)),
    "tuned": lambda task: es.OPSE(task, es.Constants.tuned(task)),
    "observation": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation()),
}


def misspecified(agent, epsilon, other, num_problems=20, watched=False):
    """Records of runs on such kernels, one a problem."""
    records = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_problems):
        cmdp = OTHERS[other](seed, epsilon)
        monitors = es.Monitors(cmdp.task) if watched else None
        records.append(es.run(cmdp, AGENTS[agent](cmdp.task), EPISODES[other], seed, monitors=monitors))
    return records


# Tables


def soon(found):
    """Median and 90 % quantile, and how many raised the alarm at all."""
    if not found:
        return "– | – | 0 of 0"
    median, most = np.quantile(found, [0.5, 0.9], method="higher")
    shown = (f"{x:,.0f}" if math.isfinite(x) else "none" for x in (median, most))
    return f"{' | '.join(shown)} | {int(np.isfinite(found).sum())} of {len(found)}"


def print_honest():
    print("| | incumbent alone | exploring |\n|---|---|---|")
    for name in ENVS:
        print(f"| {name} | {' | '.join(honest(name))} |", flush=True)


def print_late():
    print(
        "| reports | false alarms | of monitors not told of deployments | a lying incumbent: median | 90 % | alarms |"
    )
    print("|---|---|---|---|---|---|")
    for arrival in ARRIVALS:
        told, untold, lying = late(arrival)
        print(f"| {arrival} | {told} of 200 | {untold} of 20 | {soon(lying)} |", flush=True)


def print_coin():
    print("| coin | weight of the candidate | median | 90 % | alarms |\n|---|---|---|---|---|")
    for toss in COINS:
        for weight in (0.05, 0.3, 0.5):
            print(f"| {toss} | {weight} | {soon(coin(toss, weight, 200 if toss == 'true' else 50))} |", flush=True)


def print_sizes():
    print("| size of a column | false alarms |\n|---|---|")
    for size in (1.0, 1e-3, 1e-6, 1e-9, 1e-12):
        print(f"| {size:g} | {sizes(size)} |", flush=True)


def print_lying():
    print("| | below b + ξ by | median | 90 % | alarms | exploring: alarms | unsafe episodes with monitors | without |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ENVS:
        for share in (0.02, 0.05, 0.1, 0.2):
            seen = exploring(name, share)
            raised = f"{sum(math.isfinite(alarm) for alarm, _, _ in seen)} of {len(seen)}"
            counts = " | ".join(f"{sum(row[i] for row in seen):,}" for i in (1, 2))
            print(f"| {name} | {share}·H | {soon(lying(name, share))} | {raised} | {counts} |", flush=True)


def print_drift():
    print("| | loss | after | median | 90 % | alarms |\n|---|---|---|---|---|---|")
    for name in ENVS:
        for share, change in ((0.05, 1_000), (0.2, 1_000), (0.2, 10_000)):
            print(f"| {name} | {share}·H | {change:,} | {soon(drifting(name, share, change))} |", flush=True)


def print_residual():
    print("| other kernel | ε | median | 90 % | alarms |\n|---|---|---|---|---|")
    for other, epsilons in (("random", (0.1, 0.2, 0.5)), ("twins", (0.05, 0.1, 0.2, 0.5))):
        for epsilon in epsilons:
            print(f"| {other} | {epsilon} | {soon(residual(epsilon, other))} |", flush=True)
    print(f"| none | 0 | {soon(residual(0.0, 'random', 200, 20_000))} |")


def print_misspecified():
    print("| other kernel | ε | agent | problems with a violating episode | violation a run | regret |")
    print("|---|---|---|---|---|---|")
    for other in OTHERS:
        for epsilon in MIXED:
            for agent in AGENTS if other == "twins" else ("paper", "observation"):
                print(f"| {other} | {epsilon} | {agent} | {outcome(misspecified(agent, epsilon, other))} |", flush=True)


def print_halted():
    print("| ε | agent | | problems with a violating episode | violation a run | regret | alarms, median episode |")
    print("|---|---|---|---|---|---|---|")
    for epsilon in (0.2, 0.5):
        for agent in ("paper", "tuned"):
            free = misspecified(agent, epsilon, "twins", 10)
            watched = misspecified(agent, epsilon, "twins", 10, watched=True)
            print(f"| {epsilon} | {agent} | free | {outcome(free)} | |")
            print(f"| {epsilon} | {agent} | watched | {outcome(watched)} | {alarms_of(watched)} |", flush=True)


def outcome(records):
    """How many violated, and the means of violation and regret."""
    violated = sum(bool(record.violating().any()) for record in records)
    violation, regret = (np.mean([sums[-1] for sums in column]) for column in (
        [record.violation() for record in records], [record.regret() for record in records]
    ))  # fmt: skip
    return f"{violated} of {len(records)} | {violation:.3g} | {regret:,.0f}"


def alarms_of(records):
    """Which alarms there were, in how many runs, and after how many episodes."""
    after = {}
    for record in records:
        for said in str(record.settings["alarms"]).split("; "):
            if " after " in said:
                what, _, rest = said.partition(" after ")
                after.setdefault(what, []).append(int(rest.partition(":")[0]))
    return ", ".join(f"{what} {len(found)}: {np.median(found):,.0f}" for what, found in after.items()) or "none"


def print_spell():
    """How soon a spell below b is seen after so many good episodes; δ = 0.01, 400 runs a row."""
    print("| utilities | good episodes before | seen after, median | 90 % |\n|---|---|---|---|")
    kinds = {
        "0 or 1, b = 0.6: mean 0.9, then 0.5": (0.6, lambda r, n: r.random(n) < 0.9, lambda r, n: r.random(n) < 0.5),
        "steady, b = 0.9: 0.97 ± 0.03, then 0.8 ± 0.1": (
            0.9, lambda r, n: r.normal(0.97, 0.03, n).clip(0, 1), lambda r, n: r.normal(0.8, 0.1, n).clip(0, 1)
        ),
    }  # fmt: skip
    for name, (b, good, bad) in kinds.items():
        for before in (0, 300, 3000):
            found = [_spell_seen(b, good, bad, before, np.random.default_rng(FIRST_SEED + k)) for k in range(400)]
            print(f"| {name} | {before:,} | {np.median(found):.0f} | {np.quantile(found, 0.9):.0f} |")


def _spell_seen(b, good, bad, before, rng):
    seen = new_spell()
    utilities = np.concatenate([good(rng, before), bad(rng, 5000)]).astype(np.float64)
    follow_spells(seen, (b - utilities) / (1 - b), math.log(1 / (STATEMENTS["spell"].share * 0.01)))
    return seen.counts[1] - before if seen.counts[1] else math.inf


TABLES = {
    "honest": print_honest,
    "late": print_late,
    "coin": print_coin,
    "sizes": print_sizes,
    "lying": print_lying,
    "drift": print_drift,
    "spell": print_spell,
    "residual": print_residual,
    "misspecified": print_misspecified,
    "halted": print_halted,
}

if __name__ == "__main__":
    chosen = sys.argv[1:] or list(TABLES)
    if unknown := [name for name in chosen if name not in TABLES]:
        sys.exit(f"no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    for name in chosen:
        TABLES[name]()
