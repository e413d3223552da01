"""What the monitors of every kind of problem share: alarms, tests of utilities and coins, the state as named arrays.

A session tells them of every deployment before anything is known of it (`expect`), and of its report (`report`). What
is not reported counts at its best for what they test, so that no delay and no loss of reports raises a false alarm,
whatever it depends on. Where a deployment is reported at once, `watch` does both.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from episafe.checks import as_probability
from episafe.errors import DamagedFile
from episafe.kernels.claim_wealth import OF_BOUND, OF_COIN, OF_INCUMBENT, OF_THRESHOLD, against, block_of
from episafe.kernels.coin_bets import weigh_coin
from episafe.kernels.confidence_sequence import BETS
from episafe.kernels.mean_intervals import NOT_ITS
from episafe.kernels.spell_wealth import follow_spells, new_spell
from episafe.kernels.utility_tests import CHECKED, INCUMBENT, Batch, Promise, expect, follow, nothing_seen, take_in
from episafe.monitors.report_line import ReportLine, Turn
from episafe.monitors.residual_test import ResidualData, ResidualMonitor
from episafe.monitors.statements import STATEMENTS, Watched
from episafe.types import Array

CLAIMS: dict[Watched, int] = {
    "incumbent": OF_INCUMBENT, "threshold": OF_THRESHOLD, "bound": OF_BOUND, "coin": OF_COIN
}  # fmt: skip
MOST_WAITING = 20_000  # deployments that a report may still count for; the oldest beyond that count at their best
AT_BEST = -1.0  # what a deployment that is not reported lacks to the threshold
AT_ONCE = -1  # the number of a deployment that no session counts
INFINITE = ("ends", "utilities", "lacks", "promise")  # entries that may be infinite or NaN: nothing is known yet
GROWING = ("alarms.", "line.", "waiting")  # entries of any length
COLUMNS = {"what": np.str_, "says": np.str_, "after": np.int64, "halts": np.bool_}  # of alarms in a state


@dataclass(frozen=True)
class Alarm:
    """A contradiction between the data and what a monitor watches. Each monitor raises its alarm once.

    Attributes:
        what: which monitor.
        says: what is contradicted, by which figures, in words.
        after: how many episodes had been watched, this one included.
        halts: whether exploration should stop: `session.halt(alarm.says)`.
    """

    what: Watched
    says: str
    after: int
    halts: bool = True


class Coin(NamedTuple):
    """The coin of a mixture: the weights of its components, which of them are the incumbent, and the component that
    was known last when it was tossed, −1 if none was."""

    weights: tuple[float, ...]
    safe: tuple[bool, ...]
    before: int


class Facts(NamedTuple):
    """What is known of a deployment before its report comes.

    `who` has the bits of `utility_tests`, INCUMBENT where it acts, or may; `bound` is that of its plan; `sigma` of its
    utility, where that is noisy; `coin` is the one that the report will tell of, if any; `place` among all deployments.
    """

    who: int
    bound: float
    sigma: float = 0.0
    coin: Coin | None = None
    place: int = 0


class Outcome(NamedTuple):
    """What a report says: the total utility, NaN if it does not count; which component acted, None if it does not say;
    what the residual test needs, None if it does not say; what is outside its range, in words."""

    utility: float
    component: int | None = None
    features: ResidualData | None = None
    outside: str = ""


class Watch:
    """Monitors at work. Subclasses turn plans and what came of them into numbers.

    Attributes:
        alarms: all that were raised, oldest first; each monitor raises one.
    """

    _floor = 0.0  # what utilities are at least, where they may be negative; intervals of means are of what is above it

    def __init__(self, delta: float, promise: Promise, features: tuple[int, int] | None) -> None:
        self.delta, self._promise, self._seen = as_probability("delta", delta), promise, nothing_seen()
        self._residual = None if features is None else ResidualMonitor(*features, self._share("residual"))
        self._line, self._last_coin, self._spell = ReportLine(), np.array([-1]), new_spell()
        self._waiting: dict[int, Facts] = {}
        self.alarms: list[Alarm] = []

    def expect(self, deployment: int, plan: Any, component: int | None = None) -> list[Alarm]:
        """One more deployment, before anything is known of it; the alarms that its coin raises, if any.

        Args:
            deployment: its number; deployments are told of in their order.
            plan: what is deployed.
            component: which component of a mixture acts, as its coin fell; None if that comes with the report.
        """
        facts = self._facts(plan, component)
        waits = facts.coin is not None and component is None
        place = expect(self._seen.purse, self._promise, facts.who, facts.bound, int(waits), self._oldest)
        due = self._line.expect(bool(facts.who & INCUMBENT), self._lack(facts, math.nan))
        if facts.coin is not None and component is not None:
            self._toss(facts.coin, component, place)
            facts = facts._replace(coin=None)
        self._waiting[deployment] = facts._replace(place=place)
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._follow(due)
        return self._news()

    def report(self, deployment: int, *report: Any) -> list[Alarm]:
        """What came of a deployment, after the agent accepted it; the alarms that it raises, if any."""
        if deployment not in self._waiting:
            return []
        outcome = self._outcome(*report)
        return self._settle(self._waiting.pop(deployment), outcome)

    def abandon(self, deployment: int) -> list[Alarm]:
        """Nobody will know what came of a deployment: it counts at its best for ever."""
        facts = self._waiting.pop(deployment, None)
        return [] if facts is None else self._settle(facts, Outcome(math.nan))

    def change(self, task: Any) -> None:
        """The limit of the task is another one for what is deployed from now on.

        A claim is fixed before a deployment, so what is under way counts at its best for ever.
        """
        for deployment in list(self._waiting):
            self.abandon(deployment)
        self.keep_to(task)

    def keep_to(self, task: Any) -> None:
        """Hold utilities against the limit that the task has now."""
        incumbent = task.threshold + (task.slack or 0.0)
        self._promise = self._promise._replace(threshold=task.threshold, incumbent=incumbent)

    def refused(self, *report: Any) -> list[Alarm]:
        """The alarm of a report that the agent refused for its range alone; none if it does not fit otherwise."""
        return []

    def watch_report(self, plan: Any, *report: Any) -> list[Alarm]:
        """A deployment and its report, at once."""
        raise NotImplementedError

    def _facts(self, plan: Any, component: int | None) -> Facts:
        """What is known of a deployment beforehand."""
        raise NotImplementedError

    def _outcome(self, *report: Any) -> Outcome:
        """What a report says."""
        raise NotImplementedError

    @property
    def _oldest(self) -> int:
        """The place of the first deployment that is waited for; that of the next one if there is none."""
        return next((facts.place for facts in self._waiting.values()), int(self._seen.purse.size[0]))

    def _share(self, what: Watched) -> float:
        """The probability of a false alarm that a monitor may spend."""
        return self.delta * STATEMENTS[what].share

    def _at_once(self, plan: Any, component: int | None, *report: Any) -> list[Alarm]:
        outcome = self._outcome(*report)
        return self.expect(AT_ONCE, plan, component) + self._settle(self._waiting.pop(AT_ONCE), outcome)

    def _settle(self, facts: Facts, outcome: Outcome) -> list[Alarm]:
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
        self._follow(self._line.put(facts.place, turn))
        return self._news(outcome.outside)

    def _lack(self, facts: Facts, utility: float) -> float:
        """What a deployment lacks to the threshold, as a bettor counts it; NaN where no check was passed."""
        if not facts.who & CHECKED:
            return math.nan
        promise = self._promise
        return AT_BEST if math.isnan(utility) else against(utility, promise.threshold, promise.ceiling, facts.sigma)

    def _acted(self, coin: Coin, facts: Facts, component: int | None) -> tuple[int, int]:
        """Who acted, by a coin that the report tells of, and the bits that are pending no more."""
        if component is None or component not in range(len(coin.weights)):
            return facts.who, facts.who & ~INCUMBENT  # nobody will know
        purse = self._seen.purse
        purse.pending[block_of(purse, facts.place), OF_COIN] -= 1
        self._toss(coin, component, facts.place)
        return facts.who if coin.safe[component] else facts.who & ~INCUMBENT, facts.who

    def _toss(self, coin: Coin, component: int, place: int) -> None:
        """Hold a coin against its weights."""
        purse, log_term = self._seen.purse, math.log(1 / self._share("coin"))
        weights, safe = np.array(coin.weights), np.array(coin.safe, dtype=np.int64)
        weigh_coin(purse, block_of(purse, place), weights, safe, coin.before, component, log_term)
        self._last_coin[0] = component

    def _take_in(self, batch: Batch) -> None:
        """Hold utilities against the claims about them, which all have the same share."""
        take_in(self._seen, self._promise, batch, self._oldest, math.log(1 / self._share("threshold")))

    def _follow(self, turns: list[Turn]) -> None:
        """Take in what comes next in the order of deployments."""
        self._follow_incumbent(np.array([turn.utility for turn in turns if turn.incumbent], dtype=np.float64))
        self._follow_spells(np.array([turn.lack for turn in turns], dtype=np.float64))
        if self._residual is not None:
            for k, turn in enumerate(turns, 1):
                if turn.features is None:
                    self._residual.miss(len(turns) - k + len(self._line))
                else:
                    self._residual.watch(*turn.features)

    def _follow_incumbent(self, utilities: Array) -> None:
        if self._promise.steady and len(utilities):
            above = self._promise._replace(ceiling=self._promise.ceiling - self._floor)
            follow(self._seen, above, utilities - self._floor, math.log(2 * len(BETS) / self._share("drift")))

    def _follow_spells(self, lacks: Array) -> None:
        if len(lacks):
            follow_spells(self._spell, lacks, math.log(1 / self._share("spell")))

    def _news(self, outside: str = "") -> list[Alarm]:
        """What is contradicted that was not before."""
        known, now = {alarm.what for alarm in self.alarms}, int(self._seen.counts[0])
        new = [
            Alarm(what, self._says(what, at), at if what == "residual" else now, STATEMENTS[what].halts)
            for what, at in self._raised().items()
            if what not in known
        ]
        if outside and "range" not in known:
            new.append(self._range_alarm(outside))
        self.alarms += new
        return new

    def _range_alarm(self, outside: str) -> Alarm:
        says = f"an episode has {outside}: what is certified assumes the range; correct the reports or the range"
        return Alarm("range", says, int(self._seen.counts[0]) + 1, STATEMENTS["range"].halts)

    def _raised(self) -> dict[Watched, int]:
        """How many episodes each monitor that has raised its alarm had watched then."""
        counts = self._seen.purse.counts[:, 1].tolist()
        found: dict[Watched, int] = {what: counts[claim] for what, claim in CLAIMS.items()}
        found["drift"], found["spell"] = int(self._seen.drift.counts[2]), int(self._spell.counts[1])
        found["residual"] = 0 if self._residual is None else self._residual.alarm_at
        return {what: at for what, at in found.items() if at}

    def _says(self, what: Watched, at: int) -> str:
        if what == "residual":
            return (
                f"the transitions are not linear in the features, by {at} episodes: certificates that rest on features "
                "(model, fresh-data) do not hold; that from observed utilities (observation) is not touched"
            )
        if what == "spell":
            return (
                f"policies that passed the check have been below the threshold of late, by {at} of their episodes: the "
                "world is not what it was when they were certified, or episodes are not independent"
            )
        if what == "drift":
            ends = self._seen.drift.ends + self._floor
            return (
                f"the incumbent's utility has changed: once it was above {ends[:, 0].max():.4g}, once below "
                f"{ends[:, 1].min():.4g}, by {at} of its episodes"
            )
        seen, stated = self._seen.purse.sums[CLAIMS[what]].tolist()
        if what == "coin":
            return (
                f"components are not drawn by the weights of their plans, by {at} coins: the incumbent acted "
                f"{seen:.0f} times, not {stated:.4g}; what is certified of mixtures holds over their coin"
            )
        means = f"{seen / at:.4g} on average, not {stated / at:.4g}"
        if what == "incumbent":
            return f"the incumbent is not as safe as stated: {means} = threshold + slack, by {at} of its episodes"
        than = "the threshold" if what == "threshold" else "the bounds that they were deployed on"
        return f"policies that passed the check are below {than}: {means}, by {at} of their episodes"

    def status(self) -> dict[str, Any]:
        """All figures as plain values: what was watched, what came out, the alarms."""
        purse, drift, raised = self._seen.purse, self._seen.drift, self._raised()
        found: dict[Any, dict[str, Any]] = {what: self._claim_status(claim) for what, claim in CLAIMS.items()}
        found["incumbent"] |= {"interval": (drift.ends[0] + self._floor).tolist()}
        reported, missing = int(drift.sums[0]), int(drift.sums[3])
        found["drift"] = {"episodes": reported, "missing": missing, "intervals": int(drift.counts[0])}
        found["spell"] = {"episodes": int(self._spell.counts[0])}
        if self._residual is not None:
            found["residual"] = self._residual.status()
        for what, figures in found.items():
            figures |= {"false_alarm": self._share(what), "alarm_at": raised.get(what, 0)}
        counts = {"episodes": int(self._seen.counts[0]), "deployed": int(purse.size[0]), "waiting": len(self._waiting)}
        return {"delta": self.delta, **counts, **found, "alarms": [vars(alarm) for alarm in self.alarms]}

    def _claim_status(self, claim: int) -> dict[str, Any]:
        purse = self._seen.purse
        n, pending = int(purse.counts[claim, 0]), int(purse.pending[:, claim].sum())
        mean, claimed = (purse.sums[claim] / n).tolist() if n else (math.nan, math.nan)
        return {"episodes": n, "pending": pending, "mean": mean, "claimed": claimed}

    def statements(self) -> dict[str, str]:
        """What each monitor tests, how often its alarm is false, and what that assumes, in words."""
        return {what: statement.says(self.delta) for what, statement in STATEMENTS.items()}

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say: δ, and every alarm in words."""
        said = "; ".join(f"{alarm.what} after {alarm.after}: {alarm.says}" for alarm in self.alarms)
        return {"monitors_delta": self.delta, "alarms": said or "none"}

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """All that decides future alarms, as named arrays; `restore` takes it back bit for bit."""
        arrays = {name: array.copy() for name, array in self._arrays()}
        for name, dtype in COLUMNS.items():
            arrays[f"alarms.{name}"] = np.array([getattr(alarm, name) for alarm in self.alarms], dtype=dtype)
        arrays |= {f"line.{name}": array for name, array in self._line.state().items()}
        arrays["waiting"] = np.frombuffer(json.dumps(list(self._waiting.items())).encode(), np.uint8)
        arrays["promise"] = np.array([self.delta, *self._promise])
        return arrays

    def restore(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Go on from what `state` gave, in monitors built alike; a refusal changes nothing."""
        ours = self.state()
        for name in ours.keys() | state.keys():
            if name not in state or name not in ours:
                raise DamagedFile(f"the monitors' state {'lacks' if name in ours else 'has an unknown'} {name!r}")
            _check(name, state[name], ours[name])
        if not np.array_equal(state["promise"], ours["promise"], equal_nan=True):
            raise ValueError("the state is of monitors for another task or delta: build them as they were")
        line = ReportLine.restored({name: state[f"line.{name}"] for name in self._line.state()})
        waiting = _waiting(state["waiting"])
        for name, array in self._arrays():
            array[...] = state[name]
        columns = [state[f"alarms.{name}"].tolist() for name in COLUMNS]
        self.alarms = [Alarm(*row) for row in zip(*columns, strict=True)]
        self._line, self._waiting = line, waiting

    def _arrays(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        yield from _named("utilities", self._seen)
        yield "last_coin", self._last_coin
        yield from _named("spell", self._spell)
        if self._residual is not None:
            yield from _named("residual", self._residual.seen)


def _named(prefix: str, value: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The arrays of nested named tuples, by dotted paths."""
    if isinstance(value, np.ndarray):
        yield prefix, value
    else:
        for name, part in value._asdict().items():
            yield from _named(f"{prefix}.{name}", part)


def _check(name: str, given: Any, ours: np.ndarray[Any, Any]) -> None:
    alike = isinstance(given, np.ndarray) and given.dtype.kind == ours.dtype.kind and given.ndim == ours.ndim
    if not alike or (not name.startswith(GROWING) and given.shape != ours.shape):
        raise DamagedFile(f"the monitors' state has {name!r} of another kind or shape")
    infinite = name.rsplit(".", 1)[-1] in INFINITE
    if given.dtype.kind == "f" and not (infinite or np.isfinite(given).all()):
        raise DamagedFile(f"the monitors' state has a number in {name!r} that is not finite")


def _waiting(given: np.ndarray[Any, Any]) -> dict[int, Facts]:
    """The deployments that are waited for, of what `state` says."""
    try:
        found = {}
        for number, (who, bound, sigma, coin, place) in json.loads(given.tobytes()):
            tossed = None if coin is None else Coin(tuple(coin[0]), tuple(coin[1]), coin[2])
            found[number] = Facts(who, bound, sigma, tossed, place)
    except (TypeError, ValueError, IndexError) as error:
        raise DamagedFile(f"the monitors' state does not say what is waited for ({error})") from error
    return found
