"""The compiled search for λ, the policies that it finds, and the proposer built on it.

`decide` here and `algorithms.opse.decide` compute the same decision; a test compares them.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from episafe.core.agent import Candidate, Goal, Proposer
from episafe.core.checks import require
from episafe.core.policy import Policy, TablePolicy
from episafe.core.task import ProblemLike, Task, task_of
from episafe.core.types import SAFE, SOURCES, Array, Document, Episode, Source, State, is_outside
from episafe.kernels.softmax_arrays import ENTROPY, NO_ENTROPY, RELEASED_ENTROPY, Dense, Scales, Search
from episafe.kernels.softmax_decision import act, decide_all
from episafe.kernels.tabular_optimum import optimum
from episafe.linear.constants import Constants
from episafe.linear.ridge import SoftmaxModel

Variant = Literal["text", "released"]  # the rules of the paper, or of its released code


class Rules(NamedTuple):
    """What distinguishes the softmax algorithms from each other.

    Attributes:
        pessimistic: −C_uβ and the compensation bonus †; else +C_uβ and no compensation.
        fallback: deploy the incumbent when C_λ fails.
        ends: try C_λ and λ = 0 before bisection.
        entropy: what V̄ʳ adds: nothing, the paper's entropy, or that of the released code.
        extra_steps: added to the steps left in every clip limit.
        incumbent_first: the first episode is the incumbent's.
    """

    pessimistic: bool = True
    fallback: bool = True
    ends: bool = True
    entropy: int = ENTROPY
    extra_steps: float = 0.0
    incumbent_first: bool = False

    def scales(self, constants: Constants, num_actions: int) -> Scales:
        """Return the constants of the backward recursion."""
        C_u, C_dagger, B_dagger = constants.C_u, 0.0, 0.0
        if self.pessimistic:
            C_u, C_dagger, B_dagger = -C_u, constants.C_dagger, constants.B_dagger
        entropy = constants.kappa * math.log(num_actions)
        most = 1.0 if self.entropy == NO_ENTROPY else 1.0 + entropy
        after = entropy / num_actions if self.entropy == RELEASED_ENTROPY else 0.0  # a uniform policy's, by that code
        main = constants.C_r, C_u, C_dagger, B_dagger, constants.kappa, most, constants.curve, constants.spread
        return Scales(*main, extra_steps=self.extra_steps, entropy=self.entropy, value_after=after)

    def search(self, constants: Constants, thresholds: Array) -> Search:
        """Return what the search for λ reads."""
        limits = np.array(thresholds, dtype=np.float64), constants.lam_max, constants.num_halvings
        return Search(*limits, self.fallback, self.ends, -1.0, np.zeros(len(thresholds)))

    def log_factor(self, pi: Array) -> Array | float:
        """Return the factor on ln π in V̄ʳ: 1, or π in the released code, or 0 without entropy."""
        return pi if self.entropy == RELEASED_ENTROPY else float(self.entropy == ENTROPY)


FEWEST = 30  # episodes from which reward and utility are learned before the first proposal; set on six made-up systems
MOST_UNSEEN = 10_000  # answers of a policy at states not seen before that are kept
TEXT = Rules()
RELEASED = Rules(ends=False, entropy=RELEASED_ENTROPY, extra_steps=1.0, incumbent_first=True)
GHOSH = Rules(pessimistic=False, fallback=False)
GHOSH_RELEASED = RELEASED._replace(pessimistic=False, fallback=False, entropy=NO_ENTROPY)


def rules_of(variant: str, constants: Constants, text: Rules, released: Rules) -> Rules:
    """Return the rules of a variant, "text" or "released"."""
    require(variant in ("text", "released"), f'variant must be "text" or "released", got {variant!r}')
    fault = 'the released rules have no curve and no spread: set both to 0, or use variant="text"'
    require(variant == "text" or not (constants.curve or constants.spread), fault)
    return text if variant == "text" else released


class Decision(NamedTuple):
    """What is deployed next: the source, λ (m,), V̲ᵘ(s₁) (m,) of what was checked last, and π^λ or None (incumbent)."""

    source: Source
    lam: Array
    bounds: Array
    policy: Policy | None


def decide(model: SoftmaxModel, constants: Constants, rules: Rules = TEXT) -> Decision:
    """Return the decision of Algorithm 2, compiled: the same as `algorithms.opse.decide`."""
    search = rules.search(constants, model.task.thresholds)
    return searched(model, rules.scales(constants, model.num_actions), search, rules.incumbent_first)


def searched(model: SoftmaxModel, scales: Scales, search: Search, incumbent_first: bool = False) -> Decision:
    """Return what the compiled search decides."""
    work, task, H, A = model.work, model.task, model.horizon, model.num_actions
    table = np.zeros((H, (task.num_states or 0) if task.is_listed else model.slots.reward.shape[-1], A))
    if model.dim and not task.is_listed:
        table = work.none  # π^λ follows from the weights
    model.estimate_signals(scales.curve, 0.0 if math.isinf(scales.most_lost) else model.ridge)
    source = decide_all((model.arrays, model.slots, work, scales, search), table)
    if source == SAFE or (incumbent_first and model.num_episodes == 0):
        return Decision("safe", work.lam.copy(), work.bound.copy(), None)
    policy = policy_of(model, scales, work.lam, table, work.rest[1] if model.dim else np.zeros(0))
    return Decision(SOURCES[source], work.lam.copy(), work.bound.copy(), policy)


# policies


def policy_of(model: SoftmaxModel, scales: Scales, lam: Array, table: Array, weights: Array) -> Policy:
    """Return π^λ from its table (H, S, A), or (H, n, A) at the slots, or with features from w (H, G, d)."""
    if model.task.is_listed:
        return TablePolicy(table)
    if isinstance(model.arrays, Dense):
        gram_inv, signals = model.arrays.gram_inv.copy(), model.signals
        theta = np.zeros((0, 0, 0)) if signals is None else np.einsum("rkl,rgl->rgk", gram_inv, signals.sums)
        return SoftmaxPolicy(model, scales, {"lam": lam, "gram_inv": gram_inv, "weights": weights, "theta": theta})
    keys = [list(model._keys[model.row(h)]) for h in range(model.horizon)]
    rows = [dict(zip(known, rows, strict=False)) for known, rows in zip(keys, table, strict=True)]
    return SoftmaxPolicy(model, scales, {"lam": lam}, rows)


class SoftmaxPolicy(Policy):
    """π^λ_h(·|s) = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ), computed at any state, seen or not.

    Args:
        model: describes states.
        scales: constants of the backward recursion.
        kept: lam (m,); with features also gram_inv (R, d, d), weights (H, G, d), theta (R, 1+m, d) of learned signals.
        rows: with one-hot features, π (A,) at visited states by step and key; elsewhere β = ρ^{-1/2} and P̂V = 0.
    """

    def __init__(
        self, model: SoftmaxModel, scales: Scales, kept: dict[str, Array], rows: Sequence[dict[Hashable, Array]] = ()
    ) -> None:
        self._model, self._scales, self._rows = model, scales, rows
        self._unseen: dict[tuple[int, Hashable], Array] = {}  # answers at other states, where they are told apart
        self._kept = {name: array.copy() for name, array in kept.items()}

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""
        model, kept, scales, A = self._model, self._kept, self._scales, self._model.num_actions
        if self._rows:
            key = model.task.key(state)
            known = self._rows[h].get(key)
            known = self._unseen.get((h, key)) if known is None else known
            if known is not None:
                return known
        told = np.vstack([model.task.reward_at(h, state), model.task.utility_at(h, state)])
        if self._rows:
            phi, theta, PV = np.eye(A), np.zeros((len(told), A)), np.zeros((1 + len(told), A))
            own = np.full(A, model.ridge**-0.5)
            beta = own * (1 - scales.spread + scales.curve * own)
        else:
            phi, p = model.phi(state), model.row(h)
            own = np.sqrt(np.maximum(((phi @ kept["gram_inv"][p]) * phi).sum(axis=1), 0.0))
            own = beta = own * (1 + scales.curve * own)
            theta, PV = kept["theta"][p : p + 1], np.ascontiguousarray(kept["weights"][h] @ phi.T)
        if model.signals is not None and not is_outside(state):
            told = model.signals.estimate(theta.reshape(len(told), -1), phi, own, told)
        row: Array = act(told, beta, PV, scales, kept["lam"], model.horizon - 1 - h)
        if self._rows and len(self._unseen) < MOST_UNSEEN:
            self._unseen[h, key] = row
        return row

    def document(self) -> Document:
        """Return what the policy keeps as JSON values; the features themselves are the task's."""
        rows = [[[_key_as_json(key), row.tolist()] for key, row in known.items()] for known in self._rows]
        scales = {name: value for name, value in self._scales._asdict().items() if math.isfinite(value)}
        kept = {name: array.tolist() for name, array in self._kept.items()}
        own = [] if self._model.signals is None else self._model.signals.scales.tolist()
        told = {"kind": "softmax", "scales": scales, "ridge": self._model.ridge, "signal_scales": own}
        return told | {"kept": kept, "rows": rows}


def _key_as_json(key: object) -> object:
    """Return a key as JSON values: tuples and bytes are marked."""
    if isinstance(key, tuple):
        return {"tuple": [_key_as_json(part) for part in key]}
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    return key.item() if isinstance(key, np.generic) else key


def _key_from_json(value: object) -> Hashable:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"]) if "bytes" in value else tuple(map(_key_from_json, value["tuple"]))
    return value


def load_softmax(document: Document, problem: ProblemLike | None = None) -> Policy:
    """Return a `SoftmaxPolicy` from its document and the task whose features it reads."""
    if problem is None:
        raise TypeError("this policy reads the features of its task: give the problem, es.load_policy(path, problem)")
    kept = {name: np.array(values) for name, values in document["kept"].items()}
    rows = [{_key_from_json(key): np.array(row) for key, row in known} for known in document["rows"]]
    model = SoftmaxModel(task_of(problem), document["ridge"])
    if model.signals is not None:
        model.signals.scales[:] = document["signal_scales"]
    return SoftmaxPolicy(model, Scales(**document["scales"]), kept, rows)


# proposals


class SoftmaxProposer(Proposer):
    """Proposes π^λ of the smallest λ whose estimated utilities reach the goal; nothing here is proved.

    Args:
        problem: a problem or its task.
        constants: scales, κ, ρ and search limits.
    """

    def __init__(self, problem: ProblemLike, constants: Constants | None = None) -> None:
        self.task: Task = task_of(problem)
        self.constants = constants or Constants.proposing()
        self.model = SoftmaxModel(self.task, self.constants.ridge, self.constants.C_theta)

    def observe(self, episode: Episode) -> None:
        """Learn from an episode in canonical form."""
        self.model.observe(episode)

    def _scales(self, goal: Goal) -> Scales:
        scales, least = TEXT.scales(self.constants, self.model.num_actions), float(self.task.least_totals.min())
        if least > 0 and self.constants.C_u == 0:  # else what was never seen would look as if it lost everything
            scales = scales._replace(most_lost=self.model.horizon - least)
        scales = scales._replace(C_r=goal.boldness * scales.C_r)
        return scales._replace(C_u=goal.optimism) if goal.optimism > 0 else scales

    def propose(self, goal: Goal) -> Candidate | None:
        """Return π^λ of the smallest λ that reaches the goal, or of C_λ; its promised reward is V̄ʳ + V̄†.

        Return None where reward or utility is learned and too few episodes were seen: a trial of a guess takes long.
        """
        is_guess = self.model.signals is not None and self.model.num_episodes < FEWEST
        return None if is_guess else self._propose(goal)

    def _propose(self, goal: Goal) -> Candidate:
        if self.task.num_constraints > 1 and self.task.is_listed and self.model.signals is None:
            return self._propose_optimum(goal)
        model, scales, search = self.model, self._scales(goal), TEXT.search(self.constants, goal.utilities)
        found = searched(model, scales, search)
        if found.policy is None:  # take C_λ: no test, no halving
            found = searched(model, scales, search._replace(num_halvings=0, ends=False, fallback=False))
        promised = float(model.work.bounds[-1, model.work.lane[0]])  # V̄ʳ + V̄†
        if found.policy is None or not math.isfinite(promised):
            raise FloatingPointError(f"the planner predicts a reward of {promised}: nothing can be proposed")
        return Candidate("", found.policy, promised, "planner", float(found.lam.sum()))

    def _propose_optimum(self, goal: Goal) -> Candidate:
        """Return about the optimum of the estimated model with bonuses: with several limits it beats π^λ.

        The regret on `tabular` with two limits is a quarter less (10⁴ episodes, 40 problems).
        """
        task, model, scales = self.task, self.model, self._scales(goal)
        assert task.utilities is not None and task.num_states is not None
        H, S, A = model.horizon, task.num_states, model.num_actions
        left, P, beta = np.arange(H)[::-1, None, None], np.zeros((H, S, A, S)), np.zeros((H, S, A))
        for h in range(H):
            states = model.slots.state_of[model.row(h), :S]
            beta[h, states] = model.bonus(h).T
            if h + 1 < H:
                after = model.slots.state_of[model.row(h + 1), :S]
                P[h][np.ix_(states, np.arange(A), after)] = model.next_value(h, np.eye(S)).transpose(2, 1, 0)
        bonus = beta * (1 - scales.spread + scales.curve * beta)
        reward = task.reward + np.minimum(scales.C_r * bonus, left)
        utilities = task.utilities + np.clip(scales.C_u * bonus, -left, left)
        values, table, lams = optimum(P, reward, utilities, goal.utilities, task.initial_state)
        lam = float(lams.sum()) if np.isfinite(lams).all() else math.nan  # no policy reaches the goal
        return Candidate("", TablePolicy(table), min(float(values[0]), float(H)), "planner", lam)

    def earned(self) -> float:
        """Return the most that any policy earns by what was seen alone, without bonus; its utility does not count.

        It is V̄ʳ at C_r = λ = 0, less the κH ln A that entropy may add; 0 at least.
        """
        entropy = self.constants.kappa * self.model.horizon * math.log(self.model.num_actions)
        return max(self._propose(Goal(self.task.least_totals, boldness=0.0)).reward - entropy, 0.0)
