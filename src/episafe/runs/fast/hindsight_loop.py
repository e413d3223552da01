"""The loop for OPSE under `certify.Hindsight` on listed problems: while a plan is in force, all its episodes at once.

Planning and proposing are rare and stay in Python.
"""

from typing import Any

import numpy as np

from episafe.certify.account import NOT_ON_TRIAL
from episafe.certify.base import INCUMBENT
from episafe.certify.hindsight import HindsightCertificate
from episafe.kernels.wealth import credit_all, share_out
from episafe.runs.record import Columns
from episafe.runs.worlds import Traced
from episafe.types import Array, IntArray


def begin(world: Any, agent: Any, columns: Columns, first: int, trace: Any) -> "HindsightLoop | None":
    """The loop, if the certificate is just that of `Hindsight`, is told how the world moves, awaits no reports, no
    total voids it, and nothing was promoted."""
    certificate = agent.certificate
    if type(certificate) is not HindsightCertificate or agent.task.move is not world.problem.law.move:
        return None
    ledgers = *certificate.replayed.each, *certificate.observed.ledger.each
    is_plain = all(not one.awaits and one.least_total <= 0 for one in ledgers)
    ended = certificate.refuted or certificate.void
    return HindsightLoop(world, agent) if is_plain and not ended and agent.promoted == INCUMBENT else None


class HindsightLoop:
    """A run of OPSE under `Hindsight`; the agent has all that was learned whenever `advance` returns."""

    def __init__(self, world: Any, agent: Any) -> None:
        self._world, self._agent, self._certificate = world, agent, agent.certificate
        self._plan: Any = None
        self._values: Any = None
        self._is_first = True

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Run episodes `start` to `stop`, filling their rows."""
        k = start
        while k < stop:
            plan = self._agent.plan()
            if plan is not self._plan:
                self._plan, self._values = plan, self._world.values(plan)
            ahead = 1 if self._is_first else max(self._certificate.episodes_to_choice, 1)
            acting = plan.policy.toss(self._world.luck.coin, min(ahead, stop - k))
            self._note(columns, k, acting)
            made = self._world.play_all(plan.policy.components, acting)
            if self._is_first:  # and refused where it is not reported as those before
                self._agent.learn(self._world.episode(made, 0, self._component(acting[0])), plan_id=plan.id)
                self._is_first = False
            else:
                self._learn(made)
            k += len(acting)

    def finish(self) -> None:
        """The agent has all of it."""

    def _component(self, index: int) -> int | None:
        """What is reported of the coin; nothing where there is none."""
        policy = self._plan.policy
        return None if policy.components[0] is policy else int(index)

    def _note(self, columns: Columns, k: int, acting: IntArray) -> None:
        """What is known before the episodes from k on; names are numbered in the order in which they act."""
        _, first = np.unique(acting, return_index=True)
        for index in acting[np.sort(first)].tolist():
            drawn = self._component(index), self._plan.policy.component(index)
            columns.note(k + np.flatnonzero(acting == index), self._plan, self._values, drawn)

    def _learn(self, made: Traced) -> None:
        """Take in episodes of the plan in force, none of which is due to change it."""
        agent, certificate, n = self._agent, self._certificate, len(made.actions)
        agent.planner.regression.observe_all(made.states, made.actions)
        observed = certificate.observed
        rows = np.array(observed.ledger.rows_of(self._plan.policy))
        on_trial = rows != NOT_ON_TRIAL
        seen = np.column_stack([np.cumsum(signal, axis=1)[:, -1] for signal in (made.rewards, made.utilities)])
        shares = self._shares(made)[on_trial]
        _credit(observed.ledger, rows[on_trial], shares, np.broadcast_to(seen, (len(shares), *seen.shape)))
        certificate.traces.take_in_all(made.chances, self._world.problem.law.move.values)
        rows = certificate.rows_judged(self._plan.id)
        policies = [certificate.replayed.policies[i] for i in rows.tolist()]
        totals = certificate.traces.totals_of_all(policies, len(certificate.traces) - n)
        _credit(certificate.replayed, rows, np.ones(totals.shape[:2]), totals)
        observed.num_episodes += n
        certificate.num_episodes += n
        agent.adopt(self._plan, agent.information_then)

    def _shares(self, made: Traced) -> Array:
        """The shares of the components in each episode: (components, episodes)."""
        policy, (E, H) = self._plan.policy, made.actions.shape
        tables = np.stack([component.table() for component in policy.components], axis=-1)
        shares = np.tile(policy.weights, (E, 1))
        share_out(tables[np.arange(H), made.states[:, :H], made.actions], len(policy.weights), shares)
        return np.ascontiguousarray(shares.T)


def _credit(ledger: Any, rows: IntArray, shares: Array, totals: Array) -> None:
    """Credit rows (R,) with episodes, by their shares (R, n) and their total reward and utilities (R, n, 1 + m)."""
    for c, one in enumerate(ledger.each):
        credit_all(one.trials, rows, shares, totals[:, :, 1 + c].copy(), totals[:, :, 0].copy())
