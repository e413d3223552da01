"""The constants of Algorithm 2 and of its peers, and the level of guarantee that comes with them."""

import math
import sys
import warnings
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from episafe.checks import as_scale, as_whole
from episafe.errors import InvalidProblem
from episafe.learning import theory_constants
from episafe.learning.theory_constants import LARGEST_LOG, Sizes
from episafe.problems.sampled_problem import AnyTask, linear_norm_bound
from episafe.problems.short_repr import short_repr
from episafe.types import Level

if TYPE_CHECKING:
    from episafe.learning.planner import Replanning

LEAST_LOG = math.log(sys.float_info.min)
DERIVED = ("level", "statement", "scope", "calibrated_for", "only_proposes")  # what comes with constants, never set
BRACKET_OVER_KAPPA = 0.1  # a final bracket above κ/10 moves the softmax visibly (regret 1895 against 780, κ = 0.001)


@dataclass(frozen=True)
class CalibratedFor:
    """All that a calibration is about; of anything else constants are heuristic.

    Attributes:
        family: its name.
        task: fingerprint of what the task tells; it is of the family.
        procedure: the agent, its certifier, replanning rule and search, in words.
        num_episodes: the length of the runs.
    """

    family: str
    task: str
    procedure: str
    num_episodes: int


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
        curve, spread: every bonus β becomes β(1 − spread + spread·σ) + curve·β²; at 0 and 0 it is β, as in the paper.
            σ = √(P̂V² − (P̂V)²) says how far next values stray (a Bernstein bonus, one-hot features only; else σ = 1).
            A curve only enlarges bonuses; a spread shrinks some, so that what is proved for β is lost with it.
        growth: the replanning that goes with these constants: Doubling(growth), or Every() at 0, as in the paper.
        C_theta: C_θ, scale of the bonus of reward and utility where they are learned; read only there.
        level: what the certificate is worth, not to be set: constants set by hand are "heuristic", however well they do
        statement: what is claimed at that level, in one sentence; empty for constants set by hand
        scope: for "theorem", the H, A, d, ξ, K, δ, B and more that the constants are for
        calibrated_for: for "calibrated", the task, the procedure and the length of run that the constants are for
        only_proposes: whether they are those of `proposing`, with which nothing may be deployed unless it is certified
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
    growth: float = 0.0
    C_theta: float = 1.0
    level: Level = field(default="heuristic", init=False)
    statement: str = field(default="", init=False)
    scope: Sizes | None = field(default=None, init=False)
    calibrated_for: CalibratedFor | None = field(default=None, init=False)
    only_proposes: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.init and each.name != "num_halvings"):
            object.__setattr__(self, name, as_scale(name, getattr(self, name), positive=name in ("kappa", "ridge")))
        if self.spread > 1:
            raise ValueError(f"spread must be in [0, 1], got {self.spread}")
        object.__setattr__(self, "num_halvings", as_whole("num_halvings", self.num_halvings, 0))
        self._warn_wide_bracket()

    def _warn_wide_bracket(self) -> None:
        bracket = math.ldexp(self.lam_max, -self.num_halvings)
        if bracket > BRACKET_OVER_KAPPA * self.kappa:
            needed = math.ceil(math.log2(self.lam_max) - math.log2(BRACKET_OVER_KAPPA) - math.log2(self.kappa))
            warnings.warn(
                f"the final bracket lam_max·2^-num_halvings = {bracket:.3g} is not far below kappa = {self.kappa:.3g}: "
                f"the deployed λ is coarse and regret grows; use num_halvings >= {needed}",
                stacklevel=4,
            )

    def __repr__(self) -> str:
        named = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        hidden = ("statement", "scope", "calibrated_for", "only_proposes")
        return short_repr(
            self, {name: value for name, value, default in named if value != default and name not in hidden}
        )

    @property
    def replan(self) -> "Replanning":
        """The replanning rule that goes with these constants."""
        from episafe.learning.planner import Doubling, Every  # it reads constants

        return Doubling(self.growth) if self.growth > 0 else Every()

    def settings(self) -> dict[str, str | int | float]:
        """The constants as plain values, for records."""
        return {name: value for name, value in asdict(self).items() if name not in DERIVED[2:]}

    def replace(self, **changes: Any) -> "Constants":
        """The same constants with some changed; names that do not exist are an error."""
        values = {name: value for name, value in asdict(self).items() if name not in DERIVED}
        for name in changes:
            if name not in values:
                raise ValueError(f"no constant {name!r}; there are {', '.join(values)}")
        made = Constants(**{**values, **changes})
        object.__setattr__(made, "only_proposes", self.only_proposes and "C_u" not in changes)
        return made

    @classmethod
    def proposing(cls) -> "Constants":
        """One setting for a planner that only proposes, beside a certifier that does not read the constants.

        Optimistic in the reward, without pessimism: the certifier sees to that. The small ridge makes what was never
        tried look worth trying. Chosen on the released problems of seeds 1000 to 1029; touches regret, never safety.
        Without a certifier they would prove nothing, and OPSE refuses them.
        """
        made = cls(1.0, 0.0, 0.0, 0.0, kappa=0.001, lam_max=300.0, num_halvings=30, ridge=0.05, C_theta=0.0)
        return made._stamped("heuristic", "", only_proposes=True)

    @classmethod
    def paper(cls, name: str, agent: str = "opse") -> "Constants":
        """The published constants of one environment and agent.

        "linear" is not in the text; its values are those of the released notebook. DOPE reads C_r and C_u only.
        """
        if name not in _PUBLISHED:
            raise ValueError(f"no published constants for {name!r}; there are those of {', '.join(_PUBLISHED)}")
        if agent not in ("opse", "ghosh", "dope"):
            raise ValueError(f'agent must be "opse", "ghosh" or "dope", got {agent!r}')
        scale, kappa = _PUBLISHED[name]
        if agent == "dope":
            scale = 1.0
        compensation = (scale, 1.0) if agent == "opse" else (0.0, 0.0)
        return cls(scale, scale, *compensation, kappa=kappa, lam_max=300.0, num_halvings=20)

    @classmethod
    def tuned(cls, task: AnyTask, *, slack_guess: float | None = None) -> "Constants":
        """Low regret with no violation seen on problems that the rule was not chosen on; heuristic, nothing is proved.

        One rule from H, ξ and whether features are one-hot (docs/decisions/0017):

            one-hot:   C_r, C_u, C_†, B_† = 1.5, 2.8, 0.5, 0.6, in units of σ;    spread = 1;  ρ = 0.4
            features:  C_r, C_u, C_†, B_† = (0.1, 0.27, 0.07, 0.1)(H−1);          spread = 0;  ρ = 0.05
            both:      curve = 1;  κ = 5·10⁻⁴;  C_λ = 8H²(B_† + 1)/ξ;  a bracket of κ/100;  Doubling(0.3)

        `slack_guess` stands for ξ where the task does not tell it; it is read in C_λ alone. Too large, and C_λ may not
        be enough to leave the incumbent; a hundred times too small costs some seven more halvings of λ.
        """
        slack = _slack_or_guess(task, slack_guess)
        C_r, C_u, C_dagger, B_dagger, ridge, spread = 1.5, 2.8, 0.5, 0.6, 0.4, 1.0
        if not task.one_hot:
            span = task.horizon - 1  # the range of next values, in place of their σ
            C_r, C_u, C_dagger, B_dagger, ridge, spread = 0.1 * span, 0.27 * span, 0.07 * span, 0.1 * span, 0.05, 0.0
        kappa, lam_max = 5e-4, 8 * task.horizon**2 * (B_dagger + 1) / slack
        num_halvings = max(0, math.ceil(math.log2(lam_max) - math.log2(kappa / 100)))
        return cls(
            C_r, C_u, C_dagger, B_dagger, kappa, lam_max, num_halvings,
            ridge=ridge, curve=1.0, spread=spread, growth=0.3,
        )  # fmt: skip

    @classmethod
    def theory(
        cls, task: AnyTask, num_episodes: int | None, delta: float = 0.05, *, slack_guess: float | None = None
    ) -> "Constants":
        """The theorem's constants for `num_episodes` episodes, logged ones included, at failure probability `delta`.

        They prove safety if the problem is linear in its features, P_h(s'|s,a) = φ(s,a)ᵀμ_h(s') with
        ‖Σ_s' μ_h(s') g(s')‖ ≤ B max g for every g ≥ 0, B the task's `norm_bound`; if the incumbent is safe; and if no
        more episodes are learned from. They are so large that no run of practical length leaves the incumbent;
        `episafe preflight` says how long. The formulas are in `episafe.learning.theory_constants`, the derivation in
        docs/theory.md; what float64 cannot hold of them is an error, what it cannot resolve is in
        `theory_constants.notes`.

        Args:
            task: what the learner is told; where it is time-homogeneous the constants are for n = KH transitions.
            num_episodes: K; None where nobody knows it. The constants are then those of the first epoch K_m = 2^m·512
                with δ_m = δ/(m(m+1)), and the agent goes on to the next epoch's when it gets there, keeping its data.
            delta: δ, for all episodes together.
            slack_guess: ξ where the task does not tell the slack, fixed before any data. Safety holds for every guess;
                one above the true slack loses the regret bound, and a small one explores more than is needed.
        """
        slack = _slack_or_guess(task, slack_guess)
        K = 1 if num_episodes is None else num_episodes
        bound, shared = linear_norm_bound(task), task.time_homogeneous
        sizes = Sizes(
            task.horizon, task.num_actions, task.dim, slack, K, delta, shared=shared, norm_bound=bound
        )  # fmt: skip
        return cls._of_sizes(theory_constants.anytime(sizes, K) if num_episodes is None else sizes, delta)

    @classmethod
    def _of_sizes(cls, sizes: Sizes, delta: float) -> "Constants":
        """The theorem's constants at `sizes`; `delta` is that of all epochs together."""
        logs = theory_constants.theorem(sizes)
        values = {name: _within_float64(name, value, sizes) for name, value in asdict(logs).items()}
        made = cls(**values, num_halvings=theory_constants.num_halvings(sizes, logs))
        episodes = "in any number of" if sizes.epoch else f"in {sizes.num_episodes}"
        alike = " and the same at every step" if sizes.shared else ""
        return made._stamped(
            "theorem",
            f"with probability at least {1 - delta:.12g} every policy deployed {episodes} episodes is safe, in exact "
            f"arithmetic, if the problem is linear in its {sizes.dim} features{alike}, P = φᵀμ with ‖Σ μ(s')g(s')‖ <= "
            f"{sizes.norm_bound:.12g} · max g for every g >= 0, and the incumbent is safe; the regret bound also needs "
            f"its slack to be at least {sizes.slack:.12g}",
            sizes,
        )

    def reaching(self, num_episodes: int) -> "Constants":
        """These constants or, where they are for any number of episodes, those of the epoch that holds so many."""
        if self.scope is None or not self.scope.epoch or num_episodes <= self.scope.num_episodes:
            return self
        total = self.scope.delta * self.scope.epoch * (self.scope.epoch + 1)
        return Constants._of_sizes(theory_constants.anytime(self.scope, num_episodes), total)

    def _stamped(
        self,
        level: Level,
        statement: str,
        scope: Sizes | None = None,
        calibrated_for: CalibratedFor | None = None,
        only_proposes: bool = False,
    ) -> "Constants":
        """The same constants with what is claimed of them; for the functions that derive or validate them."""
        made = self.replace()
        for name, value in zip(DERIVED, (level, statement, scope, calibrated_for, only_proposes), strict=True):
            object.__setattr__(made, name, value)
        return made

    def refuse_outside_scope(self, task: AnyTask, num_episodes: int) -> None:
        """An error where the theorem is claimed of a problem or a number of episodes that it was not computed for."""
        if self.scope is None:
            return
        scope, slack = self.scope, self.scope.slack if task.slack is None else task.slack
        derived = scope.horizon, scope.num_actions, scope.dim, scope.slack, scope.shared, scope.norm_bound
        if (task.horizon, task.num_actions, task.dim, slack, task.time_homogeneous, task.norm_bound) != derived:
            raise ValueError(f"these constants were derived for {self.scope}: use Constants.theory of this task")
        if num_episodes > self.scope.num_episodes and not self.scope.epoch:
            raise ValueError(
                f"these constants hold for {self.scope.num_episodes} episodes, logged ones included, and not for "
                f"{num_episodes}: use Constants.theory(task, num_episodes={num_episodes})"
            )


# environment: (C_r = C_u = C_dagger of OPSE and Ghosh, kappa)
_PUBLISHED = {"tabular": (1.0, 0.1), "streaming": (2.0, 0.1), "linear": (5.0, 0.01)}


def _slack_or_guess(task: AnyTask, guess: float | None) -> float:
    """The task's slack or, where it does not tell it, the guess."""
    if task.slack is not None:
        if guess is not None:
            raise ValueError(f"the task tells its slack, {task.slack:g}: leave out slack_guess={guess!r}")
        return task.slack
    if guess is None:
        raise ValueError(
            "the slack is not known: give slack_guess=…, which touches regret and never safety, or measure it with "
            "es.measure_slack"
        )
    return as_scale("slack_guess", guess, positive=True)


def _within_float64(name: str, log: float, sizes: Sizes) -> float:
    value = math.exp(log) if LEAST_LOG < log < LARGEST_LOG else math.nan
    if math.isnan(value):
        raise InvalidProblem(
            f"the theorem's {name} is e^{log:.0f} at slack {sizes.slack:.3g}, which float64 cannot hold: the theorem "
            "cannot be applied; an incumbent with more slack, or a lower threshold, shrinks it"
        )
    return value
