"""`Box` with several constraints: the same box of kernels, a bound for each, and mixtures of up to m + 1 policies."""

import numpy as np

from episafe.certify.base import INCUMBENT, PROPOSAL, Deployment
from episafe.certify.box import HALVINGS, BoxCertificate
from episafe.kernels.mixing import admits_all
from episafe.learning.box_problem import BoxProblem, Candidate, SeveralMixture
from episafe.problems.model_answers import markov_policy, occupancy
from episafe.problems.policy import MixturePolicy
from episafe.types import Amount, Array, amounts


class SeveralBoxCertificate(BoxCertificate):
    """The box of one constraint, and what it allows under m of them."""

    def bounds(self) -> dict[str, Amount]:
        """What is proved of the incumbent and of candidates, (m,) each."""
        problem = self._problem()
        known = np.maximum(self.known, problem.evaluated(self.task.safe_policy.table()).utility)
        return {INCUMBENT: known} | {one.name: problem.evaluated(table).utility for one, table in self._candidates}

    def _best(self) -> Deployment:
        thresholds, problem = amounts(self.task.limits), self._problem()
        incumbent = problem.evaluated(self.task.safe_policy.table())
        proposed = [*map(problem.evaluated, self._tables())]
        safest = problem.safest(thresholds, incumbent, *proposed)
        if admits_all(safest.utility, thresholds):
            best = problem.best_mixture_of_several(thresholds, safest, incumbent, *proposed)
            return self._as_one(problem, best, safest, incumbent.policy)
        known = incumbent._replace(utility=np.maximum(self.known, incumbent.utility))
        return self._as_mixture(problem.best_mixture_of_several(thresholds, known, *proposed), incumbent.policy)

    def _as_one(self, problem: BoxProblem, best: SeveralMixture, safest: Candidate, incumbent: Array) -> Deployment:
        """The Markov policy that is where the mixture is, by estimate, with as little of the safest as suffices."""
        (_, parts, multipliers), kept = best, safest
        P_hat, start = self._estimate(), self.task.initial_state
        mass = np.add.reduce([share * occupancy(P_hat, policy, start) for share, policy in parts])
        w_safest = occupancy(P_hat, safest.policy, start)
        low, high = 0.0, 1.0
        for n in range(HALVINGS + 1):
            share = (low + high) / 2 if n else 0.0  # first the mixture itself
            tried = problem.evaluated(markov_policy((1 - share) * mass + share * w_safest, safest.policy))
            if admits_all(tried.utility, self.task.limits):
                high, kept = share, tried
            elif n:
                low = share
        if kept.policy is incumbent:
            return self._alone("no policy that the box proves safe seems better")
        return Deployment(self._named(kept.policy), "search", float(multipliers.sum()), kept.utility)

    def _as_mixture(self, best: SeveralMixture, incumbent: Array) -> Deployment:
        """The mixture of candidates and the incumbent, which alone is known to keep every constraint."""
        bounds, mixed, multipliers = best
        parts = [(share, policy) for share, policy in mixed if policy is not incumbent]
        if not parts:
            return self._alone("no mixture with a candidate seems better")
        policies = [self._named(table) for _, table in parts]
        for n, policy in enumerate(policies[1:], 1):
            if policy.name.startswith(PROPOSAL):
                policy.name = f"{policy.name}-{n}"
        shares, rest = [share for share, _ in parts], [share for share, policy in mixed if policy is incumbent]
        lam = float(multipliers.sum())
        if len(policies) == 1 and not rest:
            return Deployment(policies[0], "search", lam, bounds)
        names = [policy.name for policy in policies] + [INCUMBENT] * len(rest)
        mixture = MixturePolicy([*policies, *([self.task.safe_policy] * len(rest))], shares + rest, names)
        return Deployment(mixture, "search", lam, bounds)
