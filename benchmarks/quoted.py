"""The figures that README and docs quote, made again on problems that nothing was chosen on.

    python benchmarks/quoted.py                      # the names of all
    python benchmarks/quoted.py constants sharing    # some of them; --problems 10 for a quick look

Seeds are those from 20,000 on, drawn for this alone (but for `gap`): constants were tuned on 5000 to 6799, certifiers
on 1000 to 1033. A problem violates if one of its deployed policies does, by exact values. Rates have exact
(Clopper-Pearson) 95 % intervals, means 95 % t-intervals over problems.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import episafe as es
from episafe.problems.sampled_problem import known_slack
from episafe.reports.bandit_metrics import break_even
from episafe.reports.report import write_report
from episafe.stats import rate_interval, t_interval

FIRST_SEED = 20_000
ENVS = ("tabular", "streaming", "linear")
Make = Callable[[es.LinearCMDP], es.Agent]


def published(cmdp: es.LinearCMDP) -> es.Agent:
    return es.OPSE(cmdp.task, es.Constants.paper(str(cmdp.origin["env"])))


def published_rarely(cmdp: es.LinearCMDP) -> es.Agent:
    return es.OPSE(cmdp.task, es.Constants.paper(str(cmdp.origin["env"])), es.Doubling(0.3))


def tuned(cmdp: es.LinearCMDP) -> es.Agent:
    return es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))


def certified(certifier: Any) -> Make:
    return lambda cmdp: es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier)


def incumbent(cmdp: es.LinearCMDP) -> es.Agent:
    return es.Fixed(cmdp.task, "incumbent")


class Outcome(NamedTuple):
    """One run: its regret, by how much its worst episode was below the threshold, whether a bound was false."""

    regret: float
    gap: float
    is_false: bool


def outcome(record: es.Record) -> Outcome:
    gap = float((record.threshold - record.utility_values).max()) if record.violating().any() else 0.0
    claimed = record.sources != "safe"
    above = (record.utility_bounds - record.utility_values)[claimed].max(initial=-1.0)
    return Outcome(float(record.regret()[-1]), gap, bool(above > 1e-9))


def outcomes(problems: Iterable[tuple[int, es.LinearCMDP]], make: Make, num_episodes: int) -> list[Outcome]:
    return [outcome(es.run(cmdp, make(cmdp), num_episodes, seed)) for seed, cmdp in problems]


def drawn(env: str, num_problems: int) -> Iterable[tuple[int, es.LinearCMDP]]:
    return ((seed, es.make(env, seed)) for seed in seeds(num_problems))


def seeds(num_problems: int) -> range:
    return range(FIRST_SEED, FIRST_SEED + num_problems)


def mean(values: Sequence[float]) -> str:
    middle, half_width = t_interval(np.array(values))
    return f"{middle:.0f} ± {half_width:.0f}"


def ratio(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> str:
    """Mean regret over mean regret, with the interval of 2000 resampled sets of problems."""
    rng, both = np.random.default_rng(0), np.array([[run.regret for run in runs] for runs in (ours, theirs)])
    chosen = rng.integers(both.shape[1], size=(2000, both.shape[1]))
    low, high = np.quantile(both[0][chosen].mean(axis=1) / both[1][chosen].mean(axis=1), [0.025, 0.975])
    return f"{both[0].mean() / both[1].mean():.3f} [{low:.3f}, {high:.3f}]"


def violations(runs: Sequence[Outcome]) -> str:
    """How many problems violate, by how much the worst of them at most, and the exact interval of the rate."""
    gaps = sorted((run.gap for run in runs if run.gap), reverse=True)
    low, high = rate_interval(len(gaps), len(runs))
    by = f", by {', '.join(f'{gap:.2g}' for gap in gaps[:5])}{' …' if gaps[5:] else ''}" if gaps else ""
    return f"{len(gaps)} of {len(runs)} violate{by}; rate {low:.4f} to {high:.4f}"


def row(what: str, runs: Sequence[Outcome]) -> None:
    print(f"  {what}: regret {mean([run.regret for run in runs])}; {violations(runs)}", flush=True)


def constants(num_problems: int) -> None:
    """Published constants, planning before every episode as the paper does, and the tuned ones: 10,000 episodes."""
    every: dict[str, list[Outcome]] = {"published": [], "tuned": []}
    for env in ENVS:
        found = {name: outcomes(drawn(env, num_problems), AGENTS[name], 10_000) for name in every}
        print(env)
        for name, runs in found.items():
            row(name, runs)
            every[name] += runs
        print(f"  tuned over published: {ratio(found['tuned'], found['published'])}", flush=True)
    for name, runs in every.items():
        print(f"all three, {name}: {violations(runs)}")


def replanning(num_problems: int) -> None:
    """What `Doubling(0.3)` costs against planning before every episode, published constants, 10,000 episodes."""
    for env in ENVS:
        every, rarely = (outcomes(drawn(env, num_problems), make, 10_000) for make in (published, published_rarely))
        print(f"{env}: {ratio(rarely, every)}")
        row("Doubling(0.3)", rarely)


def certificates(num_problems: int) -> None:
    """The certifiers beside the published constants (`Doubling(0.3)`) and the incumbent, 10,000 episodes.

    `FreshData` runs on a fifth of the problems: its loop is not compiled.
    """
    for env in ENVS:
        print(env)
        for name in ("Observation", "FreshData", "published, Doubling(0.3)", "incumbent"):
            fewer = max(2, num_problems // 5) if name == "FreshData" else num_problems
            runs = outcomes(drawn(env, fewer), AGENTS[name], 10_000)
            row(name, runs)
            print(f"    runs with a bound above the exact utility: {sum(run.is_false for run in runs)} of {len(runs)}")


def picture(num_problems: int) -> None:
    """The same as curves, on the first problems: quoted-picture/figures/all-released.png."""
    folder = Path("quoted-picture")
    for env in ENVS:
        for name in ("Observation", "FreshData", "published, Doubling(0.3)", "incumbent"):
            for seed, cmdp in drawn(env, num_problems):
                record = es.run(cmdp, AGENTS[name](cmdp), 10_000, seed)
                record.save(folder / "records" / f"{env}-{record.settings['agent']}-{seed}")
    print(f"wrote {write_report(folder)}")


def slack_guess(num_problems: int) -> None:
    """`Constants.tuned` with a wrong guess of ξ: regret over that with the true one, 3000 episodes."""
    for env in ENVS:
        problems = dict(drawn(env, num_problems))
        right = outcomes(problems.items(), tuned, 3_000)
        print(env)
        for factor in (0.001, 0.01, 0.1, 10.0, 100.0):
            runs = outcomes(problems.items(), partial(guessing, factor), 3_000)
            print(f"  {factor:g}: {ratio(runs, right)}; {violations(runs)}", flush=True)


def guessing(factor: float, cmdp: es.LinearCMDP) -> es.Agent:
    """An agent that is not told the slack, and guesses this multiple of it."""
    told, true = cmdp.task, cmdp.task.slack
    assert true is not None
    task = replace(told, constraint=es.Constraint(told.utility, told.threshold, None))
    return es.OPSE(task, es.Constants.tuned(task, slack_guess=factor * true))


def sharing(num_problems: int) -> None:
    """Steps that share their data against steps that do not: S = 5, A = 3, H = 6, 3000 episodes, `Constants.tuned`."""
    for d in (None, 4):
        by_steps, shared = (
            outcomes(((seed, homogeneous(seed, d, one)) for seed in seeds(num_problems)), tuned, 3_000)
            for one in (False, True)
        )
        print("one-hot" if d is None else f"d = {d}", ratio(shared, by_steps))
        row("by steps", by_steps)
        row("shared", shared)


def homogeneous(seed: int, d: int | None, shared: bool, S: int = 5, A: int = 3, H: int = 6) -> es.LinearCMDP:
    """One random kernel for all steps; the threshold is 0.6 of the largest utility."""
    rng = np.random.default_rng(seed)
    phi = None if d is None else rng.dirichlet(np.full(d, 0.5), (S, A))
    laws = rng.dirichlet(np.full(S, 0.5), (S, A) if phi is None else d)
    P = np.broadcast_to(laws if phi is None else phi @ laws, (H, S, A, S))
    P = P / P.sum(axis=-1, keepdims=True)
    reward, utility = (rng.random((H, S, A)) if phi is None else (phi @ rng.random((d, H))).transpose(2, 0, 1)
                       for _ in range(2))  # fmt: skip
    most = es.LinearCMDP(P, reward, utility, phi, threshold=-1.0)
    threshold = 0.6 * most.evaluate(most.task.safe_policy)[1]
    return es.LinearCMDP(P, reward, utility, phi, threshold=threshold, time_homogeneous=shared)


def gap(num_problems: int) -> None:
    """How long the incumbent is not known well, and how often it is deployed: seeds 0, 1, …, 2000 episodes."""
    for env in ("tabular", "linear"):
        for seed in range(num_problems):
            print(f"{env}, seed {seed}: |U| = %d, |D| = %d, left over %d" % incumbent_counts(env, seed), flush=True)


def incumbent_counts(env: str, seed: int) -> tuple[int, int, int]:
    """Episodes with x_k > ξ/(4C_u); of the incumbent; and others with x_k > ξ/(2C_u) and λ > H/ξ."""
    cmdp, said = es.make(env, seed), es.Constants.paper(env)
    task, rng, agent = cmdp.task, np.random.default_rng(seed), es.OPSE(cmdp.task, said)
    (H, S, _), slack = task.reward.shape, known_slack(task)
    weights = cmdp.occupancy(task.safe_policy)
    phi = np.eye(task.dim).reshape(S, -1, task.dim) if task.phi is None else task.phi
    gram = np.repeat(said.ridge * np.eye(task.dim)[None], H, axis=0)
    unsure = deployed = left_over = 0
    for _ in range(2_000):
        beta = np.sqrt(np.einsum("sad,hde,sae->hsa", phi, np.linalg.inv(gram), phi))
        x, plan = float((weights * beta).sum()), agent.plan()
        unsure += x > slack / (4 * said.C_u)
        deployed += plan.source == "safe"
        left_over += plan.source != "safe" and x > slack / (2 * said.C_u) and plan.lam > H / slack
        states, actions = [task.initial_state], []
        for h in range(H):
            actions.append(plan.policy.act(h, states[-1], rng))
            seen = phi[states[-1], actions[-1]]
            gram[h] += np.outer(seen, seen)
            states.append(int(rng.choice(S, p=cmdp.P[h, states[-1], actions[-1]])))
        agent.learn(es.Episode(states, actions), plan_id=plan.id)
    return unsure, deployed, left_over


def bandits(num_problems: int) -> None:
    """OPLB-SP with both radii, and OFUL, on fresh bandits: 100,000 rounds, 20,000 where arms change."""
    for env in ("finite", "ball", "ellipsoid", "contexts"):
        rounds = 20_000 if env == "contexts" else 100_000
        found: dict[str, list[tuple[Outcome, int, int]]] = {}
        for seed in seeds(num_problems):
            bandit = es.bandits.make(env, seed, slack=0.3, noise=0.5)
            incumbents: Any = np.zeros(0)
            for name, agent in bandit_agents(bandit, rounds).items():
                record = es.bandits.run(bandit, agent, rounds, seed)
                incumbents = record.regret() if name == "incumbent" else incumbents
                beaten, used = break_even(record.regret(), incumbents), int(record.safe_deployments()[-1])
                found.setdefault(name, []).append((outcome(record), beaten, used))
        print(env)
        for name, runs in found.items():
            made, beaten, used = zip(*runs, strict=True)
            row(name, made)
            print(f"    beats the incumbent from round {np.median(beaten):.0f} (median), {max(beaten)} (latest); "
                  f"incumbent deployments {np.mean(used):.0f} (mean), {max(used)} (most)", flush=True)  # fmt: skip


def bandit_agents(bandit: Any, rounds: int) -> dict[str, Any]:
    """The incumbent first: the others are compared with it."""
    B, rule = es.bandits, {"delta": 0.05, "replan": es.Doubling(0.3)}
    made = {"incumbent": B.Incumbent(bandit.task), "OFUL": B.OFUL(bandit.task, rounds, **rule)}
    made |= {f"OPLB-SP, {r}": B.OPLBSP(bandit.task, rounds, radius=r, **rule) for r in ("paper", "determinant")}
    bold = B.OPLBSP(bandit.task, rounds, radius="determinant", optimism=1.0, **rule)
    return made | {"OPLB-SP, determinant, optimism 1": bold}


AGENTS: dict[str, Make] = {
    "published": published,
    "published, Doubling(0.3)": published_rarely,
    "tuned": tuned,
    "Observation": certified(es.certify.Observation(0.05)),
    "FreshData": certified(es.certify.FreshData(0.05)),
    "incumbent": incumbent,
}
QUOTED: dict[str, tuple[Callable[[int], None], int]] = {
    "constants": (constants, 300),
    "replanning": (replanning, 20),
    "certificates": (certificates, 100),
    "picture": (picture, 10),
    "slack-guess": (slack_guess, 30),
    "sharing": (sharing, 30),
    "gap": (gap, 4),
    "bandits": (bandits, 20),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(QUOTED))
    parser.add_argument("--problems", type=int, help="in place of as many as are quoted")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in QUOTED:
            parser.error(f"no figure {name!r}; there are {', '.join(QUOTED)}")
    for name in asked.names:
        make, usual = QUOTED[name]
        print(f"## {name}, {asked.problems or usual} problems each: {make.__doc__}", flush=True)
        make(asked.problems or usual)
    if not asked.names:
        print("\n".join(f"{name}: {make.__doc__}" for name, (make, _) in QUOTED.items()))


if __name__ == "__main__":
    main()
