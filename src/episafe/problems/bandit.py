"""Linear bandits with a limit on the expected utility of every round: the problem and the task of its agent.

A round is an episode of horizon 1. Its state is the number of the round, counted from 0; its actions are vectors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from episafe.core.checks import TOLERANCE, as_array, as_count, as_distributions, as_indices, as_scale, check_norm
from episafe.core.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.core.policy import FunctionPolicy, Policy
from episafe.core.task import FunctionFeatures, Task, make_constraints
from episafe.core.types import Array, Episode, PerLimit, State
from episafe.kernels.bandit_sets import best_policy, chords

ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of eigenvalues and aᵀMa, relative to ‖M‖₂
UNIT_NORM = "divide all actions by the largest norm, and multiply norm_bound by it"


class ActionPolicy(Policy):
    """Plays actions[i], (n, d), with probability weights[i]: arms of the round, or a few points of an ellipsoid."""

    def __init__(self, actions: ArrayLike, weights: ArrayLike, name: str = "") -> None:
        self.actions, self.name = as_array("actions", actions, (None, None)), name
        self.weights = np.maximum(as_distributions("weights", weights, (len(self.actions),)), 0.0)

    def probabilities(self, h: int, state: State) -> Array:
        """Return the weights (n,), in every round."""
        return self.weights

    def mean(self) -> Array:
        """Return E[a], shape (d,)."""
        return self.weights @ self.actions


class Ellipsoid:
    """The action set {a : aᵀMa ≤ 1}, centred at 0, within the unit ball.

    Args:
        M: symmetric (d, d), smallest eigenvalue at least 1. No exact method is known for sets with another centre.
    """

    def __init__(self, M: ArrayLike) -> None:
        self.M = as_array("M", M, (None, None))
        if self.M.shape[0] != self.M.shape[1] or self.M.shape[0] == 0:
            raise InvalidProblem(f"M must be square, got shape {self.M.shape}: give a matrix (d, d)")
        self.dim, self.tolerance = len(self.M), max(TOLERANCE, ROUNDING * float(np.linalg.norm(self.M, 2)))
        if np.abs(self.M - self.M.T).max() > self.tolerance:
            raise InvalidProblem("M must be symmetric: pass (M + M.T)/2")
        smallest = float(np.linalg.eigvalsh(self.M)[0])
        if smallest < 1 - self.tolerance:
            remedy = UNIT_NORM if smallest > 0 else "it must be positive definite"
            raise InvalidProblem(f"M has the eigenvalue {smallest:.12g} < 1, so some action has norm above 1: {remedy}")
        self.root = np.linalg.inv(np.linalg.cholesky(self.M)).T  # L⁻ᵀ, M = LLᵀ: the set is {root·x : ‖x‖ ≤ 1}

    @classmethod
    def ball(cls, dim: int, radius: float = 1.0) -> "Ellipsoid":
        """Return the ball {a : ‖a‖₂ ≤ radius}, radius ≤ 1."""
        return cls(np.eye(as_count("dim", dim)) / as_scale("radius", radius, positive=True) ** 2)

    def __repr__(self) -> str:
        return f"Ellipsoid(dim={self.dim})"

    def contains(self, action: Array) -> bool:
        """Return whether `action` is in the set, up to the tolerance."""
        return bool(action @ self.M @ action <= 1 + self.tolerance)

    def best_mixture(
        self, theta: Array, gram_inv: Array, scales: tuple[float, float], threshold: float
    ) -> tuple[Array, float]:
        """Return max E[θ_rᵀa + c_f‖a‖] s.t. E[θ_uᵀa − c_g‖a‖] ≥ b with ‖a‖ = ‖a‖_{Λ⁻¹}: two actions (2, d), and the
        share of the second; NaN if no action has such a utility. θ_r and θ_u are (2, d), scales c_f and c_g.
        """
        w, V = np.linalg.eigh(self.root.T @ gram_inv @ self.root)
        basis, w = self.root @ V, np.maximum(w, np.finfo(np.float64).tiny)
        ends, share = chords(basis.T @ theta[0], basis.T @ theta[1], w, *scales, threshold)
        return ends @ basis.T, share


Actions = Array | Ellipsoid | Callable[[int], ArrayLike]


class BanditTask(Task):
    """What an agent knows about a linear bandit, without θ_r and θ_u.

    Args:
        actions: arms (n, d) with norms at most 1; an `Ellipsoid`; or a pure function k -> the n arms of round k.
        threshold: b; a list for several limits, which need arms.
        safe_policy: the incumbent: probabilities (n,) of the arms, a point (d,) of the ellipsoid, or a pure function
            k -> probabilities of the arms of round k.
        slack: ξ > 0; the incumbent has expected utility ≥ b + ξ in every round; None if unknown; a list for several.
        noise: R; observations differ from their means by R-sub-Gaussian noise.
        norm_bound: B ≥ ‖θ_r‖₂ and every ‖θ_u‖₂.
        names, action_names, units: for display; `names` are those of the limits.
    """

    actions: Actions
    noise: float
    norm_bound: float

    def __init__(
        self,
        actions: Any,
        threshold: PerLimit,
        safe_policy: Any,
        slack: PerLimit = None,
        noise: float = 0.5,
        norm_bound: float = 1.0,
        names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> None:
        n, dim = None, 0
        if isinstance(actions, Ellipsoid):
            dim, point = actions.dim, as_array("safe_policy", safe_policy, (actions.dim,))
            if not actions.contains(point):
                raise InvalidProblem(f"safe_policy {point.tolist()} lies outside the action set: scale it down")
            incumbent: Policy = ActionPolicy(point[None], [1.0])
        elif callable(actions) and callable(safe_policy):
            for name, ask in (("actions", actions), ("safe_policy", safe_policy)):
                if not np.array_equal(ask(0), ask(0)):
                    raise InvalidProblem(
                        f"{name}(0) returned two different values: it must be pure; seed it by the round"
                    )
            n, dim = as_arms("actions(0)", actions(0)).shape
            incumbent = FunctionPolicy(lambda h, k: safe_policy(k), n)
        elif callable(actions) or callable(safe_policy):
            raise InvalidProblem("actions and safe_policy must both be functions of the round, or neither")
        else:
            actions = as_arms("actions", actions)
            (n, dim), incumbent = actions.shape, ActionPolicy(actions, safe_policy)
        constraints = make_constraints(None, threshold, slack, names)
        if n is None and len(constraints) > 1:
            raise InvalidProblem(f"there are {len(constraints)} limits and no arms: list arms of the ellipsoid")
        self.__dict__.update(actions=actions, noise=as_scale("noise", noise))
        super().__init__(
            horizon=1,
            num_actions=None,
            constraints=constraints,
            incumbent=incumbent,
            features=FunctionFeatures(self.arms, dim),
            norm_bound=as_scale("norm_bound", norm_bound, positive=True),
            action_names=action_names,
            units=units or {},
        )
        # not before: the checks of tasks with listed actions assume utilities in [0, 1]
        self.__dict__["num_actions"] = n

    @property
    def changes(self) -> bool:
        """Return whether the arms change from round to round."""
        return callable(self.actions)

    def arms(self, k: int) -> Array:
        """Return the arms (n, d) of round k, checked; of an ellipsoid, the incumbent's point."""
        if isinstance(self.actions, np.ndarray):
            return self.actions
        if isinstance(self.actions, Ellipsoid):
            return self.incumbent.actions  # type: ignore[attr-defined]  # an ActionPolicy
        arms = as_arms(f"actions({k})", self.actions(k), self.dim)
        if len(arms) != self.num_actions:
            raise InvalidProblem(f"actions({k}) has {len(arms)} arms, not {self.num_actions}: repeat an arm to fill up")
        return arms

    def safe(self, k: int) -> Array:
        """Return the incumbent's probabilities (n,) of the arms of round k, checked."""
        return np.maximum(self.incumbent.probabilities(0, k), 0.0)

    def read(self, episode: Episode, encoded: bool = False) -> Episode:
        """Return one round, or a batch of n rounds, in canonical form; raise InvalidEpisode if it does not fit.

        Actions are vectors (n, d), or positions (n,) of arms in the rounds `states`. Canonical: actions (n, d), rewards
        (n,), utilities (n, m) and the totals over the batch.
        """
        m, given, states = self.num_constraints, np.asarray(episode.actions), episode.states
        try:
            if given.dtype.kind in "iu" and given.ndim == 1 and self.num_actions is not None:
                positions = as_indices("actions", given, len(given), self.num_actions) if len(given) else given
                if self.changes and (states is None or len(states) < len(given)):
                    raise InvalidEpisode("the arms change: report the rounds as states, or the actions as vectors")
                rounds = range(len(given)) if states is None else states
                given = np.array([self.arms(int(k))[i] for k, i in zip(rounds, positions, strict=False)])
            n = np.size(episode.rewards)
            actions = as_array("actions", given.reshape(0, self.dim) if n == 0 else np.atleast_2d(given), (n, self.dim))
            set_tolerance = self.actions.tolerance if isinstance(self.actions, Ellipsoid) else 0.0
            check_norm("actions", actions / (1 + set_tolerance))
            rewards = as_array("rewards", np.atleast_1d(episode.rewards), (n,))
            utilities = np.asarray(episode.utilities)
            utilities = utilities if utilities.ndim == 2 else utilities.reshape((-1, m) if m == 1 else (1, -1))
            utilities = as_array("utilities", utilities, (n, m))
        except InvalidProblem as error:
            raise InvalidEpisode(str(error)) from error
        totals = utilities.sum(axis=0), float(rewards.sum())
        return Episode(states, actions, rewards, utilities, episode.component, episode.trace, *totals)


class LinearBandit:
    """Reward θ_rᵀa and utilities θ_uᵀa of an action a, observed with noise. Policies must have expected utility ≥ b.

    Args:
        theta_r: (d,), of norm at most `norm_bound`.
        theta_u: (d,), or (m, d) for several limits.
        actions, threshold, safe_policy: see `BanditTask`, also for the arguments not listed here. The noise is
            Gaussian.
        slack: ξ; None for the incumbent's true slack, if the arms do not change.
        clicks: whether the observed reward is 0 or 1 with mean θ_rᵀa (then R ≥ 1/2).
        origin: where the problem comes from, as plain values; kept with every record.

    Example:
        >>> arms = [[1.0, 0.0], [0.0, 1.0]]
        >>> bandit = LinearBandit([0.9, 0.2], [0.0, 0.8], arms, 0.4, [0.0, 1.0], noise=0.1)
        >>> [round(float(p), 3) for p in bandit.optimal_policy().weights], round(bandit.optimal_value(), 3)
        ([0.5, 0.5], 0.55)
    """

    def __init__(
        self,
        theta_r: ArrayLike,
        theta_u: ArrayLike,
        actions: object,
        threshold: PerLimit,
        safe_policy: object,
        *,
        noise: float = 0.5,
        norm_bound: float = 1.0,
        slack: PerLimit = None,
        names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        clicks: bool = False,
        origin: Mapping[str, str | int | float] | None = None,
    ) -> None:
        told = noise, norm_bound, names, action_names, units
        self.task = BanditTask(actions, threshold, safe_policy, slack, *told)
        shape = (self.task.num_constraints, self.task.dim)
        self.theta_r = as_array("theta_r", theta_r, shape[1:])
        self.theta_u = as_array("theta_u", theta_u if np.ndim(theta_u) == 2 else [theta_u], shape)
        self.theta = np.vstack([self.theta_r, self.theta_u])
        longest = float(np.linalg.norm(self.theta, axis=1).max())
        if longest > self.task.norm_bound + TOLERANCE:
            raise InvalidProblem(f"a θ has norm {longest:.12g} > norm_bound {norm_bound:g}: raise norm_bound")
        self.clicks, self.origin = clicks, dict(origin or {})
        if clicks and (self.task.noise < 0.5 or self.task.num_actions is None):
            raise InvalidProblem(f"clicks need arms and a noise >= 0.5 (they are 1/2-sub-Gaussian), got {noise:g}")
        if self.task.changes and slack is None:
            raise InvalidProblem("slack must be given where the arms change: it must hold in every round")
        true = self.check_round(0)
        if slack is None:
            self.task = BanditTask(actions, self.task.thresholds, safe_policy, true, *told)

    def __repr__(self) -> str:
        task = self.task
        return f"LinearBandit({task.num_actions or task.actions} arms, d={task.dim}, b={task.thresholds.tolist()})"

    def evaluate(self, policy: object, k: int = 0) -> tuple[float, float | Array]:
        """Return the exact expected reward and utility of a policy or an action in round k; (m,) for several limits."""
        if isinstance(policy, ActionPolicy):
            mean = policy.mean()
        elif isinstance(policy, Policy):
            mean = policy.probabilities(0, k) @ self.task.arms(k)
        else:
            mean = as_array("action", policy, (self.task.dim,))
        utilities = self.theta_u @ mean
        return float(self.theta_r @ mean), float(utilities[0]) if len(utilities) == 1 else utilities

    def optimal_policy(self, k: int = 0) -> ActionPolicy:
        """Return the safe policy with the largest expected reward in round k; it uses at most m + 1 actions."""
        task, arms = self.task, self.task.arms(k)
        if isinstance(task.actions, Ellipsoid):
            arms, share = task.actions.best_mixture(self.theta, np.eye(task.dim), (0.0, 0.0), task.thresholds[0])
            return ActionPolicy(arms, [1 - share, share])  # the incumbent is feasible
        weights, lam = best_policy(arms @ self.theta_r, self.theta_u @ arms.T, task.thresholds, task.safe(k))
        if np.isnan(lam):
            raise Infeasible(f"no policy of round {k} reaches {task.thresholds.tolist()}: lower the threshold")
        return ActionPolicy(arms, weights)

    def optimal_value(self, k: int = 0) -> float:
        """Return the expected reward of the optimal safe policy of round k."""
        return self.evaluate(self.optimal_policy(k), k)[0]

    def check_round(self, k: int) -> Array:
        """Return the incumbent's true slacks (m,) in round k; raise if the stated ones or the click rates are wrong."""
        arms, who = self.task.arms(k), f"the incumbent of round {k}" if self.task.changes else "the incumbent"
        slacks = self.theta_u @ (self.task.safe(k) @ arms) - self.task.thresholds
        for one, true in zip(self.task.constraints, slacks.tolist(), strict=True):
            if true <= TOLERANCE:
                raise Infeasible(
                    f"{who} has utility {one.threshold + true:.12g}, not above the threshold {one.threshold:.12g} of "
                    f"{one.name}: lower the threshold, or give an incumbent that is strictly safe"
                )
            if one.slack is not None and one.slack > true + TOLERANCE:
                raise InvalidProblem(f"slack {one.slack:.12g} exceeds the true one of {who}: pass slack={true:.12g}")
        rates = arms @ self.theta_r
        if self.clicks and np.abs(rates - 0.5).max() > 0.5 + TOLERANCE:
            arm = int(np.abs(rates - 0.5).argmax())
            raise InvalidProblem(f"arm {arm} of round {k} has mean reward {rates[arm]:.12g}: clicks need one in [0, 1]")
        return slacks


def as_arms(name: str, value: object, dim: int | None = None) -> Array:
    """Return arms (n, d), at least one, with norms at most 1."""
    arms = as_array(name, value, (None, dim))
    if arms.size == 0:
        raise InvalidProblem(f"{name} lists no arm: give at least one")
    check_norm(name, arms)
    return arms
