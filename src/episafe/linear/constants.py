"""The constants of Algorithm 2 and of its peers, and the level of guarantee that comes with them."""

import math
import warnings
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from episafe.core.checks import as_count, as_scale, require
from episafe.core.errors import InvalidProblem
from episafe.core.task import ProblemLike, Task, task_of
from episafe.core.types import Level, Settings
from episafe.linear import theory
from episafe.linear.theory import Sizes

BRACKET_OVER_KAPPA = 0.1  # a final bracket above κ/10 moves the softmax visibly (regret 1895 against 780, κ = 0.001)
PUBLISHED = {"tabular": (1.0, 0.1), "streaming": (2.0, 0.1), "linear": (5.0, 0.01)}  # C_r = C_u = C_dagger, κ

MULTIPLIERS = {"opse": 0.3, "ghosh": 3.0, "dope": 3.0}  # of the bonus scales; `benchmarks/tuning.py` chose them


@dataclass(frozen=True)
class Constants:
    """Bonus scales, entropy coefficient and search limits, under the paper's names.

    Attributes:
        C_r: scale of the reward bonus.
        C_u: scale of the utility bonus; the only one that safety depends on.
        C_dagger: scale of the compensation's own bonus (C_d in the paper's experiments).
        B_dagger: scale of the compensation for pessimism.
        kappa: entropy coefficient κ > 0.
        lam_max: C_λ, the largest multiplier tried.
        num_halvings: T, halvings of [0, lam_max].
        ridge: ρ > 0.
        curve, spread: every bonus β becomes β(1 − spread + spread·σ) + curve·β². If both are 0, it is β, as in the
            paper. σ is √(P̂V² − (P̂V)²) with one-hot features, else 1. No theorem covers a positive spread.
        C_theta: C_θ, scale of the bonus of reward and utility, if they are learned.
        level: how strong the planner's own bound is; "theorem" only if made by `theory`.
        statement: the claim at that level, in one sentence.
        scope: for "theorem", the sizes of the problem that the constants are for.
    """

    C_r: float
    C_u: float
    C_dagger: float
    B_dagger: float
    kappa: float
    lam_max: float
    num_halvings: int
    ridge: float = 1.0
    curve: float = 0.0
    spread: float = 0.0
    C_theta: float = 1.0
    level: Level = field(default="heuristic", init=False)
    statement: str = field(default="", init=False)
    scope: Sizes | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.init and each.name != "num_halvings"):
            value = as_scale(name, self.__dict__[name], positive=name in ("kappa", "ridge"))
            self.__dict__[name] = value
        require(self.spread <= 1, f"spread must be in [0, 1], got {self.spread}")
        self.__dict__["num_halvings"] = as_count("num_halvings", self.num_halvings, 0)
        bracket = math.ldexp(self.lam_max, -self.num_halvings)
        if bracket > BRACKET_OVER_KAPPA * self.kappa:
            needed = math.ceil(math.log2(self.lam_max / BRACKET_OVER_KAPPA) - math.log2(self.kappa))
            warnings.warn(
                f"the final bracket lam_max·2^-num_halvings = {bracket:.3g} is not far below kappa = {self.kappa:.3g}: "
                f"the deployed λ is coarse and regret grows; use num_halvings >= {needed}",
                stacklevel=3,
            )

    def settings(self) -> Settings:
        """Return the constants as plain values, for records."""
        return {name: value for name, value in asdict(self).items() if name != "scope"}

    def replace(self, **changes: Any) -> "Constants":
        """Return the same constants with some changed; they are heuristic."""
        return replace(self, **changes)

    @classmethod
    def proposing(cls) -> "Constants":
        """Return the constants of a planner that only proposes; the certifier does not use them.

        They are optimistic about the reward and not pessimistic about the utility. C_u = 0 proves nothing, and OPSE
        refuses it. The small ridge gives untried actions a large bonus. They were chosen on the released problems of
        seeds 1000 to 1029.
        """
        return cls(1.0, 0.0, 0.0, 0.0, kappa=0.001, lam_max=300.0, num_halvings=30, ridge=0.05, C_theta=0.0)

    @classmethod
    def paper(cls, env: str, agent: str = "opse") -> "Constants":
        """Return the published constants of one environment and agent.

        Those of "linear", T = 20 and C_λ of Ghosh et al. are only in the notebook of the released code.
        DOPE uses only C_r and C_u; the paper does not run it on "linear".
        """
        if env not in PUBLISHED:
            raise ValueError(f"no published constants for {env!r}; there are those of {', '.join(PUBLISHED)}")
        if agent not in ("opse", "ghosh", "dope"):
            raise ValueError(f'agent must be "opse", "ghosh" or "dope", got {agent!r}')
        if (env, agent) == ("linear", "dope"):
            raise ValueError("no published constants of dope for 'linear': the paper does not run it there")
        scale, kappa = PUBLISHED[env]
        if agent == "dope":
            scale = 1.0
        compensation = (scale, 1.0) if agent == "opse" else (0.0, 0.0)
        return cls(scale, scale, *compensation, kappa=kappa, lam_max=300.0, num_halvings=20)

    @classmethod
    def tuned(cls, problem: ProblemLike, agent: str = "", *, slack_guess: float | None = None) -> "Constants":
        """Return constants with a small regret and no violation on held-out problems; nothing is proved.

        Use them with `Doubling(0.3)`. They depend on H, on ξ and on whether features are one-hot:

            one-hot:   C_r, C_u, C_†, B_† = c(1.5, 2.8, 0.5, 0.6), in units of σ;    spread = 1;  ρ = 0.4
            features:  C_r, C_u, C_†, B_† = c(0.1, 0.27, 0.07, 0.1)(H−1);            spread = 0;  ρ = 0.05
            both:      curve = 1;  κ = 5·10⁻⁴;  C_λ = 8H²(B_†/c + 1)/ξ;  a bracket of κ/100

        By default c is 1. With `agent` it is the multiplier of the benchmark's `opse-tuned`, `ghosh-tuned` or
        `dope-tuned`, which allows a few violations. For `dope`, C_r = C_u = c, in units of its own bonus.
        `slack_guess` replaces an unknown ξ; only C_λ depends on it.
        """
        task = task_of(problem)
        slack, H = _slack_or_guess(task, slack_guess), task.horizon or 1
        C_r, C_u, C_dagger, B_dagger, ridge, spread = 1.5, 2.8, 0.5, 0.6, 0.4, 1.0
        if not task.one_hot:
            span = H - 1  # the range of next values, in place of their σ
            C_r, C_u, C_dagger, B_dagger, ridge, spread = 0.1 * span, 0.27 * span, 0.07 * span, 0.1 * span, 0.05, 0.0
        if agent == "dope":
            C_r = C_u = 1.0
        kappa, lam_max = 5e-4, 8 * H**2 * (B_dagger + 1) / slack
        num_halvings = max(0, math.ceil(math.log2(lam_max) - math.log2(kappa / 100)))
        C_r, C_u, C_dagger, B_dagger = (MULTIPLIERS.get(agent, 1.0) * scale for scale in (C_r, C_u, C_dagger, B_dagger))
        limits = kappa, lam_max, num_halvings
        return cls(C_r, C_u, C_dagger, B_dagger, *limits, ridge=ridge, curve=1.0, spread=spread)

    @classmethod
    def theory(
        cls, problem: ProblemLike, num_episodes: int, delta: float = 0.05, *, slack_guess: float | None = None
    ) -> "Constants":
        """Return the theorem's constants for `num_episodes` episodes, logged ones included, at failure probability δ.

        They prove safety under three conditions. P_h(s'|s,a) = φ(s,a)ᵀμ_h(s') with ‖Σ_s' μ_h(s') g(s')‖ ≤ B max g for
        every g ≥ 0, where B is the task's `norm_bound`. The incumbent is safe. No more episodes are learned from. They
        are so large that runs of practical length deploy only the incumbent. The formulas are in
        `episafe.linear.theory`.

        Args:
            problem: a problem or its task, with one limit; time-homogeneous ones have n = KH transitions.
            num_episodes: K.
            delta: δ, for all episodes together.
            slack_guess: ξ, if the task does not know it; fixed before any data. Safety holds for every guess, but the
                regret bound only if the guess is at most the true slack.
        """
        task = task_of(problem)
        alone = task.num_constraints == 1
        require(alone, "Constants.theory is derived for one limit: with several use es.SafeAgent(problem)")
        norm, dim = task.norm_bound or math.inf, task.dim + (0 if task.one_hot else len(task.outside))
        if math.isinf(norm) or task.horizon is None or task.num_actions is None:
            raise InvalidProblem("the theorem needs transitions that are linear in the features: use one-hot features")
        slack = _slack_or_guess(task, slack_guess)
        lengths = task.horizon, task.num_actions, dim
        sizes = Sizes(*lengths, slack, num_episodes, delta, norm, task.time_homogeneous)
        found = theory.theorem(sizes)
        made = cls(**asdict(found), num_halvings=theory.num_halvings(sizes, found))
        equal = " and the same at every step" if sizes.shared else ""
        statement = (
            f"with probability at least {1 - delta:.12g} every policy deployed in {num_episodes} episodes is safe, in "
            f"exact arithmetic, if the problem is linear in its {sizes.dim} features{equal}, P = φᵀμ with "
            f"‖Σ μ(s')g(s')‖ <= {norm:.12g} · max g for every g >= 0, and the incumbent is safe; the regret bound also "
            f"needs its slack to be at least {sizes.slack:.12g}"
        )
        made.__dict__.update(level="theorem", statement=statement, scope=sizes)
        return made

    def require_scope(self, task: Task, num_episodes: int) -> None:
        """Raise if the theorem's constants were computed for another problem or number of episodes."""
        scope = self.scope
        if scope is None:
            return
        dim = task.dim + (0 if task.one_hot else len(task.outside))
        given = task.horizon, task.num_actions, dim, task.constraints[0].slack or scope.slack, task.norm_bound
        same = given == (scope.horizon, scope.num_actions, scope.dim, scope.slack, scope.norm_bound)
        require(same, f"these constants were derived for {scope}: use Constants.theory of this task")
        fault = f"these constants hold for {scope.num_episodes} episodes, logged ones included, not for {num_episodes}"
        fits = num_episodes <= scope.num_episodes
        require(fits, f"{fault}: use Constants.theory(task, num_episodes={num_episodes})")


def _slack_or_guess(task: Task, guess: float | None) -> float:
    """Return the least slack of the task or, where it does not know it, the guess."""
    known = [one.slack for one in task.constraints if one.slack is not None]
    if len(known) == task.num_constraints:
        require(guess is None, f"the task knows its slack, {min(known):g}: leave out slack_guess={guess!r}")
        return min(known)
    remedy = "give slack_guess=…, which affects regret and never safety, or measure it with es.measure_slack"
    require(guess is not None, f"the slack is unknown: {remedy}")
    return as_scale("slack_guess", guess, positive=True)
