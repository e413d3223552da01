"""Before a run: the constants at each level, how long the incumbent will be deployed, and what would shorten that."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from rich.table import Table

from episafe.envs import PAPER
from episafe.kernels.backward_pass import elliptical_bonus, visit_bonus
from episafe.learning import theorem_bounds, theory_constants
from episafe.learning.constants import Constants
from episafe.learning.theory_constants import Sizes, theorem
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.model_answers import occupancy
from episafe.problems.sampled_problem import known_slack
from episafe.problems.task import Task
from episafe.runs.forecast import forecast

MOST_DOUBLINGS = 200
EACH_ALONE = (
    "constants and the theorem's bounds are of each constraint as if it were the only one, at its share of delta: no "
    "theorem of these constants covers several; a certifier does, as in es.OPSE(task), of which the forecast is"
)


def preflight(cmdp: LinearCMDP, num_episodes: int, delta: float = 0.05) -> dict[str, Any]:
    """Everything `episafe preflight` prints, as plain values.

    Of several constraints it is what each would be alone, at its share δ/m, by their names; the forecast is of all.
    """
    task, m = cmdp.task, cmdp.task.num_constraints
    if m > 1:
        each = {name: preflight(cmdp.of_constraint(c), num_episodes, delta / m)
                for c, name in enumerate(task.constraint_names)}  # fmt: skip
        return {"constraints": each, "forecast": gain(cmdp, delta), "notes": [EACH_ALONE]}
    slack, theory = known_slack(task), Constants.theory(task, num_episodes, delta)
    chosen, sizes = {"theory": theory, "tuned": Constants.tuned(task)}, theory.scope
    assert sizes is not None
    if cmdp.origin.get("env") in PAPER:
        chosen["published"] = Constants.paper(str(cmdp.origin["env"]))
    return {
        "problem": {**asdict(sizes), "threshold": task.threshold, "worst_regret": num_episodes * task.horizon},
        "choices": [_choice(cmdp, name, made, num_episodes, delta) for name, made in chosen.items()],
        "incumbent_phase": theorem_bounds.incumbent_phase(task, chosen["theory"].C_u, delta),
        "forecast": gain(cmdp, delta),
        "notes": theory_constants.notes(sizes, theorem(sizes)),
        "would_shrink": [
            _shrunk("as it is", sizes),
            _shrunk("twice the slack", replace(sizes, slack=2 * slack)),
            _shrunk("half the features", _half_the_features(sizes)),
            _shrunk("delta ten times larger", replace(sizes, delta=min(0.5, 10 * delta))),
        ],
    }


def gain(problem: Any, delta: float, on_progress: Callable[[float], object] = lambda share: None) -> dict[str, Any]:
    """When the recommended agent may be expected to have gained something, and what would shorten that."""
    found = forecast(problem, delta=delta, on_progress=on_progress)
    return {**asdict(found), "changes": [one._asdict() for one in found.changes], "text": str(found)}


def _choice(cmdp: LinearCMDP, name: str, constants: Constants, num_episodes: int, delta: float) -> dict[str, Any]:
    """One set of constants and what to expect of it: the theorem's bounds say something at level "theorem" only."""
    proved = constants.level == "theorem"
    return {
        "name": name,
        "level": constants.level,
        "constants": constants.settings(),
        "expected_incumbent_episodes": expected_incumbent_episodes(cmdp, constants),
        "most_incumbent_episodes": theorem_bounds.incumbent_deployments(cmdp.task, constants.C_u, delta),
        "regret_bound": theorem_bounds.regret_bound(cmdp.task, constants, num_episodes, delta) if proved else {},
    }


def expected_incumbent_episodes(cmdp: LinearCMDP, constants: Constants) -> float:
    """The least N = 0, 1, 2, 4, … with C_u V^{π_sf,β}(s₁) ≤ ξ at Λ_h = ρI + N 𝔼_{π_sf}[φφᵀ], last step left out.

    Where steps share their data, Λ = ρI + N Σ_h 𝔼_{π_sf}[φφᵀ]. A guide: estimates are taken for exact, and a bonus with
    a spread for one without.
    """
    task = cmdp.task
    visits = occupancy(cmdp.P, task.safe_policy.table(), task.initial_state)
    weights = visits[:-1]
    learned = visits.sum(axis=0, keepdims=True) if task.time_homogeneous else weights
    count = 0.0
    for _ in range(MOST_DOUBLINGS):
        beta = _incumbent_bonus(task, learned, count, constants.ridge)
        beta = beta + constants.curve * beta**2
        if constants.C_u * float((weights * beta).sum()) <= known_slack(task):
            return count
        count = max(1.0, 2 * count)
    return math.inf


def _incumbent_bonus(task: Task, weights: Any, count: float, ridge: float) -> Any:
    """β (·, S, A) after `count` episodes that went as the incumbent goes on average: weights (·, S, A) an episode."""
    if task.phi is None:
        return visit_bonus.py_func(count * weights, ridge)
    phi = task.phi
    gram = ridge * np.eye(task.dim) + count * np.einsum("hsa,sad,sae->hde", weights, phi, phi)
    rows = phi.reshape(-1, task.dim)
    return np.array([elliptical_bonus(rows, one).reshape(phi.shape[:2]) for one in np.linalg.inv(gram)])


def _half_the_features(sizes: Sizes) -> Sizes:
    """d/2 features, and B smaller with √d."""
    dim = max(1, sizes.dim // 2)
    return replace(sizes, dim=dim, norm_bound=sizes.norm_bound * math.sqrt(dim / sizes.dim))


def _shrunk(what: str, sizes: Sizes) -> dict[str, Any]:
    """The theorem's C_u and incumbent phase N₀ after a change; logged episodes of the incumbent count towards N₀."""
    C_u = math.exp(theorem(sizes).C_u)
    return {"what": what, "C_u": C_u, "incumbent_phase": theorem_bounds.incumbent_phase(sizes, C_u, sizes.delta)}


def tables(found: dict[str, Any], of: str = "") -> list[Table]:
    """What `preflight` returned, for people; `of` says of which constraint."""
    if "constraints" in found:
        return [table for name, one in found["constraints"].items() for table in tables(one, f", {name}")]
    problem = found["problem"]
    choices = Table(
        "constant", *(f"{choice['name']} ({choice['level']})" for choice in found["choices"]),
        title=f"Constants for {problem['num_episodes']:,} episodes{of}",
    )  # fmt: skip
    for name in ("C_r", "C_u", "C_dagger", "B_dagger", "kappa", "lam_max", "num_halvings"):
        choices.add_row(name, *(f"{choice['constants'][name]:.3g}" for choice in found["choices"]))
    lengths = Table("constants", "expected", "at most (if C_u holds)", title=f"Episodes of the incumbent{of}")
    for choice in found["choices"]:
        expected, most = choice["expected_incumbent_episodes"], choice["most_incumbent_episodes"]
        lengths.add_row(choice["name"], f"{expected:.3g}", f"{most:.3g}")
    terms = found["choices"][0]["regret_bound"]
    title = f"The theorem's regret bound (no run can have more than {problem['worst_regret']:,}){of}"
    regret = Table("term", "at most", title=title)
    for name, value in {**terms, "in all": sum(terms.values())}.items():
        regret.add_row(name, f"{value:.3g}")
    phase = "incumbent phase, logged episodes included"
    help_ = Table("with", "the theorem's C_u", phase, title=f"What would shrink them{of}")
    for row in found["would_shrink"]:
        help_.add_row(row["what"], f"{row['C_u']:.4g}", f"{row['incumbent_phase']:.3g}")
    return [choices, lengths, regret, help_]
