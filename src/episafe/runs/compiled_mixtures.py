"""The loop for OPSE under `certify.Observation`, compiled: the same steps, in the same order, as the plain loop.

Proposing is rare and stays in Python; choosing a mixture, acting, learning and crediting are compiled. A test compares
the records of both loops bit for bit.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from episafe.agents.opse import OPSE
from episafe.certify.observation import NUM_ROWS, ObservationCertificate
from episafe.kernels.compilation import kernel
from episafe.kernels.confidence_sequence import credit
from episafe.kernels.decision import SAFE, SEARCH, admits
from episafe.kernels.mixture_choice import choose
from episafe.kernels.model_update import absorb, enter, is_full
from episafe.kernels.simulation import Streams, running_sums, simulate
from episafe.learning.regression import FiniteRegression, episodes_to_refactoring
from episafe.problems.cmdp import LinearCMDP
from episafe.runs.columns import Coins, Facts
from episafe.runs.tape import Trace, write_down
from episafe.types import Array


class OnTrial(NamedTuple):
    """The policies on trial, by row: `tables` (n, H, S, A), their running sums, `values` (n, 2) V^r, V^u, `lams` (n,).

    `last` (4,) is what was deployed last: i, j, p, bound.
    """

    tables: Array
    running: Array
    values: Array
    lams: Array
    last: Array


class CompiledMixtureRun:
    """A run of OPSE under `Observation`: `advance` takes it on by some episodes, `finish` hands the plan back."""

    def __init__(
        self,
        cmdp: LinearCMDP,
        agent: OPSE,
        streams: Streams,
        coin: np.random.Generator,
        coins: Coins,
        trace: Trace | None = None,
    ) -> None:
        regression, certificate = agent.planner.regression, agent.certificate
        assert isinstance(regression, FiniteRegression) and isinstance(certificate, ObservationCertificate)
        self._cmdp, self._agent, self._streams, self._coin, self._coins = cmdp, agent, streams, coin, coins
        self._regression, self._certificate = regression, certificate
        self._trace = trace
        self._running = running_sums(cmdp.P)
        shape = (NUM_ROWS, *cmdp.task.reward.shape)
        self._on_trial = OnTrial(
            np.zeros(shape), np.zeros(shape), np.zeros((NUM_ROWS, 2)), np.full(NUM_ROWS, math.nan), np.zeros(4)
        )
        self._entered: list[object] = [None] * NUM_ROWS
        self._first_id = agent.plan().id
        self._done = 0

    def advance(self, facts: Facts, start: int, stop: int) -> None:
        """Run episodes `start` to `stop`, filling their rows."""
        regression, certificate, task, k = self._regression, self._certificate, self._cmdp.task, start
        while k < stop:
            if regression.is_full():
                regression.enlarge()
            failed = not self._consider()
            self._enter()
            ahead = 1 if failed else min(episodes_to_refactoring(regression.num_episodes),
                        certificate.trial_ends - certificate.num_episodes)  # fmt: skip
            pause = min(stop, k + ahead)
            done = _play(
                self._on_trial, certificate.trials, certificate.num_episodes, task.threshold, task.reward, task.utility,
                task.initial_state, self._running, regression.known, regression.slot_of, regression.state_of,
                regression.support, regression.phi, regression.model, *self._streams, self._coin, facts, self._coins,
                self._trace, k, pause, failed,
            )  # fmt: skip
            facts.plan_ids[k:done] = self._first_id + self._done + np.arange(done - k)
            self._done += done - k
            regression.count(done - k)
            certificate.num_episodes += done - k
            k = done

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
            i, j, weight, bound = self._on_trial.last.tolist()
            plan = self._agent.as_certified(self._certificate.as_deployment(int(i), int(j), weight, bound))
            self._agent.adopt(replace(plan, id=self._first_id + self._done - 1), self._agent.planner.information.copy())

    def _enter(self) -> None:
        """Copy policies that are new on trial into their rows."""
        on_trial = self._on_trial
        for i, policy in enumerate(self._certificate.policies):
            if policy is not None and self._entered[i] is not policy:
                self._entered[i] = policy
                on_trial.tables[i], on_trial.running[i] = policy.table(), running_sums(policy.table())
                on_trial.values[i], on_trial.lams[i] = self._cmdp.evaluate(policy), self._certificate.lams[i]


@kernel
def _play(  # type: ignore[no-untyped-def]
    on_trial, trials, num_episodes, threshold, reward, utility, initial_state, kernel, known, slot_of, state_of,
    support, phi, model, choices, transitions, coin, facts, coins, trace, start, stop, failed,
):  # fmt: skip
    """Episodes `start` to `stop`, or until the arrays are full; returns the first episode not made."""
    _, H, _, _ = on_trial.tables.shape
    states, actions, slots = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64), np.empty(H, dtype=np.int64)
    for k in range(start, stop):
        if is_full(model, support.size, phi.shape[3]):
            return k
        i, j, p, bound = choose(trials, threshold, num_episodes + k - start)
        if failed or not (i == j == 0 or admits(bound, threshold)):
            i, j, p, bound = 0, 0, 1.0, np.nan
        on_trial.last[0], on_trial.last[1], on_trial.last[2], on_trial.last[3] = i, j, p, bound
        _note(on_trial, i, j, p, bound, facts, coins, k)
        acting = i
        if i != j and not p > coin.random():
            acting, coins.components[k] = j, 1
        states[0] = initial_state
        simulate(on_trial.running[acting], kernel, choices, transitions, states, actions)
        if trace is not None:
            write_down(trace, k, states, actions, model.log_det)
        _credit(on_trial.tables, trials, i, j, p, states, actions, reward, utility)
        enter(known, slot_of, state_of, support, phi, states, slots)
        absorb(model, slots, actions)
    return stop


@kernel
def _note(on_trial, i, j, p, bound, facts, coins, k):  # type: ignore[no-untyped-def]
    """The facts of episode k that are known before it."""
    coins.components[k], coins.weights[k, 0], coins.weights[k, 1] = 0, p, 1.0 - p
    facts.bounds[k, 0], facts.bounds[k, 1], facts.sources[k] = on_trial.lams[i], bound, SEARCH
    if i == j == 0:
        facts.bounds[k, 0], facts.bounds[k, 1], facts.sources[k] = np.nan, np.nan, SAFE
    for g in range(2):
        facts.values[k, g] = on_trial.values[i, g]
        if i != j:
            facts.values[k, g] = p * on_trial.values[i, g] + (1.0 - p) * on_trial.values[j, g]


@kernel
def _credit(tables, trials, i, j, p, states, actions, reward, utility):  # type: ignore[no-untyped-def]
    """Add the episode to the policies of the mixture p·i + (1−p)·j, each by its share."""
    total_r = total_u = 0.0
    chance_i, chance_j = (1.0, 0.0) if i == j else (p, 1.0 - p)
    for h in range(actions.shape[0]):
        s, a = states[h], actions[h]
        total_r += reward[h, s, a]
        total_u += utility[h, s, a]
        chance_i *= tables[i, h, s, a]
        chance_j *= tables[j, h, s, a]
        largest = max(chance_i, chance_j)  # kept at 1: a long product would come out as 0
        chance_i, chance_j = chance_i / largest, chance_j / largest
    total = chance_i + chance_j
    total_u = max(total_u, 0.0)
    credit(trials, i, chance_i / total, total_u, total_r)
    if i != j:
        credit(trials, j, chance_j / total, total_u, total_r)
