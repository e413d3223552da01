"""The compiled loop for OPSE under `certify.Observation`. Proposing is rare and stays in Python."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.certify.observation import ObservationCertificate
from episafe.kernels.episode_trace import Trace, no_trace
from episafe.kernels.mixture_loop import OnTrial, play
from episafe.kernels.simulation import World as KnownWorld
from episafe.kernels.simulation import running_sums
from episafe.learning.regression import episodes_to_refactoring
from episafe.runs.columns import BY_SOURCE, Columns
from episafe.types import SAFE


def begin(world: Any, agent: Any, columns: Columns, first: int, trace: Trace | None) -> "MixtureLoop | None":
    """The loop, if the certificate is just that of `Observation`, steps share no data, no total voids it, and nothing
    was promoted."""
    if type(agent.certificate) is not ObservationCertificate or agent.task.num_constraints > 1:
        return None
    holds = agent.task.least_total <= world.problem.task.least_total and not agent.void
    plain = not agent.task.time_homogeneous and agent.promoted == INCUMBENT
    return MixtureLoop(world, agent, trace) if holds and plain else None


class MixtureLoop:
    """A run of OPSE under `Observation`: `advance` takes it on by some episodes, `finish` hands the plan back."""

    def __init__(self, world: Any, agent: Any, trace: Trace | None = None) -> None:
        cmdp, luck, num_rows = world.problem, world.luck, len(agent.certificate.ledger.policies)
        self._cmdp, self._agent, self._streams = cmdp, agent, (luck.choices, luck.transitions, luck.coin)
        self._regression, self._certificate = agent.planner.regression, agent.certificate
        self._trace = no_trace() if trace is None else trace
        self._begin(cmdp, world, num_rows)
        self._entered: list[object] = [None] * num_rows
        self._first_id = agent.plan().id
        self._done = 0

    def _begin(self, cmdp: Any, world: Any, num_rows: int) -> None:
        task, shape = cmdp.task, (num_rows, *cmdp.task.reward.shape)
        self._world = KnownWorld(cmdp.P, world.kernel, task.reward, task.utility, task.initial_state)
        values, lams = np.zeros((num_rows, 2)), np.full(num_rows, math.nan)
        self._on_trial: Any = OnTrial(np.zeros(shape), np.zeros(shape), values, lams, np.zeros(4), task.threshold)

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Run episodes `start` to `stop`, filling their rows."""
        regression, certificate, k = self._regression, self._certificate, start
        facts = columns.facts
        while k < stop:
            if regression.is_full():
                regression.enlarge()
            failed = not self._consider()
            self._enter()
            ahead = 1 if failed else min(episodes_to_refactoring(regression.num_episodes),
                        certificate.episodes_to_look or 1)  # fmt: skip
            pause = min(stop, k + ahead)
            done = self._play(columns, k, pause, certificate.num_episodes, failed)
            facts.plan_ids[k:done] = self._first_id + self._done + np.arange(done - k)
            self._name(columns, k, done)
            self._done += done - k
            regression.count(done - k)
            certificate.num_episodes += done - k
            k = done

    def _play(self, columns: Columns, *stretch: Any) -> int:
        """The episodes of a stretch, as far as there is room; the first that is not made."""
        learner, columns_to_fill = (self._regression.visited, self._regression.model), (columns.facts, columns.coins)
        return int(
            play(
                self._world, self._on_trial, self._certificate.ledger.trials, learner, self._streams, columns_to_fill,
                self._trace, stretch,
            )
        )  # fmt: skip

    def _name(self, columns: Columns, start: int, stop: int) -> None:
        """Turn the rows that acted into numbers of names, given out in the order in which they acted first."""
        assert columns.coins is not None
        acting = columns.coins.acting[start:stop]
        alone = columns.facts.sources[start:stop] == SAFE
        rows, first = np.unique(acting[~alone], return_index=True)
        numbers = np.full(len(self._entered), BY_SOURCE, dtype=np.int32)
        for row in rows[np.argsort(first)].tolist():
            numbers[row] = columns.number(self._certificate.ledger.names[row])
        acting[:] = np.where(alone, BY_SOURCE, numbers[acting])

    def _consider(self) -> bool:
        """Whether proposing, if it was time to, went well; if not, the incumbent acts and it is tried again."""
        try:
            self._agent.consider_candidate()
        except Exception:
            return False
        return True

    def finish(self) -> None:
        """Hand the last plan back to the agent."""
        if self._done:
            plan = self._agent.as_certified(self._last())
            self._agent.adopt(replace(plan, id=self._first_id + self._done - 1), self._agent.planner.information.copy())

    def _enter(self) -> None:
        """Copy policies that are new on trial into their rows."""
        for i, policy in enumerate(self._certificate.ledger.policies):
            if policy is not None and self._entered[i] is not policy:
                self._entered[i] = policy
                self._enter_row(i, policy)

    def _last(self) -> Any:
        """What was deployed last."""
        i, j, weight, bound = self._on_trial.last.tolist()
        return self._certificate.ledger.as_deployment(int(i), int(j), weight, bound)

    def _enter_row(self, i: int, policy: Any) -> None:
        on_trial = self._on_trial
        on_trial.tables[i], on_trial.running[i] = policy.table(), running_sums(policy.table())
        on_trial.values[i], on_trial.lams[i] = self._cmdp.evaluate(policy), self._certificate.ledger.lams[i]
