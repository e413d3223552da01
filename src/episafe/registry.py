"""All that is known about agents by name: how they are built, what they are, how reports show them.

To add an agent, name it here. This module is data: it imports no agent, and names classes as "module:class".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Literal

EPISODES = ("constants", "replan")  # what a constructor takes beside the task, of agents that play episodes
COUNTED = ("num_episodes", "replan")  # and of those whose log terms name their number
TERMS = ("bonus", "delta")  # that the same may be given: the multiplier of all bonuses, and δ
ROUNDS = ("num_rounds", "delta", "replan")  # and rounds
DETERMINANT = {"radius": "determinant"}
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
# of violations, by an agent's theorem: none in any episode; the sum of their positive parts is o(K); their sum is, and
# what is kept in one episode may pay for another; nothing
Proved = Literal["zero", "hard", "soft", ""]


@dataclass(frozen=True)
class Build:
    """How an agent is made for a problem.

    Attributes:
        agent: its class, as "module:class".
        takes: which of what is asked for its constructor is given, by name.
        arguments: what it is given besides: problem ↦ arguments. All that it is told beyond the task stands here.
        finite_only: whether it needs listed arms that do not change.
        options: what may be given in place of that, by name.
        exogenous_only: whether it needs a problem whose chance is exogenous and seen.
    """

    agent: str
    takes: tuple[str, ...] = EPISODES
    arguments: Callable[[Any], Mapping[str, Any]] = lambda problem: {}
    finite_only: bool = False
    options: tuple[str, ...] = ()
    exogenous_only: bool = False

    def make(self, problem: Any, options: Mapping[str, Any] = NO_OPTIONS, **asked: Any) -> Any:
        """The agent, new, for the task of a problem; with these of its options."""
        for name in options:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise ValueError(f"{self.agent.partition(':')[2]} has no option {name!r}; there are: {known}")
        given = {name: asked[name] for name in self.takes}
        return resolve_name(self.agent)(problem.task, **given, **{**self.arguments(problem), **options})


@dataclass(frozen=True)
class AgentFacts:
    """The facts about one agent.

    Attributes:
        summary: what it is, in one line.
        label: what reports call it.
        colour, dash: how reports draw it: a colour of Okabe and Ito's colour-blind-safe set, a dash of
            `reports.pictures`; "" for whatever is left. Those with a colour come first, in the order of this registry.
        story: what reports say it does, after its name.
        proved: what its theorem says of violations, with the theorem's constants; "" where there is none.
        falls_back: whether it may deploy the incumbent.
        mdp, bandit: how it is built for either kind of problem; None where it is not for that kind.
        only_proposes: whether its constants only serve to propose.
        plans: whether it decides anything.
        frontier: the constants that `episafe frontier` multiplies for it: "tuned", "published".
        published_as: whose published constants it takes where none are given.
    """

    summary: str
    label: str
    colour: str = ""
    dash: str = "solid"
    story: str = ""
    proved: Proved = ""
    falls_back: bool = True
    mdp: Build | None = None
    bandit: Build | None = None
    only_proposes: bool = False
    plans: bool = True
    frontier: tuple[str, ...] = ()
    published_as: str = "opse"

    @property
    def multiplier(self) -> float:
        """By which all its bonuses are multiplied unless `bonus` is given; 1 where they are the published ones.

        Its entry says it, in `arguments`; what it does not say there is 1, as the constructor's own default must be.
        """
        if self.mdp is None or "bonus" not in self.mdp.options:
            return 1.0
        return float(self.mdp.arguments(None).get("bonus", 1.0))

    @property
    def line(self) -> str:
        """The summary and, where it is not 1, the multiplier, for `episafe list`."""
        return self.summary + (f"; bonus={self.multiplier:g} unless set" if self.multiplier != 1 else "")

    @property
    def reads_constants(self) -> bool:
        """Whether it can be built with an `es.Constants`."""
        return self.mdp is not None and "constants" in self.mdp.takes


CERTIFIERS = {
    "model": (
        "episafe.certify:Model",
        "the paper's: the model's pessimistic value; assumes linear features and a large enough C_u",
    ),
    "observation": (
        "episafe.certify:Observation",
        "observed utilities of mixtures; assumes episodes without drift and the slack of the incumbent, no model",
    ),
    "roomier": (
        "episafe.certify:Roomier",
        "observation for an incumbent of small slack: looks first for a roomier policy that pays for trials",
    ),
    "hindsight": (
        "episafe.certify:Hindsight",
        "every trace replayed under every policy; assumes exogenous chance that is seen, alike and independent",
    ),
    "fresh-data": (
        "episafe.certify:FreshData",
        "regression on data that a policy was fixed before; assumes linear features, listed states; no mixtures",
    ),
    "box": (
        "episafe.certify:Box",
        "a confidence box of the kernel for all policies at once; assumes listed states, no features; few mixtures",
    ),
}
PARTS = (  # other classes that an agent may be given an instance of, and be built with again
    "episafe.learning.constants:CalibratedFor",
    "episafe.learning.constants:Constants",
    "episafe.learning.theory_constants:Sizes",
    "episafe.learning.planner:Every",
    "episafe.learning.planner:Doubling",
    "episafe.learning.multiplier_search:Bisection",
    "episafe.learning.multiplier_search:WarmStart",
    "episafe.learning.multiplier_search:Sections",
    "episafe.learning.transition_counts:Radius",
)


def make_certifier(name: str) -> Any:
    """The certifier of that name, as it is by default."""
    return resolve_name(CERTIFIERS[name][0])()


def known_class(name: str) -> Any:
    """The class of an agent or of a part of one, by its own name; None where it is not known here."""
    builds = (*BUILDS.values(), *BANDIT_BUILDS.values())
    paths = (*(build.agent for build in builds), *(path for path, _ in CERTIFIERS.values()), *PARTS)
    return next((resolve_name(path) for path in paths if path.partition(":")[2] == name), None)


def labelled_class(label: str) -> Any:
    """The class of the agent that this registry has by this label; None where there is none."""
    build = BUILDS.get(label) or BANDIT_BUILDS.get(label)
    return resolve_name(build.agent) if build else None


REGISTRY: dict[str, AgentFacts] = {
    "opse": AgentFacts(
        "OPSE-LCMDP (Alg. 2 of the paper): every policy is the incumbent or passed the pessimistic check",
        "OPSE-LCMDP",
        "#0072B2",
        story="explores with softmax policies and deploys one only if a pessimistic estimate of its utility reaches"
        " the threshold; otherwise it deploys the incumbent, a policy known to be safe.",
        proved="zero",
        mdp=Build("episafe.agents.opse:OPSE"),
        frontier=("tuned", "published"),
    ),
    "opse-released": AgentFacts(
        "the same by the rules of the paper's released code, which made the published figures; slow",
        "OPSE-LCMDP, released rules",
        mdp=Build("episafe.agents.opse:OPSE", arguments=lambda _: {"variant": "released"}),
    ),
    "opse-no-compensation": AgentFacts(
        "ablation: OPSE without the compensation for its pessimism, C_† = B_† = 0",
        "OPSE without compensation",
        story="is OPSE without the compensation for its pessimism.",
        mdp=Build("episafe.agents.ablated_opse:AblatedOPSE", arguments=lambda _: {"without": "compensation"}),
    ),
    "opse-no-entropy": AgentFacts(
        "ablation: OPSE with plain softmax policies, whose entropy is not counted as reward",
        "OPSE without entropy",
        story="is OPSE with plain softmax policies, whose entropy is not counted as reward.",
        mdp=Build("episafe.agents.ablated_opse:AblatedOPSE", arguments=lambda _: {"without": "entropy"}),
    ),
    "opse-no-randomness": AgentFacts(
        "ablation: OPSE with deterministic policies, κ = 10⁻¹⁰",
        "OPSE without randomness",
        story="is OPSE with deterministic policies.",
        mdp=Build("episafe.agents.ablated_opse:AblatedOPSE", arguments=lambda _: {"without": "randomness"}),
    ),
    "opse-no-incumbent": AgentFacts(
        "ablation: OPSE without an incumbent; deploys C_λ where nothing passes, violates",
        "OPSE without incumbent",
        story="is OPSE without an incumbent to fall back on. It does not promise that every episode is safe.",
        falls_back=False,
        mdp=Build("episafe.agents.ablated_opse:AblatedOPSE", arguments=lambda _: {"without": "incumbent"}),
    ),
    "opse-observation": AgentFacts(
        "OPSE as a proposer; every deployed mixture is certified by observed utilities, proved at 95 %",
        "OPSE, certified by observation",
        "#000000",
        story="takes OPSE’s planner as a proposer only. It deploys a mixture, drawn before the episode, whose "
        "expected utility is proved to reach the threshold from the utilities observed so far; before "
        "anything is proved of a candidate, the incumbent’s slack pays for trying it. What a component on "
        "trial does by itself is not bounded.",
        proved="zero",
        mdp=Build("episafe.agents.opse:OPSE", arguments=lambda _: {"certifier": make_certifier("observation")}),
        only_proposes=True,
    ),
    "opse-hindsight": AgentFacts(
        "OPSE where chance is exogenous and seen: every trace judges every candidate, proved at 95 %",
        "OPSE, certified by hindsight",
        "#F0E442",
        "solid",
        story="replays what chance brought in each episode under every candidate, so that all episodes count for each "
        "of them, whoever acted. It deploys a mixture, drawn before the episode, whose expected utility is proved to "
        "reach the threshold. It is for problems whose chance does not depend on what is done, and is seen.",
        proved="zero",
        mdp=Build(
            "episafe.agents.opse:OPSE",
            arguments=lambda _: {"certifier": make_certifier("hindsight")},
            exogenous_only=True,
        ),
        only_proposes=True,
    ),
    "opse-fresh-data": AgentFacts(
        "OPSE as a proposer; every deployed Markov policy is certified by data fresh to it, proved at 95 %",
        "OPSE, certified by fresh data",
        "#56B4E9",
        "longdash",
        story="takes OPSE’s planner as a proposer only. It deploys Markov policies, at first the incumbent with "
        "rare deviations, whose utility is bounded below from data that they were fixed before.",
        proved="zero",
        mdp=Build("episafe.agents.opse:OPSE", arguments=lambda _: {"certifier": make_certifier("fresh-data")}),
        only_proposes=True,
    ),
    "opse-roomier": AgentFacts(
        "the same for an incumbent of small slack: first looks for a roomier policy that pays for trials",
        "OPSE, certified by observation, roomier first",
        "#CC79A7",
        "dash",
        story="is OPSE certified by observed utilities; where the incumbent has hardly any slack its first proposals "
        "aim at the largest utility, and one that is proved pays for the trials after it.",
        proved="zero",
        mdp=Build("episafe.agents.opse:OPSE", arguments=lambda _: {"certifier": make_certifier("roomier")}),
        only_proposes=True,
    ),
    "opse-box": AgentFacts(
        "OPSE as a proposer; every deployed policy is certified by a confidence box of the kernel, proved at 95 %",
        "OPSE, certified by a box",
        "#E69F00",
        "longdashdot",
        story="keeps a confidence box of the transition kernel, which holds for all policies at all times. It deploys "
        "a Markov policy of large optimistic reward whose utility reaches the threshold at worst in the box; before "
        "it knows one, a mixture with the incumbent.",
        proved="zero",
        mdp=Build("episafe.agents.opse:OPSE", arguments=lambda _: {"certifier": make_certifier("box")}),
        only_proposes=True,
    ),
    "ghosh": AgentFacts(
        "Ghosh et al. 2024: optimistic in the utility too, violates while it learns",
        "Ghosh et al. 2024",
        "#D55E00",
        "dash",
        story="is the same softmax planner with an optimistic utility and no incumbent, as the paper implements its"
        " baseline. It does not promise that every episode is safe.",
        proved="hard",
        falls_back=False,
        mdp=Build("episafe.agents.ghosh2024:Ghosh2024"),
        frontier=("published",),
        published_as="ghosh",
    ),
    "ghosh-released": AgentFacts(
        "the same by the rules of the paper's released code, which made the published figures; slow",
        "Ghosh et al. 2024, released rules",
        mdp=Build("episafe.agents.ghosh2024:Ghosh2024", arguments=lambda _: {"variant": "released"}),
        published_as="ghosh",
    ),
    "dope": AgentFacts(
        "DOPE (Bura et al. 2022): tabular, optimistic kernel and reward, pessimistic utility",
        "DOPE",
        "#CC79A7",
        "dashdot",
        story="solves the optimistic-pessimistic problem of Bura et al. 2022 over a box of transition kernels, "
        "without features; it deploys the incumbent while that problem is infeasible.",
        proved="zero",
        mdp=Build("episafe.agents.dope:DOPE"),
        frontier=("published",),
        published_as="dope",
    ),
    "dope-authors": AgentFacts(
        "the same with the authors' constants",
        "DOPE, authors’ constants",
        proved="zero",
        mdp=Build("episafe.agents.dope:DOPE.authors", COUNTED, lambda _: {"bonus": 0.003}, options=TERMS),
    ),
    "optpess-lp": AgentFacts(
        "after Liu et al. 2021: the incumbent while it is little known, then a linear program on the estimated kernel",
        "OptPess-LP",
        story="(after Liu et al. 2021) deploys the incumbent until its own utility is known well enough, then the best "
        "policy on the estimated kernel, optimistic in the reward and pessimistic in the utility.",
        proved="zero",
        mdp=Build("episafe.agents.liu2021:OptPessLP", COUNTED, lambda _: {"bonus": 0.003}, options=TERMS),
    ),
    "optcmdp": AgentFacts(
        "after Efroni et al. 2020: the best policy and the best kernel of a box; violates while it learns",
        "OptCMDP",
        story="(after Efroni et al. 2020) is optimistic in the kernel, for the utility too. It does not promise that "
        "every episode is safe.",
        proved="hard",
        falls_back=False,
        mdp=Build("episafe.agents.efroni2020:OptCMDP", COUNTED, lambda _: {"bonus": 0.01}, options=TERMS),
    ),
    "optcmdp-bonus": AgentFacts(
        "the same by a bonus on the estimated kernel, whose problem is S times smaller",
        "OptCMDP-bonus",
        story="(after Efroni et al. 2020) adds a bonus to reward and utility on the estimated kernel. It does not "
        "promise that every episode is safe.",
        proved="hard",
        falls_back=False,
        mdp=Build("episafe.agents.efroni2020:OptCMDPBonus", COUNTED, lambda _: {"bonus": 0.003}, options=TERMS),
    ),
    "optdual": AgentFacts(
        "after Efroni et al. 2020: extended value iteration for a multiplier stepped once an episode; violates",
        "OptDual-CMDP",
        story="(after Efroni et al. 2020) deploys deterministic policies for a multiplier that goes up and down; "
        "violations of some episodes are made good in others, by its theorem.",
        proved="soft",
        falls_back=False,
        mdp=Build("episafe.agents.efroni2020:OptDual", COUNTED, lambda _: {"bonus": 0.01}, options=TERMS),
    ),
    "optprimaldual": AgentFacts(
        "after Efroni et al. 2020: steps of the policy and of the multiplier, one each an episode; violates",
        "OptPrimalDual-CMDP",
        story="(after Efroni et al. 2020) steps a stochastic policy and a multiplier once an episode, without "
        "planning; violations of some episodes are made good in others, by its theorem.",
        proved="soft",
        falls_back=False,
        mdp=Build("episafe.agents.efroni2020:OptPrimalDual", COUNTED, lambda _: {"bonus": 0.001}, options=TERMS),
    ),
    "optpess-primaldual": AgentFacts(
        "after Liu et al. 2021: optimistic value iteration, a multiplier that asks for more than b; violates at first",
        "OptPess-PrimalDual",
        story="(after Liu et al. 2021) deploys deterministic policies for a multiplier that asks for more than the "
        "threshold, ever less so; violations of some episodes are made good in others, by its theorem.",
        proved="soft",
        falls_back=False,
        mdp=Build("episafe.agents.liu2021:OptPessPrimalDual", COUNTED, lambda _: {"bonus": 0.001}, options=TERMS),
    ),
    "lsvi-ucb": AgentFacts(
        "LSVI-UCB (Jin et al. 2020): knows of no constraint, violates; what reward alone would earn",
        "LSVI-UCB",
        story="(Jin et al. 2020) knows of no constraint: the reference that says what reward alone would earn.",
        falls_back=False,
        mdp=Build("episafe.agents.lsvi_ucb:LSVIUCB", COUNTED, lambda _: {"bonus": 0.001}, options=TERMS),
    ),
    "ghosh2022": AgentFacts(
        "after Ghosh et al. 2022: softmax policies for a multiplier stepped once an episode; violates",
        "Ghosh et al. 2022",
        story="(after Ghosh et al. 2022) is the softmax planner, optimistic in the utility too, for a multiplier that "
        "is stepped once an episode; violations of some episodes are made good in others, by its theorem.",
        proved="soft",
        falls_back=False,
        mdp=Build("episafe.agents.ghosh2022:Ghosh2022", COUNTED, lambda _: {"bonus": 0.001}, options=TERMS),
    ),
    "epsmix": AgentFacts(
        "after Li et al. 2023: a coin between a candidate and the incumbent, by bounds with empirical variances",
        "EpsMix",
        story="(after Li et al. 2023) tosses a coin between a candidate and the incumbent before the episode, as often "
        "for the candidate as a lower bound of its utility allows. What a candidate does by itself is not bounded.",
        proved="zero",
        mdp=Build("episafe.agents.li2023:EpsMix", ("replan",), lambda _: {"bonus": 0.003}, options=TERMS),
    ),
    "stepmix": AgentFacts(
        "after Li et al. 2023: the incumbent for the first steps, a candidate after them; a Markov policy",
        "StepMix",
        story="(after Li et al. 2023) deploys Markov policies that follow the incumbent for the first steps and a "
        "candidate after them, as soon as a lower bound of the utility allows.",
        proved="zero",
        mdp=Build("episafe.agents.li2023:StepMix", ("replan",), lambda _: {"bonus": 0.003}, options=TERMS),
    ),
    "triple-q": AgentFacts(
        "Triple-Q (Wei et al. 2022): Q-learning and a queue of what is owed, no model; violates",
        "Triple-Q",
        story="(Wei et al. 2022) learns Q-values of reward and utility and keeps no model; violations of some episodes "
        "are made good in others, by its theorem.",
        proved="soft",
        falls_back=False,
        mdp=Build("episafe.agents.triple_q:TripleQ", COUNTED, lambda _: {"bonus": 0.0001}, options=("bonus",)),
    ),
    "uniform": AgentFacts(
        "every action alike",
        "Uniform policy",
        "#8B4513",
        "dot",
        story="takes every action with equal probability and learns nothing.",
        mdp=Build("episafe.agents.fixed:Fixed", (), lambda _: {"policy": "uniform"}),
        plans=False,
    ),
    "oplbsp": AgentFacts(
        "OPLB-SP (Alg. 1 of the paper) with the paper's radius: zero violation proved at 1 − δ",
        "OPLB-SP, paper's radius",
        "#0072B2",
        story="is Algorithm 1 of the paper with its own radius, B + R√(d ln(4K/δ)): the incumbent while it is not "
        "yet confident of it, then the best optimistic policy among those whose pessimistic utility reaches "
        "the threshold.",
        proved="zero",
        bandit=Build("episafe.agents.bandits.oplbsp:OPLBSP", ROUNDS),
    ),
    "oplbsp-determinant": AgentFacts(
        "the same with the determinant radius: as valid, tighter, needs no number of rounds",
        "OPLB-SP, determinant",
        "#56B4E9",
        story="is the same algorithm with the determinant form of the radius: as valid, tighter, and in need of no "
        "number of rounds.",
        proved="zero",
        bandit=Build(
            "episafe.agents.bandits.oplbsp:OPLBSP", ROUNDS, lambda _: DETERMINANT | {"label": "oplbsp-determinant"}
        ),
    ),
    "oplb": AgentFacts(
        "OPLB (Pacchiano et al. 2021), from memory: listed arms only, told the incumbent's exact utility",
        "OPLB",
        "#CC79A7",
        "dashdot",
        story="(Pacchiano et al. 2021) is told the incumbent’s exact utility, which the others are not, and learns "
        "only what is orthogonal to it. From memory of the paper: likely, not checked against its text.",
        proved="zero",
        bandit=Build(
            "episafe.agents.bandits.oplb:OPLB",
            ROUNDS,
            lambda bandit: DETERMINANT | {"known_utility": bandit.evaluate(bandit.safe_policy())[1]},
            finite_only=True,
        ),
    ),
    "safe-lucb": AgentFacts(
        "Safe-LUCB (Amani et al. 2019), from memory: seed rounds, then optimism without inflation",
        "Safe-LUCB",
        "#E69F00",
        "longdashdot",
        story="(Amani et al. 2019) plays safe seed rounds, K^(2/3) of them, then optimism without inflation under "
        "the pessimistic constraint. From memory of the paper: likely, not checked against its text.",
        proved="zero",
        bandit=Build("episafe.agents.bandits.rule_agents:SafeLUCB", ROUNDS, lambda _: DETERMINANT),
    ),
    "roful": AgentFacts(
        "ROFUL (Hutchinson et al. 2024), from summaries: optimistic, then drawn back to the incumbent",
        "ROFUL",
        "#000000",
        "dot",
        story="(Hutchinson et al. 2024) is optimistic in the constraint too and is drawn back to the incumbent "
        "until the check passes. From summaries of the paper: likely, not checked against its text.",
        proved="zero",
        bandit=Build("episafe.agents.bandits.rule_agents:ROFUL", ROUNDS, lambda _: DETERMINANT),
    ),
    "oful": AgentFacts(
        "OFUL (Abbasi-Yadkori et al. 2011): knows of no constraint, violates",
        "OFUL",
        "#D55E00",
        "dash",
        story="(Abbasi-Yadkori et al. 2011) knows of no constraint: the reference that violates.",
        falls_back=False,
        bandit=Build("episafe.agents.bandits.rule_agents:OFUL", ROUNDS, lambda _: DETERMINANT),
    ),
    "incumbent": AgentFacts(
        "the safe policy for ever",
        "Incumbent",
        "#6B6B6B",
        "longdash",
        story="deploys the policy known to be safe for ever and learns nothing.",
        proved="zero",
        mdp=Build("episafe.agents.fixed:Fixed", (), lambda _: {"policy": "incumbent"}),
        bandit=Build("episafe.agents.bandits.rule_agents:Incumbent", ()),
        plans=False,
    ),
    "optimum": AgentFacts(
        "the exact optimum",
        "Exact optimum",
        mdp=Build("episafe.agents.fixed:Fixed", (), lambda cmdp: {"policy": cmdp.optimal_policy(), "label": "optimum"}),
        plans=False,
    ),
    "fixed": AgentFacts("a policy of your own for ever", "Fixed policy", plans=False),
    "rollout": AgentFacts(
        "opaque policies beside an incumbent, by their totals alone, proved at 95 %", "Rollout", proved="zero"
    ),
}
BUILDS = {name: entry.mdp for name, entry in REGISTRY.items() if entry.mdp is not None}
BANDIT_BUILDS = {name: entry.bandit for name, entry in REGISTRY.items() if entry.bandit is not None}
AGENTS, BANDIT_AGENTS = ({name: REGISTRY[name] for name in builds} for builds in (BUILDS, BANDIT_BUILDS))
