"""Random lives of sessions, and the wealth of all that truly came of their deployments, reported or not.

A deployment is made, reported by its number or by its plan, late or never, most often if it failed; candidates are
added, promoted and withdrawn, thresholds changed, folders closed, killed, spoilt and repaired. What is proved may never
be more than the true outcomes of all deployments prove (docs/theory-certificates.md, Lemma 3), at any time.
"""

import math
from collections import defaultdict

import late_reports
import numpy as np

import episafe as es
from episafe.certify.hindsight import BET_WEIGHTS
from episafe.kernels.wealth import BETS
from episafe.problems.listed_move import ListedMove

DELTA = 0.2
EVENLY = np.full(len(BETS), 1 / len(BETS))


def largest_log_wealth(outcomes, mean, least, weights):
    """The largest ln Σ_b weight_b Π(1 + λ_b q((X − x₀)/(m − x₀) − 1)) of any prefix of (q, X)."""
    if not outcomes:
        return -math.inf
    q, X = np.array(outcomes).T
    logs = np.log1p(BETS * (q * ((X - least) / (mean - least) - 1))[:, None]).cumsum(axis=0)
    return float((np.logaddexp.reduce(logs + np.log(weights), axis=1)).max())


class Release:
    """A staged release: one of several least totals, the incumbent's slack known or not."""

    def __init__(self, rng):
        self.least, self.slack = float(rng.choice([0.0, -1.0, 0.2])), [0.3, None][int(rng.random() < 0.3)]
        self.succeeds = {"now": 0.9, **{f"c{i}": float(rng.choice([0.3, 0.6, 0.95])) for i in range(99)}}
        self.thresholds, self.first = (0.45, 0.5, 0.55, 0.6), "c0"

    def build(self, names):
        candidates = {name: [name] for name in names}
        return es.Rollout(0.5, self.slack, candidates, ["now"], DELTA, 1.0, least_total=self.least)

    def policy(self, name):
        return [name]

    def play(self, plan, component, policy, rng):
        total = 1.0 if rng.random() < self.succeeds[policy.policy[0]] else self.least
        return es.Episode.of_totals(total, component=component), total

    def shares(self, plan, component, episode):
        return [float(i == component) for i in range(len(plan.policy.components))]

    def ledgers(self, agent):
        return {"coin": (agent.certificate.ledger, EVENLY)}

    def judged(self, agent, episode):
        return {}


class Observed:
    """Two steps; `late_reports` has the problem."""

    least, first, thresholds = 0.0, None, (0.45, 0.5, 0.55, 0.6)

    def __init__(self, rng):
        self.cmdp = late_reports.problem(float(rng.choice([0.3, 0.6, 0.85])))

    def build(self, names):
        agent = es.OPSE(self.cmdp.task, es.Constants.proposing(), certifier=self.certifier())
        for name in names:
            agent.add_candidate(name, self.policy(name))
        return agent

    def certifier(self):
        return es.certify.Observation(DELTA)

    def policy(self, name):
        risky = np.random.default_rng(int(name[1:])).random(self.cmdp.task.reward.shape[:2])
        return es.TablePolicy(np.stack([1 - risky, risky], axis=-1))

    def play(self, plan, component, policy, rng):
        action = policy.act(0, 0, rng)
        then = int(rng.choice(3, p=self.cmdp.P[0, 0, action]))
        episode = es.Episode([0, then, 2], [action, policy.act(1, then, rng)], component=component)
        return episode, float(then == late_reports.GOOD)

    def shares(self, plan, component, episode):
        pairs = list(enumerate(zip(episode.states, episode.actions, strict=False)))
        parts = zip(plan.policy.weights, plan.policy.components, strict=True)
        chances = [weight * math.prod(one.probabilities(h, s)[a] for h, (s, a) in pairs) for weight, one in parts]
        return [chance / sum(chances) for chance in chances]

    def ledgers(self, agent):
        return {"coin": (agent.certificate.ledger, EVENLY)}

    def judged(self, agent, episode):
        return {}


class Stock(Observed):
    """A shelf of two, one order a day, a demand of 0 to 2 that is seen: `Hindsight` replays it."""

    thresholds = (1.8, 2.0, 2.2, 2.4)

    def __init__(self, rng):
        shape, horizon = (1, 3, 2, 3), 3
        self.law, rows = np.array([0.3, 0.3, 0.4]), np.indices(shape)
        on_shelf = np.minimum(rows[1] + 2 * rows[2], 2)
        left, served = np.maximum(on_shelf - rows[3], 0), (on_shelf >= rows[3]).astype(float)
        self.move = ListedMove((0, 1, 2), left, 1.0 - rows[2], served)
        law, safe = np.broadcast_to(self.law, (1, 3, 3)).copy(), np.zeros((horizon, 3, 2))
        safe[..., 1] = 1.0
        tables = [np.repeat(one, horizon, axis=0) for one in self.move.means(law)]
        given = {"initial_state": 2, "threshold": 2.2, "slack": 0.5, "safe_policy": safe}
        self.cmdp = es.LinearCMDP(*tables, move=self.move, law=law, **given)

    def certifier(self):
        return es.certify.Hindsight(DELTA)

    def play(self, plan, component, policy, rng):
        demand, states, actions, signals = rng.choice(3, 3, p=self.law).tolist(), [2], [], []
        for h, w in enumerate(demand):
            actions.append(policy.act(h, states[-1], rng))
            following, *signal = self.move(h, states[-1], actions[-1], w)
            states.append(following)
            signals.append(signal)
        self.trace = (2, tuple(demand))
        rewards, utilities = np.array(signals).T
        trace = self.trace if rng.random() < 0.9 else None
        return es.Episode(states, actions, rewards, utilities, component, trace), float(utilities.sum())

    def worth(self, policy, h=0, state=2):
        """Expected utility of a policy on the last trace."""
        if h == 3:
            return 0.0
        chances, total = policy.probabilities(h, state), 0.0
        for action in range(2):
            following, _, utility = self.move(h, state, action, self.trace[1][h])
            total += chances[action] * (utility + self.worth(policy, h + 1, following))
        return total

    def ledgers(self, agent):
        certificate = agent.certificate
        return {"replays": (certificate.replayed, BET_WEIGHTS), "coin": (certificate.observed.ledger, EVENLY)}

    def judged(self, agent, episode):
        ledger = agent.certificate.replayed
        return {ledger.names[i]: self.worth(ledger.policies[i]) for i in np.flatnonzero(ledger.trials.in_use)[1:]}


class Life:
    """One life.

    Args:
        world: what is tried there, and what comes of it.
        folder: where it is kept.
        seed: of all that happens.

    Attributes:
        wrong: what must not be, in words.
    """

    def __init__(self, world, folder, seed):
        self.rng = np.random.default_rng(seed)
        self.world, self.folder, self.wrong = world(self.rng), folder, []
        self.names = [self.world.first] if self.world.first else []
        self.came = defaultdict(list)  # by evidence and name: the true (q, X) of all its deployments
        self.spent, self.issued, self.pending = {}, set(), {}
        self.open()

    def open(self):
        self.session = es.open(self.folder, agent=self.world.build(self.names), false_alarm=0, sync="plans")

    def go_on(self, num_acts):
        acts = [self.deploy, self.report, self.abandon, self.add, self.promote, self.withdraw, self.change, self.halt,
                self.reopen, self.repair]  # fmt: skip
        for act in self.rng.choice(acts, num_acts, p=[0.5, 0.33, 0.03, 0.02, 0.02, 0.02, 0.02, 0.02, 0.025, 0.015]):
            try:
                act()
            except es.DamagedFile as error:
                self.wrong.append(str(error))
            except ValueError:
                pass  # refused: nothing is changed
            self.look()
            if self.wrong:
                return
        self.session.close()
        self.wrong += es.audit(self.folder, agent=self.world.build(self.names)).damage

    def look(self):
        """Nothing is proved that the truth does not prove, and no share of δ is given twice."""
        if self.session.broken:
            self.wrong.append(self.session.broken)
        for evidence, (ledger, weights) in self.world.ledgers(self.session.agent).items():
            trials = ledger.trials
            for i in np.flatnonzero((trials.in_use == 1) & (trials.log_term > 0)).tolist():
                owner = self.spent.setdefault((evidence, round(trials.log_term[i], 9)), ledger.names[i])
                if owner != ledger.names[i]:
                    self.wrong.append(f"{owner} and {ledger.names[i]} have one share of δ")
                key = evidence, ledger.names[i], round(trials.log_term[i], 9) if i == 0 else 0
                log_term, bound = trials.log_term[i] - math.log(len(BETS)), trials.lower[i]
                true = self.world.least if bound <= self.world.least else None
                if (
                    true is None
                    and largest_log_wealth(self.came[key], bound, self.world.least, weights) < log_term - 1e-6
                ):
                    self.wrong.append(f"{bound} is proved of {ledger.names[i]}, and is not so by {evidence}")

    def deploy(self):
        session, own_coin = self.session, self.rng.random() < 0.3
        if own_coin:
            plan = session.plan()
            number, (component, policy) = plan.deployment, plan.policy.draw(self.rng)
        else:
            made = session.deploy(self.rng)
            number, plan, component, policy = made.id, made.plan, made.component, made.policy
        if number in self.issued or not (plan.source == "safe" or plan.utility_bound >= session.task.threshold):
            self.wrong.append(f"deployment {number} of a plan with the bound {plan.utility_bound}")
        self.issued.add(number)
        episode, total = self.world.play(plan, component, policy, self.rng)
        self.pending[number] = plan.id, episode, total
        if plan.id >= 0:
            self._note(plan, component, episode, total)

    def _note(self, plan, component, episode, total):
        for name, worth in self.world.judged(self.session.agent, episode).items():
            self.came["replays", name, 0].append((1.0, worth))
        names = getattr(plan.policy, "names", None) or [one.name for one in plan.policy.components]
        shares = defaultdict(float)
        for name, share in zip(names, self.world.shares(plan, component, episode), strict=True):
            shares[name] += share
        for name, share in shares.items():
            ledger, _ = self.world.ledgers(self.session.agent)["coin"]
            own = round(ledger.trials.log_term[0], 9) if name == "incumbent" else 0
            self.came["coin", name, own].append((share, total))

    def report(self):
        number = int(self.rng.choice(sorted(self.pending)))
        plan_id, episode, total = self.pending[number]
        if total <= 0.5 and self.rng.random() < 0.6:
            return  # failures are late or lost
        by = {"plan_id": plan_id} if self.rng.random() < 0.3 else {"deployment": number}
        self.session.learn(episode, **by)
        del self.pending[number]

    def abandon(self):
        number = int(self.rng.choice(sorted(self.pending)))
        self.session.abandon(number)
        del self.pending[number]

    def add(self):
        name = f"c{len(self.names)}"
        self.session.add_candidate(name, self.world.policy(name))
        self.names.append(name)

    def promote(self):
        self.session.promote(str(self.rng.choice(list(self.session.agent.bounds()))), "to see")

    def withdraw(self):
        self.session.withdraw(str(self.rng.choice(list(self.session.agent.bounds())[1:])), "to see")

    def change(self):
        self.session.change("to see", threshold=float(self.rng.choice(self.world.thresholds)))

    def halt(self):
        self.session.resume_exploring("to see") if self.session.book.halted else self.session.halt("to see")

    def reopen(self):
        seen = self._seen()
        if self.rng.random() < 0.4:
            self.session._journal.checkpoint(self.session.parts)
        if self.rng.random() < 0.7:
            self.session.close()
        else:  # as a killed process leaves it
            self.session._journal.sync_trail()
            self.session._journal.release()
        self.open()
        if self._seen() != seen:
            self.wrong.append(f"it is opened as {self._seen()} and was {seen}")

    def _seen(self):
        status = self.session.status()
        return self.session.agent.bounds(), status.started, status.reported, status.stopped, status.promoted

    def repair(self):
        """Spoil a byte, or cut the log, anywhere but at its very beginning."""
        self.session.close()
        log = self.folder / "journal.log"
        data = bytearray(log.read_bytes())
        place = int(self.rng.integers(min(1500, len(data) - 1), len(data)))
        if self.rng.random() < 0.5:
            data[place] ^= 0x55
        else:
            del data[place:]
        log.write_bytes(bytes(data))
        es.repair(self.folder)
        self.open()
        if not self.session.book.halted:
            self.wrong.append("it explores after a repair")
        self.pending = {number: one for number, one in self.pending.items() if number in self.session.book.waiting}
