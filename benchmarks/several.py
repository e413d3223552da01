"""What several constraints cost: the tables of docs/several-constraints.md.

    python benchmarks/several.py regret          # Observation and Box, two constraints: 100 problems, 10,000 episodes
    python benchmarks/several.py regret 5000 3   # from this seed on, so many; with a name, that certifier alone
    python benchmarks/several.py coverage 200    # runs with a wrong bound in any constraint; controls that must fail
    python benchmarks/several.py speed           # seconds of a compiled run by the number of constraints
    python benchmarks/several.py optimum         # the exact optimum against an independent linear program; its time
    python benchmarks/several.py bandits         # OPLB-SP, arms, one to three constraints: 100 problems, 100,000 rounds

Each prints a Markdown table. Nothing was tuned on these seeds.
"""

import sys
import time

import numpy as np
import scipy.optimize
import scipy.sparse

import episafe as es
from episafe.certify.observation import ObservationCertificate
from episafe.stats import rate_interval

EPISODES, DELTA = 10_000, 0.05
REPEATS = 3  # of a run whose time is taken: the shortest counts, as others may use the processor
ROUNDING = 1e-9
CERTIFIERS = {"Observation": es.certify.Observation, "Box": es.certify.Box}


def regret(first=5000, count=100, only=""):
    """Regret and violating episodes under both constraints, under the first alone, and what the incumbent loses."""
    print("| certifier | constraints | regret | worst | of the incumbent's | violating episodes | s |")
    print("|---|---|---|---|---|---|---|")
    for name, certifier in ((name, one) for name, one in CERTIFIERS.items() if only in ("", name)):
        found = {
            label: np.array([_run(problem(seed), certifier, seed) for seed in range(first, first + count)])
            for label, problem in PROBLEMS.items()
        }
        for label, rows in found.items():
            print(_row(name, label, rows), flush=True)
        ratio = found["both"][:, 0].mean() / found["the first alone"][:, 0].mean()
        print(f"\n{name}: with both {ratio:.2f} times the regret with the first alone\n", flush=True)
    rows = np.array([_careless(seed) for seed in range(first, first + min(count, 20))])
    print(f"negative control, {len(rows)} problems, only the first constraint checked: "
          f"{rows[:, 0].sum():.0f} episodes violate the second, in {(rows[:, 0] > 0).sum()} runs")  # fmt: skip


def _row(name, label, rows):
    mean, half = rows.mean(axis=0), 1.96 * rows[:, 0].std(ddof=1) / np.sqrt(len(rows))
    share = rows[:, 0].sum() / rows[:, 1].sum()
    return (
        f"| {name} | {label} | {mean[0]:.0f} ± {half:.0f} | {rows[:, 0].max():.0f} | {share:.2f} of {mean[1]:.0f} | "
        f"{rows[:, 2].sum():.0f} | {mean[3]:.2f} |"
    )


def both(seed):
    return es.make("tabular", seed, num_constraints=2)


def first_alone(seed):
    """The same problem and incumbent, without the second constraint."""
    return both(seed).of_constraint(0)


PROBLEMS = {"both": both, "the first alone": first_alone}


def _run(cmdp, certifier, seed):
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier(DELTA))
    cmdp.optimal_value()  # known once, and no part of a run
    began = time.process_time()
    record = es.run(cmdp, agent, EPISODES, seed)
    seconds = time.process_time() - began
    incumbent = EPISODES * (cmdp.optimal_value() - cmdp.evaluate(cmdp.task.safe_policy)[0])
    return record.regret()[-1], incumbent, record.violating().sum(), seconds


def _careless(seed):
    """Episodes below the second threshold where the agent is told of the first alone."""
    alone, judge = first_alone(seed), both(seed)
    agent = es.OPSE(alone.task, es.Constants.proposing(), certifier=es.certify.Observation(DELTA))
    record = es.run(alone, agent, 2_000, seed)
    last = judge.evaluate(agent.plan().policy)[1]
    return [len(record.sources) * (last[1] < judge.task.limits[1])]


def coverage(num_runs=200):
    """Runs of two constraints in which any bound of either was ever above the truth; δ = 0.05 allows one in twenty."""
    print("| certifier | runs | with a wrong bound | 95 % | control | with a wrong bound |\n|---|---|---|---|---|---|")
    for name, (certifier, num_episodes, control, spoil) in COVERAGE.items():
        honest, spoilt = (
            sum(has_wrong_bound(certifier, num_episodes, 20_000 + seed, how) for seed in range(num_runs))
            for how in (lambda agent: None, spoil)
        )
        low, high = rate_interval(honest, num_runs)
        print(f"| {name} | {num_runs} | {honest} | {low:.3f} to {high:.3f} | {control} | {spoilt} |", flush=True)


def has_wrong_bound(certifier, num_episodes, seed, spoil):
    """Whether a bound of what was deployed, or is on trial, was above its utility in some constraint."""
    cmdp = both(seed)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier)
    spoil(agent)
    record = es.run(cmdp, agent, num_episodes, seed)
    wrong = (record.utility_bounds > record.utility_values + ROUNDING).any()
    agent.plan()  # certified by all that was seen
    for name, bound in agent.bounds().items():
        policy = agent.certificate.certified if name == "certified" else agent.policy_named(name)
        wrong = wrong or np.any(bound > cmdp.evaluate(policy)[1] + ROUNDING)
    return bool(wrong)


def all_of_delta(agent):
    """Let each of the first candidates have δ_j ≥ 1 in each constraint: δ_j = 20/(j(j+1))."""
    agent.certificate = ObservationCertificate(agent.task, 20.0 * agent.task.num_constraints)


def no_share(agent):
    """Let each of many bounds have δ' = 1 for itself."""
    agent.certificate._log_term = lambda: 0.0


COVERAGE = {
    "Observation": (es.certify.Observation(DELTA), 400, "δ_j ≥ 1 for the first four", all_of_delta),
    "Box": (es.certify.Box(DELTA), 200, "δ' = 1 for each entry of the kernel", no_share),
    "FreshData": (es.certify.FreshData(DELTA), 1_250, "δ' = 1 for each pair", no_share),
}


def speed(first=5000, count=5):
    """Processor seconds of 10,000 compiled episodes with Observation, and with Box: the median of the problems."""
    print("| certifier | constraints | s | times that of one |\n|---|---|---|---|")
    for name, certifier in CERTIFIERS.items():
        _run(es.make("tabular", 0, num_constraints=2), certifier, 0)  # compiled before the clock starts
        _run(es.make("tabular", 0), certifier, 0)
        single = None
        for m in (1, 2, 3, 5):
            problems = [es.make("tabular", first + i, num_constraints=m) for i in range(count)]
            took = [min(_run(one, certifier, i)[3] for _ in range(REPEATS)) for i, one in enumerate(problems)]
            single = single or np.median(took)
            print(f"| {name} | {m} | {np.median(took):.2f} | {np.median(took) / single:.2f} |", flush=True)


def optimum(count=200):
    """The largest difference to an independent linear program, and the time of one at S = 500."""
    gaps, infeasible = [], 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        P, signals, limits = _random(rng, 4, int(rng.integers(2, 8)), int(rng.integers(2, 5)), int(rng.integers(2, 5)))
        least = _independent(P, signals, limits)
        try:
            found = _known(P, signals, limits).optimal_value()
        except es.Infeasible:
            infeasible += 1
            assert least is None
            continue
        gaps.append(abs(found - least))
    print(f"{len(gaps)} problems: largest difference {max(gaps):.1e}; {infeasible} infeasible in both")
    rng = np.random.default_rng(0)
    P, signals, limits = _random(rng, 4, 500, 3, 3)
    cmdp = _known(P, signals, limits)
    began = time.process_time()
    value = cmdp.optimal_value()
    took = time.process_time() - began
    began = time.process_time()
    gap = abs(value - _independent(P, signals, limits))
    print(f"S = 500, A = 3, H = 4, m = 3: {took:.2f} s, and {gap:.1e} from the linear program, which takes "
          f"{time.process_time() - began:.0f} s")  # fmt: skip


def bandits(first=5000, count=100, num_rounds=100_000):
    """Regret and violating rounds of OPLB-SP by the number of constraints; and where only the first is checked."""
    print(
        "| constraints | regret | of the incumbent's | violating rounds | incumbent deployments | optimum's error | s |"
    )
    print("|---|---|---|---|---|---|---|")
    for m in (1, 2, 3):
        rows = np.array([_bandit(seed, m, num_rounds) for seed in range(first, first + count)])
        mean, half = rows.mean(axis=0), 1.96 * rows[:, 0].std(ddof=1) / np.sqrt(count)
        cells = f"{rows[:, 2].sum():.0f} | {mean[3]:.0f} | {rows[:, 4].max():.0e} | {mean[5]:.2f} |"
        print(f"| {m} | {mean[0]:.0f} ± {half:.0f} | {mean[0] / mean[1]:.2f} of {mean[1]:.0f} | {cells}", flush=True)
        if m > 1:
            broken = sum(_careless_bandit(seed, m, num_rounds) for seed in range(first, first + min(count, 20)))
            print(f"\nnegative control, {min(count, 20)} problems, only the first of {m} constraints checked: the "
                  f"policy at the end violates another in {broken} runs\n", flush=True)  # fmt: skip


def _bandit(seed, m, num_rounds):
    bandit = es.bandits.make("finite", seed, num_constraints=m)
    agent = es.bandits.OPLBSP(bandit.task, radius="determinant", delta=DELTA, replan=es.Doubling(0.3))
    began = time.process_time()
    record = es.bandits.run(bandit, agent, num_rounds, seed)
    seconds = time.process_time() - began
    incumbent = num_rounds * (bandit.optimal_value() - bandit.evaluate(bandit.safe_policy())[0])
    arms = bandit.task.arms(0)
    exact = scipy.optimize.linprog(
        -arms @ bandit.theta_r, A_ub=-np.atleast_2d(bandit.theta_u) @ arms.T,
        b_ub=-np.atleast_1d(bandit.task.limits), A_eq=np.ones((1, len(arms))), b_eq=[1.0], method="highs",
    )  # fmt: skip
    error = abs(bandit.optimal_value() + exact.fun)
    return (
        record.regret()[-1], incumbent, record.violating().sum(), record.safe_deployments()[-1], error, seconds,
    )  # fmt: skip


def _careless_bandit(seed, m, num_rounds):
    """Whether the policy at the end breaks another constraint than the one that the agent is told of."""
    judge = es.bandits.make("finite", seed, num_constraints=m)
    told = judge.task.of_constraint(0)
    alone = es.bandits.LinearBandit(
        judge.theta_r, judge.theta_u[0], told.actions, told.threshold, told.safe_policy, slack=told.slack
    )
    agent = es.bandits.OPLBSP(alone.task, radius="determinant", delta=DELTA, replan=es.Doubling(0.3))
    es.bandits.run(alone, agent, num_rounds, seed)
    return bool((judge.evaluate(agent.plan().policy)[1] < judge.task.limits - 1e-9).any())


def _random(rng, H, S, A, m):
    """A kernel, reward and utilities (1 + m, H, S, A), and thresholds that some policy may or may not keep."""
    P, signals = rng.dirichlet(np.full(S, 0.3), (H, S, A)), rng.random((1 + m, H, S, A))
    policy = rng.dirichlet(np.full(A, 0.5), (H, S))
    judged = es.LinearCMDP(P, signals[0], list(signals[1:]), threshold=[-1.0] * m)
    return P, signals, judged.evaluate(policy)[1] * rng.uniform(0.95, 1.15)


def _known(P, signals, limits):
    """The problem by the library. Its incumbent must be strictly safe, so that the limits are set afterwards."""
    cmdp = es.LinearCMDP(P, signals[0], list(signals[1:]), threshold=[-1.0] * len(limits))
    cmdp.task = cmdp.task.with_limits(limits.tolist(), [None] * len(limits))
    return cmdp


def _independent(P, signals, limits):
    """max ⟨w, r⟩ over occupancies by HiGHS, written here anew; None where there is none."""
    (H, S, A, _), blocks = P.shape, []
    for h in range(H):
        row = [None] * H
        row[h] = scipy.sparse.kron(scipy.sparse.eye_array(S), np.ones((1, A)))
        if h:
            row[h - 1] = scipy.sparse.csr_array(-P[h - 1].reshape(S * A, S).T)
        blocks.append(row)
    start = np.zeros(H * S)
    start[0] = 1.0
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solved = scipy.optimize.linprog(
        -signals[0].ravel(), A_ub=-signals[1:].reshape(len(limits), -1), b_ub=-limits,
        A_eq=scipy.sparse.block_array(blocks, format="csr"), b_eq=start, method="highs", options=options,
    )  # fmt: skip
    return None if solved.status == 2 else -solved.fun


if __name__ == "__main__":
    asked = {"regret": regret, "coverage": coverage, "speed": speed, "optimum": optimum, "bandits": bandits}
    asked[sys.argv[1]](*(int(word) if word.isdigit() else word for word in sys.argv[2:]))
