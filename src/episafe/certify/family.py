"""Family: policies with parameters, and the search for better parameters. Heuristic: the certifier decides."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from episafe.certify.staged import normal_parts
from episafe.core.agent import Candidate, Goal, Proposer
from episafe.core.checks import is_number, require
from episafe.core.policy import Policy
from episafe.core.task import Task
from episafe.core.types import Array, Document, State

Parameter = float | int | str | bool
Range = tuple[float, float] | Sequence[Parameter]  # (low, high) of a number, or a list of choices

LENGTH = 0.4  # of the unit cube's diagonal: how far apart two parameters say little of each other
NUM_POINTS, STEP = 1000, 0.15  # drawn anywhere, and as many near known ones at this standard deviation
MOST_TRIED = 30  # members of the family


class FamilyPolicy(Policy):
    """A member of a family: the policy that `make_policy` returns for these parameters."""

    def __init__(self, policy: Policy, parameters: dict[str, Parameter]) -> None:
        self.policy, self.parameters = policy, parameters

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""
        return self.policy.probabilities(h, state)

    def table(self) -> Array:
        """Return the table (H, S, A); raise if the states are not listed."""
        return self.policy.table()

    def document(self) -> Document:
        """Return the parameters, from which the family can make the policy again."""
        return {"kind": "family", "name": self.name, "parameters": self.parameters}


class Family(Proposer):
    """A family of policies with parameters, such as thresholds or weights; it proposes the parameters to try next.

    Gaussian processes model the rewards and utilities of the members that were tried. The next member is the one with
    the largest expected gain in the episodes that remain after its proof. A wrong model costs time, never safety.

    Args:
        make_policy: takes the parameters by name and returns a policy: a function (h, state) -> probabilities, a table,
            or an object with `probabilities`. Equal parameters must give equal policies.
        space: for each name a range (low, high), of integers if both are integers, or a list of choices.
        first: the parameters to try first, for example cautious ones; None for the middle of the space.

    Example:
        >>> import episafe as es
        >>> family = es.Family(lambda level: lambda h, s: [1 - level, level], {"level": (0.0, 1.0)})
        >>> family.parameters_at([0.25])
        {'level': 0.25}
    """

    def __init__(
        self,
        make_policy: Callable[..., object],
        space: Mapping[str, Range],
        first: Mapping[str, Parameter] | None = None,
    ) -> None:
        self.make_policy, self.space = make_policy, {name: _as_range(name, given) for name, given in space.items()}
        require(self.space, 'space is empty: give at least one parameter, {"level": (0.0, 1.0)}')
        fits = first is None or set(first) == set(self.space)
        require(fits, f"first has {sorted(first or ())}: give one value for each of {sorted(self.space)}")
        self.first = first
        self._task: Task | None = None

    def start(self, task: Task) -> None:
        """Bind the family to the task of its agent, and check that its first member is a policy."""
        self._task = task
        self.member(self._first())

    def _first(self) -> dict[str, Parameter]:
        return dict(self.first) if self.first is not None else self.parameters_at([0.5] * len(self.space))

    def member(self, parameters: Mapping[str, Parameter]) -> FamilyPolicy:
        """Return the policy of these parameters."""
        assert self._task is not None, "the family is not bound to a task: pass it to an agent"
        return FamilyPolicy(self._task.as_policy(self.make_policy(**parameters)), dict(parameters))

    def policy_of(self, document: Document) -> Policy | None:
        """Return the member that a log describes."""
        return self.member(document["parameters"]) if document["kind"] == "family" else None

    def propose(self, goal: Goal) -> Candidate | None:
        """Return the member to try next; None if none is expected to gain anything."""
        tried = [(policy, seen) for policy, seen in goal.seen if isinstance(policy, FamilyPolicy)]
        if len(tried) >= MOST_TRIED:
            return None
        if not tried:
            return Candidate("", self.member(self._first()), proposer="family")
        parameters = self._search([(policy, seen) for policy, seen in tried if seen[0, 0] > 0], goal)
        if parameters is None or any(policy.parameters == parameters for policy, _ in tried):
            return None
        return Candidate("", self.member(parameters), proposer="family")

    def parameters_at(self, point: Sequence[float]) -> dict[str, Parameter]:
        """Return the parameters at a point of the unit cube."""
        return {
            name: float(given[0] + value * (given[1] - given[0]))
            if isinstance(given, tuple)
            else given[min(int(value * len(given)), len(given) - 1)]
            for value, (name, given) in zip(point, self.space.items(), strict=True)
        }

    def point_at(self, parameters: Mapping[str, Parameter]) -> list[float]:
        """Return the point of the unit cube that has these parameters."""
        return [
            (float(parameters[name]) - given[0]) / (given[1] - given[0])
            if isinstance(given, tuple)
            else (given.index(parameters[name]) + 0.5) / len(given)
            for name, given in self.space.items()
        ]

    def _search(self, tried: Sequence[tuple[FamilyPolicy, Array]], goal: Goal) -> dict[str, Parameter] | None:
        """Return the parameters of the largest expected gain × episodes that remain after the proof.

        The proof of a surplus x with variance σ² takes about ln(1/δ_j) max(2σ²/x², 0.7 b/x) episodes of its own; the
        surplus is taken one standard deviation below its expected value.
        """
        if not tried:
            return None
        X = np.array([self.point_at(policy.parameters) for policy, _ in tried])
        seen, acting = np.array([one for _, one in tried]), goal.seen[0][1]
        n, means, deviations = seen[:, 0, 0], seen[:, :, 1], seen[:, :, 2]
        spread = np.maximum(np.ptp([*means, acting[:, 1]], axis=0), 1e-9)
        pooled = (deviations.sum(axis=0) + 0.01 * spread**2) / (n.sum() + 1)
        rng = np.random.default_rng([len(goal.seen), int(n.sum())])
        near = X[rng.integers(len(X), size=NUM_POINTS)] + rng.normal(0.0, STEP, (NUM_POINTS, X.shape[1]))
        Z = np.concatenate([rng.random((NUM_POINTS, X.shape[1])), np.clip(near, 0.0, 1.0)])
        found = [_predict(X, means[:, g], pooled[g] / n, Z, spread[g]) for g in range(means.shape[1])]
        own = np.zeros(len(Z))
        for (mean, error), variance, b in zip(found, pooled, goal.utilities, strict=False):
            surplus = np.maximum(mean - error - b, 1e-9 * (1 + abs(b)))
            own = np.maximum(own, goal.log_term * np.maximum(2 * variance / surplus**2, 0.7 * abs(b) / surplus))
        until = np.minimum(own / goal.first_weight, own + 20 * np.sqrt(own))
        reward, error = found[-1]
        gain = error * normal_parts((reward - acting[-1, 1]) / error)[0]
        score = gain * np.maximum(goal.ahead - until, 0.0)
        best = int(score.argmax())
        return self.parameters_at(Z[best].tolist()) if score[best] > 0 else None


def _as_range(name: str, given: Range) -> tuple[float, float] | Sequence[Parameter]:
    """Return (low, high) of real numbers, or all choices; whole numbers from low to high are choices."""
    if not isinstance(given, tuple):
        require(len(given), f"{name} has no choices: give (low, high), or a list of values")
        return list(given)
    low, high = given if len(given) == 2 else (math.nan, math.nan)
    holds = is_number(low) and is_number(high) and -math.inf < low < high < math.inf
    require(holds, f"the range of {name} is {given}: give (low, high) with low < high, or a list of choices")
    return range(low, high + 1) if isinstance(low, int) and isinstance(high, int) else (low, high)


def _predict(X: Array, y: Array, noise: Array, Z: Array, scale: float) -> tuple[Array, Array]:
    """Return mean and standard deviation at Z of a Gaussian process that was observed as y ± √noise at X."""

    def kernel(A: Array, B: Array) -> Array:
        square = ((A[:, None] - B[None]) ** 2).sum(axis=-1)
        return np.asarray(scale**2 * np.exp(-square / (2 * LENGTH**2 * math.sqrt(A.shape[1]))))

    weight = 1 / (noise + scale**2)
    middle = float(weight @ y / weight.sum())
    root = np.linalg.cholesky(kernel(X, X) + np.diag(noise + 1e-9 * scale**2))
    a = np.linalg.solve(root, kernel(X, Z))
    mean = middle + a.T @ np.linalg.solve(root, y - middle)
    return mean, np.sqrt(np.maximum(scale**2 - (a * a).sum(axis=0), 1e-12 * scale**2))
