"""The compiled loop for OPSE under `certify.Observation`; proposing is rare and stays in Python."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.certify.observation import ObservationCertificate
from episafe.certify.roomier import RoomierCertificate
from episafe.kernels.episode_trace import NO_TRACE, Trace
from episafe.kernels.mixture_loop import OnTrial, play
from episafe.kernels.simulation import Law, running_sums
from episafe.learning.regression import episodes_to_refactoring
from episafe.runs.columns import BY_SOURCE
from episafe.runs.record import Columns
from episafe.types import SAFE, amount


def begin(world: Any, agent: Any, columns: Columns, first: int, trace: Trace | None) -> "MixtureLoop | None":
    """The loop, if the certificate is just that of `Observation` or `Roomier`, steps share no data, no total voids it,
    it awaits no reports, and nothing was promoted."""
    if type(agent.certificate) not in (ObservationCertificate, RoomierCertificate):
        return None
    pairs = zip(agent.task.constraints, world.problem.task.constraints, strict=True)
    holds = all(told.least_total <= true.least_total for told, true in pairs) and not agent.void
    holds = holds and not any(one.awaits for one in agent.certificate.ledger.each)
    if not holds or agent.task.time_homogeneous or agent.promoted != INCUMBENT:
        return None
    return MixtureLoop(world, agent, trace)


class MixtureLoop:
    """A run of OPSE under `Observation`: `advance` takes it on by some episodes, `finish` hands the plan back."""

    def __init__(self, world: Any, agent: Any, trace: Trace | None) -> None:
        cmdp, luck, num_rows = world.problem, world.luck, len(agent.certificate.ledger.policies)
        self._cmdp, self._agent, self._streams = cmdp, agent, (luck.choices, luck.transitions, luck.coin)
        self._regression, self._certificate = agent.planner.regression, agent.certificate
        self._trace = NO_TRACE if trace is None else trace
        task, first = cmdp.task, cmdp.task.constraints[0]
        self._law = Law(cmdp.P, world.kernel, task.reward, first.utility, task.initial_state)
        n, m = num_rows, task.num_constraints
        tables, running = (np.zeros((n, *task.reward.shape)) for _ in range(2))
        self._on_trial = OnTrial(
            tables, running, np.zeros((n, 1 + m)), np.full(n, math.nan), np.zeros(n), np.full(n, -1), np.zeros(m),
            np.zeros((1, task.horizon, n)), np.zeros((1, n)), task.utilities, task.thresholds,
        )  # fmt: skip
        self._lower = None if m == 1 else np.zeros((n, m))
        self._entered: list[object] = [None] * num_rows
        self._first_id = agent.plan().id
        self._done = 0

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Run episodes `start` to `stop`, filling their rows."""
        regression, certificate, k = self._regression, self._certificate, start
        facts = columns.facts
        while k < stop:
            if regression.is_full():
                regression.enlarge()
            failure = self._consider()
            self._enter()
            ahead = 1 if failure else min(episodes_to_refactoring(regression.num_episodes),
                        certificate.episodes_to_look or 1)  # fmt: skip
            pause = min(stop, k + ahead)
            done = self._play(columns, k, pause, certificate.num_episodes, failure != "")
            if failure:
                columns.fail(done - k, failure)
            facts.plan_ids[k:done] = self._first_id + self._done + np.arange(done - k)
            self._name(columns, k, done)
            self._done += done - k
            regression.count(done - k)
            certificate.num_episodes += done - k
            k = done

    def _play(self, columns: Columns, *stretch: Any) -> int:
        """The episodes of a stretch, as far as there is room; the first that is not made."""
        sequences = tuple(one.trials for one in self._certificate.ledger.each)
        learner = self._regression.visited, self._regression.model
        assert columns.coins is not None
        done = int(
            play(
                self._law, self._on_trial, sequences, self._lower, learner, self._streams,
                (columns.facts, columns.coins, self._trace), stretch,
            )
        )  # fmt: skip
        parts = int((self._on_trial.rows >= 0).sum())
        if done < stretch[1] and parts > columns.coins.weights.shape[1]:
            columns.widen(parts)
        return done

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

    def _consider(self) -> str:
        """Why proposing, if it was time to, failed, so that the incumbent acts and it is tried again; "" if not."""
        try:
            self._agent.consider_candidate()
        except Exception as error:
            return f"planning failed: {type(error).__name__}: {error}"
        return ""

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
        on_trial = self._on_trial
        rows = on_trial.rows[on_trial.rows >= 0].tolist()
        return self._certificate.ledger.deployed(rows, on_trial.weights[rows], amount(on_trial.bounds.copy()))

    def _enter_row(self, i: int, policy: Any) -> None:
        on_trial = self._on_trial
        on_trial.tables[i], on_trial.running[i] = policy.table(), running_sums(policy.table())
        on_trial.values[i] = np.append(*self._cmdp.evaluate(policy))
        on_trial.lams[i] = self._certificate.ledger.lams[i]
