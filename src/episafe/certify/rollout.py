"""Rollout: a staged release with a proof, for opaque policies that only show the totals of their episodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from episafe.certify.safe_agent import SafeAgent
from episafe.certify.staged import Staged
from episafe.core.agent import AgentFacts, Proposer
from episafe.core.checks import as_array, require
from episafe.core.policy import OpaquePolicy, Policy
from episafe.core.task import Constraint, Task, make_constraints, per_limit
from episafe.core.types import PerLimit


class Rollout(SafeAgent):
    """Tries candidates alongside an incumbent; a candidate acts alone once it is proved to reach the threshold.

    Policies are opaque: functions, networks, addresses of services, names. An episode is anything that has a total
    utility. A candidate on trial may be below the threshold by itself; the mixture is not.

    Args:
        threshold: b, one number, or one per limit; or the limit on a tail that `es.tail(None, …)` returns.
        slack: ξ > 0 if the incumbent is known to reach b + ξ; None if it is only known to reach b.
        candidates: policies by name, the most promising first. `add_candidate` adds more.
        incumbent: the policy in use today.
        delta: the probability with which some deployed mixture may be below b.
        least_total: a total utility that every episode is certain to reach; an episode below it invalidates all bounds.
        names: the names of the limits.
        floor: a total that no episode may be below; candidates then need `add_candidate(name, policy, least_total)`.

    Example:
        >>> import episafe as es
        >>> agent = es.Rollout(0.9, 0.05, candidates={"v2": "https://v2"}, incumbent="https://v1")
        >>> session = es.open(None, agent)
        >>> d = session.deploy()
        >>> d.plan.policy.names
        ('v2', 'incumbent')
        >>> session.report(d.id, es.Episode.of_totals(utility=1.0, reward=0.3))
    """

    facts = AgentFacts("rollout", "Rollout", "Staged release of opaque policies, certified from totals alone")

    def __init__(
        self,
        threshold: PerLimit | Constraint,
        slack: PerLimit,
        candidates: Mapping[str, object],
        incumbent: object,
        delta: float = 0.05,
        *,
        least_total: PerLimit = 0.0,
        names: Sequence[str] = (),
        floor: PerLimit = None,
    ) -> None:
        cut, names = (threshold.cut, [threshold.name]) if isinstance(threshold, Constraint) else (None, names)
        b = threshold.threshold if isinstance(threshold, Constraint) else threshold
        constraints = tuple(replace(one, cut=cut) for one in make_constraints(None, b, slack, names, least_total))
        for one in constraints:
            text = f"threshold {one.threshold:g} of {one.name} is not above least_total {one.least_total:g}"
            text += ", which every episode reaches: state both as totals of an episode"
            require(one.threshold > one.least_total, text)
        text = f'candidates must be policies by name, {{"v2": …}}, got {candidates!r}'
        require(isinstance(candidates, Mapping), text)
        acting = incumbent if isinstance(incumbent, Policy) else OpaquePolicy(incumbent)
        task = Task(None, None, constraints, acting)
        super().__init__(task, Staged(delta), candidates=candidates, floor=floor, proposer=Proposer())

    def add_candidate(self, name: str, policy: object, least_total: PerLimit = None) -> None:
        """Put a policy on trial from the next plan on; a changed policy is a new candidate.

        `least_total` is a total utility, or one per limit, that each of its episodes is certain to reach.
        """
        least = per_limit("least_total", least_total, self.task.limit_names, for_all=True)
        self._offer(name, policy, None if least_total is None else as_array("least_total", least, (None,)))
