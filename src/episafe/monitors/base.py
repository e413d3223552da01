"""What the monitors of every kind of problem share: alarms, tests of utilities and coins, the state as named arrays.

A session tells them of every deployment before anything is known of it (`expect`), and of its report (`report`). What
is not reported counts at its best for what they test, so that no delay and no loss of reports raises a false alarm,
whatever it depends on. Where a deployment is reported at once, `watch` does both.
"""

import math
from collections import deque
from typing import Any

import numpy as np

from episafe.checks import as_probability
from episafe.kernels.claim_wealth import OF_COIN, against, block_of
from episafe.kernels.coin_bets import weigh_coin
from episafe.kernels.confidence_sequence import BETS
from episafe.kernels.mean_intervals import NOT_ITS
from episafe.kernels.spell_wealth import follow_spells, new_spell
from episafe.kernels.utility_tests import CHECKED, INCUMBENT, Batch, Promise, expect, follow, nothing_seen, take_in
from episafe.monitors import monitor_state
from episafe.monitors.monitor_state import Alarm, Coin, Expected, ReportSummary, Turn, halt_reason, in_words
from episafe.monitors.residual_test import ResidualMonitor
from episafe.monitors.statements import READINGS, STATEMENTS, Watched
from episafe.storage.state_reader import State
from episafe.types import Array

MOST_WAITING = 20_000  # deployments that a report may still count for; the oldest beyond that count at their best
AT_BEST = -1.0  # what a deployment that is not reported lacks to the threshold
LONGEST = 512  # deployments in the line of reports
AT_ONCE = -1  # the number of a deployment that no session counts


class ReportLine:
    """Reports in the order of their deployments, for tests that go from one to the next: drift, spell, residual.

    A report waits here for those of the deployments before it. If more than LONGEST deployments are waiting, the oldest
    is given up: it counts as missing for ever.

    Attributes:
        first: the place of the first entry among all deployments.
    """

    def __init__(self) -> None:
        self.first = 0
        self.turns: deque[Turn] = deque()

    def __len__(self) -> int:
        return len(self.turns)

    def expect(self, incumbent: bool, lack: float = math.nan) -> list[Turn]:
        """One more deployment, at the end, `lack` is the best that may come of it; those whose turn has come."""
        self.turns.append(Turn(incumbent, waits=True, lack=lack))
        return self._due()

    def put(self, place: int, turn: Turn) -> list[Turn]:
        """What came of a deployment, or that nothing will, unless its turn is over; those whose turn has come."""
        if place >= self.first:
            self.turns[place - self.first] = turn
        return self._due()

    def pass_by(self, count: int) -> None:
        """So many deployments whose turn came at once; the line must be empty."""
        self.first += count

    def _due(self) -> list[Turn]:
        """Those whose turn has come, taken out of the line."""
        found = []
        while self.turns and (not self.turns[0].waits or len(self.turns) > LONGEST):
            found.append(self.turns.popleft())
        self.first += len(found)
        return found


class Watch:
    """Monitors at work. Subclasses turn plans and what came of them into numbers.

    Attributes:
        alarms: all that were raised, oldest first. Each monitor raises one, and once more whenever all began anew.
        past: how often they began anew, and how many of the alarms were raised before that.
    """

    floor = 0.0  # what utilities are at least, where they may be negative; intervals of means are of what is above it

    def __init__(self, delta: float, promise: Promise, features: tuple[int, int] | None) -> None:
        self.delta, self.promise, self._features_of = as_probability("delta", delta), promise, features
        self.alarms: list[Alarm] = []
        self.past = np.zeros(2, dtype=np.int64)
        self._begin()

    def _begin(self) -> None:
        """Nothing is seen, and nothing waited for."""
        features = self._features_of
        self.seen, self.line, self.last_coin, self.spell = nothing_seen(), ReportLine(), np.array([-1]), new_spell()
        self.residual = None if features is None else ResidualMonitor(*features, self._share("residual"))
        self.waiting: dict[int, Expected] = {}
        counters = {what: reading.counter(self) for what, reading in READINGS.items()}
        self._counters = {what: counter for what, counter in counters.items() if counter is not None}

    @property
    def standing(self) -> list[Alarm]:
        """The alarms that were raised since a person last let the agent go on."""
        return self.alarms[int(self.past[1]) :]

    def go_on(self) -> None:
        """A person lets the agent go on. If an alarm stands that halts, all tests begin anew, with all of δ.

        They are of what is deployed from now on, so whatever was seen and whoever decided it, a false alarm until the
        next time has probability ≤ δ. Else a monitor that has spoken would be deaf to what comes later. After a halt
        for another reason nothing is forgotten.
        """
        if halt_reason(self.standing):
            self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what was seen: all tests are of what is deployed from now on."""
        self.past[:] = self.past[0] + 1, len(self.alarms)
        self._begin()

    def expect(self, deployment: int, plan: Any, component: int | None = None) -> list[Alarm]:
        """One more deployment, before anything is known of it; the alarms that its coin raises, if any.

        Args:
            deployment: its number; deployments are told of in their order.
            plan: what is deployed.
            component: which component of a mixture acts, as its coin fell; None if that comes with the report.
        """
        facts = self._facts(plan, component)
        waits = facts.coin is not None and component is None
        place = expect(self.seen.purse, self.promise, facts.who, facts.bound, int(waits), self._oldest)
        due = self.line.expect(bool(facts.who & INCUMBENT), self._lack(facts, math.nan))
        if facts.coin is not None and component is not None:
            self._toss(facts.coin, component, place)
            facts = facts._replace(coin=None)
        self.waiting[deployment] = facts._replace(place=place)
        if len(self.waiting) > MOST_WAITING:
            del self.waiting[next(iter(self.waiting))]
        self._follow(due)
        return self._news()

    def report(self, deployment: int, *report: Any) -> list[Alarm]:
        """What came of a deployment, after the agent accepted it; the alarms that it raises, if any."""
        outcome = self._outcome(*report)
        if deployment not in self.waiting:  # it counts for no test; but what lies outside its range does so at any time
            return self._news(outcome.outside)
        return self._settle(self.waiting.pop(deployment), outcome)

    def abandon(self, deployment: int) -> list[Alarm]:
        """Nobody will know what came of a deployment: it counts at its best for ever."""
        facts = self.waiting.pop(deployment, None)
        return [] if facts is None else self._settle(facts, ReportSummary(math.nan))

    def change(self, task: Any) -> list[Alarm]:
        """The limit of the task is another one for what is deployed from now on; the alarms that are raised by what
        waited for its turn, if any.

        A claim is fixed before a deployment, so what is under way counts at its best for ever.
        """
        raised = [alarm for deployment in list(self.waiting) for alarm in self.abandon(deployment)]
        self.keep_to(task)
        return raised

    def keep_to(self, task: Any) -> None:
        """Hold utilities against the limit that the task has now."""
        incumbent = task.threshold + (task.slack or 0.0)
        self.promise = self.promise._replace(threshold=task.threshold, incumbent=incumbent)

    def refused(self, *report: Any) -> list[Alarm]:
        """The alarm of a report that the agent refused for its range alone; none if it does not fit otherwise."""
        return []

    def watch_report(self, plan: Any, *report: Any) -> list[Alarm]:
        """A deployment and its report, at once."""
        raise NotImplementedError

    def _facts(self, plan: Any, component: int | None) -> Expected:
        """What is known of a deployment beforehand."""
        raise NotImplementedError

    def _outcome(self, *report: Any) -> ReportSummary:
        """What a report says."""
        raise NotImplementedError

    @property
    def _oldest(self) -> int:
        """The place of the first deployment that is waited for; that of the next one if there is none."""
        return next((facts.place for facts in self.waiting.values()), int(self.seen.purse.size[0]))

    def _share(self, what: Watched) -> float:
        """The probability of a false alarm that a monitor may spend."""
        return self.delta * READINGS[what].share

    def _at_once(self, plan: Any, component: int | None, *report: Any) -> list[Alarm]:
        outcome = self._outcome(*report)
        return self.expect(AT_ONCE, plan, component) + self._settle(self.waiting.pop(AT_ONCE), outcome)

    def _settle(self, facts: Expected, outcome: ReportSummary) -> list[Alarm]:
        """Put what came of a deployment in the place of the best that might have."""
        who, charged = facts.who, facts.who
        if facts.coin is not None:
            who, charged = self._acted(facts.coin, facts, outcome.component)
        if not math.isnan(outcome.utility):
            numbers = (outcome.utility, facts.bound, who & charged, facts.sigma, facts.place, charged)
            self._take_in(Batch(*(np.array([number]) for number in numbers)))
        utility = math.nan if not charged & INCUMBENT else outcome.utility if who & INCUMBENT else NOT_ITS
        lack = self._lack(facts, outcome.utility)
        turn = Turn(bool(facts.who & INCUMBENT), False, utility, outcome.features, lack)
        self._follow(self.line.put(facts.place, turn))
        return self._news(outcome.outside)

    def _lack(self, facts: Expected, utility: float) -> float:
        """What a deployment lacks to the threshold, as a bettor counts it; NaN where no check was passed."""
        if not facts.who & CHECKED:
            return math.nan
        promise = self.promise
        return AT_BEST if math.isnan(utility) else against(utility, promise.threshold, promise.ceiling, facts.sigma)

    def _acted(self, coin: Coin, facts: Expected, component: int | None) -> tuple[int, int]:
        """Who acted, by a coin that the report tells of, and the bits that are pending no more."""
        if component is None or component not in range(len(coin.weights)):
            return facts.who, facts.who & ~INCUMBENT  # nobody will know
        purse = self.seen.purse
        purse.pending[block_of(purse, facts.place), OF_COIN] -= 1
        self._toss(coin, component, facts.place)
        return facts.who if coin.safe[component] else facts.who & ~INCUMBENT, facts.who

    def _toss(self, coin: Coin, component: int, place: int) -> None:
        """Hold a coin against its weights."""
        purse, log_term = self.seen.purse, math.log(1 / self._share("coin"))
        weights, safe = np.array(coin.weights), np.array(coin.safe, dtype=np.int64)
        weigh_coin(purse, block_of(purse, place), weights, safe, coin.before, component, log_term)
        self.last_coin[0] = component

    def _take_in(self, batch: Batch) -> None:
        """Hold utilities against the claims about them, which all have the same share."""
        take_in(self.seen, self.promise, batch, self._oldest, math.log(1 / self._share("threshold")))

    def _follow(self, turns: list[Turn]) -> None:
        """Take in what comes next in the order of deployments."""
        self._follow_incumbent(np.array([turn.utility for turn in turns if turn.incumbent], dtype=np.float64))
        self._follow_spells(np.array([turn.lack for turn in turns], dtype=np.float64))
        if self.residual is not None:
            for k, turn in enumerate(turns, 1):
                if turn.features is None:
                    self.residual.miss(len(turns) - k + len(self.line))
                else:
                    self.residual.watch(*turn.features)

    def _follow_incumbent(self, utilities: Array) -> None:
        if self.promise.steady and len(utilities):
            above = self.promise._replace(ceiling=self.promise.ceiling - self.floor)
            follow(self.seen, above, utilities - self.floor, math.log(2 * len(BETS) / self._share("drift")))

    def _follow_spells(self, lacks: Array) -> None:
        if len(lacks):
            follow_spells(self.spell, lacks, math.log(1 / self._share("spell")))

    def _news(self, outside: str = "") -> list[Alarm]:
        """What is contradicted that was not before."""
        known, now = {alarm.what for alarm in self.standing}, int(self.seen.counts[0])
        raised = {what: int(array[place]) for what, (array, place) in self._counters.items() if what not in known}
        new = [
            Alarm(what, READINGS[what].says(self, at), at if what == "residual" else now, STATEMENTS[what].halts)
            for what, at in raised.items()
            if at
        ]
        if outside and "range" not in known:
            new.append(self._range_alarm(outside))
        self.alarms += new
        return new

    def _range_alarm(self, outside: str) -> Alarm:
        says = f"an episode has {outside}: what is certified assumes the range; correct the reports or the range"
        return Alarm("range", says, int(self.seen.counts[0]) + 1, STATEMENTS["range"].halts)

    def status(self) -> dict[str, Any]:
        """All figures as plain values: what was watched, what came out, the alarms."""
        found: dict[str, dict[str, Any]] = {
            what: READINGS[what].figures(self) | {"false_alarm": self._share(what), "alarm_at": int(array[place])}
            for what, (array, place) in self._counters.items()
        }
        deployed = int(self.seen.purse.size[0])
        counts = {"episodes": int(self.seen.counts[0]), "deployed": deployed, "waiting": len(self.waiting)}
        said = {"begun_anew": int(self.past[0]), "alarms": [vars(alarm) for alarm in self.alarms]}
        return {"delta": self.delta, **counts, **found, **said}

    def statements(self) -> dict[str, str]:
        """What each monitor tests, how often its alarm is false, and what that assumes, in words."""
        return {what: statement.says(self.delta) for what, statement in STATEMENTS.items()}

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say: δ, and every alarm in words."""
        return {"monitors_delta": self.delta, "alarms": in_words(self.alarms)}

    def state(self) -> State:
        """All that decides future alarms, as named arrays; `restore` takes it back bit for bit."""
        return monitor_state.stored(self)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, in monitors built alike; a refusal changes nothing."""
        monitor_state.restore(self, state)
