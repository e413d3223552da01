"""Rollouts: what is proved of opaque policies by their coin and totals, who is tried, and how it is kept."""

import sys
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.errors import InvalidEpisode
from episafe.kernels.wealth import BETS
from episafe.problems.policy import Component
from episafe.testing.assertions import require_same_arrays

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import late_reports
import rollouts

B, SLACK = 0.5, 0.4
totals = es.Episode.of_totals


def rollout(*names, slack=SLACK, delta=0.05, utility_max=1.0):
    return es.Rollout(B, slack, {name: [name] for name in names}, ["now"], delta, utility_max)


def in_memory(agent):
    return es.open(None, agent=agent, false_alarm=0)


def oracle(utilities, means, delta):
    """The largest point of the grid that the mean over bets of Π(1 + λ(X/m − 1)) refutes after any prefix."""
    gains = np.asarray(utilities)[:, None, None] / means[:, None] - 1
    wealth = np.exp(np.log1p(BETS * gains).cumsum(axis=0).clip(max=600)).mean(axis=2)
    return means[(wealth >= 1 / delta).any(axis=0)].max(initial=0.0)


def live(session, rng, num, utility, lost=()):
    """So many deployments, reported at once but for those whose ids are lost; what was seen, by name."""
    seen = {}
    for _ in range(num):
        deployed = session.deploy(rng)
        total = utility(deployed.policy.name, rng)
        known = deployed.id not in lost
        seen.setdefault(deployed.policy.name, []).append(total if known else 0.0)
        if known:
            session.learn(totals(total), deployment=deployed.id)
    return seen


# ---- what is proved


@pytest.mark.parametrize("lost", [(), range(3, 400, 11)])
def test_a_bound_is_the_exact_wealth_of_the_candidates_own_deployments(lost):
    """What is not reported counts as 0 for the candidate that was drawn, and not at all for the others."""
    agent = rollout("v2", "v3", delta=0.2)
    seen = live(in_memory(agent), np.random.default_rng(0), 400, lambda name, rng: rng.beta(9, 1) * 0.5, lost)
    means = agent.certificate.ledger.trials.means
    for name, share in (("v2", 5 / 12), ("v3", 3 / 12)):
        assert agent.bounds()[name] == oracle(seen[name], means, 0.2 * share) > (0.1 if lost else 0.2)
    assert agent.bounds()["incumbent"] == B + SLACK


def test_only_who_was_drawn_is_charged_and_all_where_nobody_was():
    agent, rng = rollout("v2"), np.random.default_rng(0)
    session, ledger = in_memory(agent), agent.certificate.ledger
    drawn = [session.deploy(rng).policy.name for _ in range(20)]
    assert len(ledger.each[0]._pending[1].tail) == drawn.count("v2") < 20
    plan = session.plan()  # the caller tosses the coin
    assert len(ledger.each[0]._pending[1].tail) == drawn.count("v2") + 1
    session.learn(totals(1.0, component=1), deployment=plan.deployment)  # the incumbent acted
    entry = ledger.each[0]._pending[1].tail[-1]
    assert entry.is_reported and entry.share == 0


def test_a_report_that_says_another_component_is_refused():
    session, rng = in_memory(rollout("v2")), np.random.default_rng(1)
    deployed = session.deploy(rng)
    with pytest.raises(es.InvalidEpisode, match="was drawn, and the episode says"):
        session.learn(totals(1.0, component=1 - deployed.component), deployment=deployed.id)


def test_an_agent_without_a_session_learns_by_the_plan():
    agent, other = rollout("v2"), rollout("v2")
    plan = agent.plan()
    for k in range(30):
        agent.learn(totals(0.9, component=0), plan_id=plan.id)
        other.learn(totals(0.9, component=0), plan_id=other.plan().id)
        if k == 0:
            agent.learn(totals(0.0, component=0))  # of no plan: it says nothing
    assert agent.bounds() == other.bounds() and agent.bounds()["v2"] > 0
    assert agent.num_learned == 30


@pytest.mark.parametrize(
    ("episode", "says"),
    [
        (totals(1.01, component=0), "state a larger utility_max"),
        (totals(np.nan, component=0), "finite number"),
        (totals(None, component=0), "time-out"),
        (totals(0.5, reward="much", component=0), "total_reward must be a finite number"),
        (es.Episode([0, 0], [0], component=0), "knows no steps"),
        (totals(0.5), "component must be a whole number"),
        (totals(0.5, component=2), "component must be below 2"),
        (totals(0.5, component=-1), "component must be at least 0"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(episode, says):
    agent = rollout("v2")
    plan, before = agent.plan(), agent.state()
    with pytest.raises(es.InvalidEpisode, match=says):
        agent.learn(episode, plan_id=plan.id)
    require_same_arrays(before, agent.state(), "the states differ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0.0, 0.1, {}, "now"), "threshold must be > 0"),
        ((0.5, 0.0, {}, "now"), "slack must be > 0"),
        ((0.5, 0.6, {}, "now", 0.05, 1.0), "exceeds utility_max"),
        ((0.5, 0.1, {}, "now", 1.0), "delta must be"),
        ((0.5, 0.1, {"incumbent": "a"}, "now"), "the name 'incumbent' is taken"),
        ((0.5, 0.1, {"proposal-1": "a"}, "now"), "the name 'proposal-1' is taken"),
        ((0.5, 0.1, {"": "a"}, "now"), "needs a name"),
        ((0.5, 0.1, {"v2": print, "v3": print}, "now"), "'v3' is the same object as 'v2'"),
        ((0.5, 0.1, {"v2": print}, print), "'v2' is the same object as 'incumbent'"),
    ],
)
def test_a_rollout_that_makes_no_sense_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        es.Rollout(*arguments)


def test_policies_are_handed_back_as_they_came():
    class Network:
        __slots__ = ()

    v1, v2 = Network(), Network()
    agent = es.Rollout(B, SLACK, {"v2": v2}, v1)
    session, rng = in_memory(agent), np.random.default_rng(0)
    met = {(d.policy.name, d.component, d.policy.policy) for d in (session.deploy(rng) for _ in range(30))}
    assert met == {("v2", 0, v2), ("incumbent", 1, v1)}


def test_the_first_weight_is_all_that_the_slack_pays_for():
    plan = rollout("v2").plan()
    assert plan.policy.weights[0] == pytest.approx(SLACK / (B + SLACK), abs=1e-12)
    assert plan.utility_bound >= B and plan.level == "theorem"
    assert "frozen" in rollout().settings()["statement"]


def shares(agent):
    """δ_j/δ of the candidates, and of an incumbent that has a sequence."""
    terms = agent.certificate.ledger.trials.log_term
    return len(BETS) / np.exp(terms[terms > 0]) / agent.delta


def test_those_that_are_there_first_share_delta_half_by_their_order_and_half_alike():
    np.testing.assert_allclose(shares(rollout("v2")), [1 / 2])
    agent = rollout("v2", "v3", "v4")
    np.testing.assert_allclose(shares(agent), [(1 / 2 + 1 / 4) / 2, (1 / 6 + 1 / 4) / 2, (1 / 12 + 1 / 4) / 2])
    assert shares(agent).sum() == pytest.approx(3 / 4)  # what δ_j = δ/(j(j+1)) would have them spend


def test_who_comes_after_the_first_plan_takes_nothing_from_the_others():
    agent = rollout("v2", "v3")
    agent.plan()
    agent.add_candidate("v4", "v4")
    np.testing.assert_allclose(shares(agent), [5 / 12, 3 / 12, 1 / 12])


def test_delta_is_not_shared_anew_once_something_was_deployed_or_a_candidate_is_gone():
    ledger = rollout("v2", "v3").certificate.ledger
    before = ledger.trials.log_term.copy()
    ledger.expect(0, [1])
    ledger.add(Component("v4", "v4"), 0.0)
    ledger.share_delta()
    np.testing.assert_array_equal(ledger.trials.log_term[:3], before)
    ledger = rollout("v2", "v3").certificate.ledger
    ledger.withdraw("v2")
    ledger.add(Component("v4", "v4"), 0.0)
    ledger.share_delta()
    np.testing.assert_allclose(len(BETS) / np.exp(ledger.trials.log_term[3]) / 0.05, 1 / 12)


# ---- who is tried, and who acts


def alone(agent, rng, utility, reward=lambda name, rng: 0.0, num=3000):
    """Run until somebody acts alone; who, and after how many episodes."""
    session = in_memory(agent)
    for k in range(num):
        deployed = session.deploy(rng)
        if deployed.plan.source == "search" and len(deployed.plan.policy.names) == 1:
            return deployed.policy.name, k
        name = deployed.policy.name
        session.learn(totals(utility(name, rng), reward(name, rng)), deployment=deployed.id)
    return "", num


MEANS = {"incumbent": 0.9, "good": 0.8, "bad": 0.3, "better": 0.8}


def beta(name, rng):
    return rng.beta(10 * MEANS[name], 10 * (1 - MEANS[name]))


def test_the_good_one_of_several_acts_alone():
    for seed in range(5):
        who, after = alone(rollout("bad", "good"), np.random.default_rng(seed), beta)
        assert who == "good" and after < 150


def test_where_rewards_tell_nothing_the_newest_is_tried_until_it_is_decided():
    agent, rng = rollout("good"), np.random.default_rng(0)
    session = in_memory(agent)
    for _ in range(100):
        deployed = session.deploy(rng)
        session.learn(totals(beta(deployed.policy.name, rng)), deployment=deployed.id)
    assert session.plan().policy.names == ("good",)
    agent.add_candidate("better", "better")
    assert session.plan().policy.names[0] == "better"  # at once, though nothing was learned
    for _ in range(200):
        deployed = session.deploy(rng)
        session.learn(totals(beta(deployed.policy.name, rng)), deployment=deployed.id)
    assert agent.plan().policy.names == ("better",)


def test_the_certified_one_of_the_highest_reward_acts():
    pay = {"incumbent": 0.0, "good": 0.3, "better": 0.7}
    agent, rng = rollout("good", "better"), np.random.default_rng(2)
    session = in_memory(agent)
    for _ in range(600):
        deployed = session.deploy(rng)
        name = deployed.policy.name
        session.learn(totals(beta(name, rng), pay[name] + rng.normal(0, 0.3)), deployment=deployed.id)
    assert agent.plan().policy.names == ("better",)


def test_a_good_one_is_not_starved_by_nine_others():
    """Its mean time was twice as long where one bad look put it behind the others."""
    setting = rollouts.SETTINGS[0]
    found = [rollouts.play(setting, rollouts.candidates(setting, 0, 9), seed) for seed in range(12)]
    assert np.mean([length for length, _, _ in found]) < 220 and {who for _, who, _ in found} == {"good"}


def test_a_session_and_an_agent_alone_make_the_same_rollout():
    setting = rollouts.SETTINGS[0]
    means = rollouts.candidates(setting, 2, 3)
    assert rollouts.play(setting, means, 3) == rollouts.play(setting, means, 3, in_session=True)


def earn(session, rng, pay, num, enough=lambda: False):
    """Up to so many episodes with utilities as `MEANS` says and these rewards; who the last mixture was of."""
    for _ in range(num):
        deployed = session.deploy(rng)
        name = deployed.policy.name
        session.learn(totals(beta(name, rng), pay[name] + rng.normal(0, 0.1)), deployment=deployed.id)
        if enough():
            break
    return deployed.plan.policy.names


def test_who_promises_the_larger_gain_is_proved_first(monkeypatch):
    """The nearest to its proof earns hardly more than the incumbent, and was proved first."""
    monkeypatch.setitem(MEANS, "poor", 0.9)
    for seed in range(4):
        agent, pay = rollout("good", "poor"), {"incumbent": 0.0, "poor": 0.1, "good": 1.0}
        earn(
            in_memory(agent),
            np.random.default_rng(seed),
            pay,
            200,
            lambda agent=agent: agent.certificate.certified.any(),
        )
        assert agent.certificate.certified.tolist() == [False, True, False]


def test_who_acts_pays_for_the_trial_of_a_better_one(monkeypatch):
    """The incumbent, which earns nothing, would act in most of these episodes."""
    monkeypatch.setitem(MEANS, "better", 0.6)
    agent, pay, rng = rollout("good"), {"incumbent": 0.0, "good": 0.8, "better": 1.0}, np.random.default_rng(0)
    session = in_memory(agent)
    assert earn(session, rng, pay, 250) == ("good",)
    agent.add_candidate("better", "better")
    assert earn(session, rng, pay, 10) == ("better", "good")


def test_a_candidate_that_earns_less_than_the_incumbent_is_dropped():
    agent, rng = rollout("good"), np.random.default_rng(3)
    session = in_memory(agent)
    for _ in range(300):
        deployed = session.deploy(rng)
        name = deployed.policy.name
        pay = 0.0 if name == "good" else 1.0
        session.learn(totals(beta(name, rng), pay + rng.normal(0, 0.3)), deployment=deployed.id)
    assert agent.certificate.dropped[1] and agent.plan().source == "safe"
    assert agent.plan().reason == "no candidate is on trial"


def test_a_candidate_below_the_threshold_is_dropped_and_one_above_it_hardly_ever():
    dropped = {"bad": 0, "good": 0}
    for seed in range(12):
        for name in dropped:
            agent, rng = rollout(name), np.random.default_rng(seed)
            live(in_memory(agent), rng, 150, beta)
            dropped[name] += int(agent.certificate.dropped[1])
    assert dropped == {"bad": 12, "good": 0}


# ---- slack unknown


def test_without_a_slack_the_incumbent_acts_alone_until_it_is_proved_above_the_threshold():
    agent, rng = rollout("good", slack=None), np.random.default_rng(0)
    session, ledger = in_memory(agent), agent.certificate.ledger
    first = session.deploy(rng)
    assert first.plan.source == "safe" and "not proved" in first.plan.reason and agent.bounds()["incumbent"] == 0
    np.testing.assert_allclose(ledger.trials.log_term[:2], np.log(len(BETS) * np.array([12 / 5, 12 / 3]) / 0.05))
    seen = []
    while session.agent.bounds()["incumbent"] <= B:
        deployed = session.deploy(rng)
        assert deployed.plan.source == "safe"
        seen.append(beta("incumbent", rng))
        session.learn(totals(seen[-1]), deployment=deployed.id)
    session.learn(totals(0.9), deployment=first.id)
    assert agent.bounds()["incumbent"] == oracle([0.9, *seen], ledger.trials.means, 0.05 * 5 / 12)
    assert session.deploy(rng).plan.policy.names == ("good", "incumbent")
    assert alone(rollout("good", slack=None, utility_max=None), rng, beta)[0] == "good"


# ---- coverage


@pytest.mark.parametrize("fault", rollouts.FAULTS)
def test_no_deployed_mixture_is_below_the_threshold_whatever_is_late_or_lost(fault):
    """1000 runs a fault are made by benchmarks/rollouts.py."""
    assert sum(rollouts.violates(fault, seed, num_deployments=120) for seed in range(25)) <= 2


@pytest.mark.parametrize("fault", ["failures late", "failures lost"])
def test_taken_in_as_they_come_late_or_lost_reports_violate(fault):
    """The control: the same candidate and the same reports, by an agent that counts no deployments."""
    assert sum(rollouts.violates(fault, seed, 120, counted=False) for seed in range(20)) >= 10


# ---- kept


def outcome(deployed):
    """By the id, so that any order of reports says the same."""
    utility, reward = np.random.default_rng(deployed.id).random(2)
    return totals(0.5 + 0.5 * utility, reward)


def lived(folder, num_parts, checkpoint=False):
    """A rollout with late, lost and abandoned reports, two candidates that come later, and closing in between."""
    rng, waiting, plans, names = np.random.default_rng(7), [], [], ["v2", "v3"]
    for part in range(num_parts):
        with es.open(folder, agent=rollout(*names)) as session:
            for k in range(40):
                if k == 20 and part < 2:
                    names.append(f"later-{part}")
                    (session if part else session.agent).add_candidate(names[-1], [names[-1]])
                deployed = session.deploy(rng)
                plans.append((deployed.plan.policy.names, deployed.plan.policy.weights.tolist(), deployed.component))
                waiting.append(deployed)
                if k % 9 == 0:
                    session.abandon(waiting.pop(0).id)
                while len(waiting) > 6:
                    late = waiting.pop(int(rng.integers(5)))
                    session.learn(outcome(late), deployment=late.id)
                if checkpoint and k == 31:
                    session._journal.checkpoint(session.parts)
            bounds, state = session.agent.bounds(), session.agent.state()
    return plans, bounds, state, names


def test_a_rollout_goes_on_as_if_it_had_never_been_closed(tmp_path):
    """Replayed from the log, and from a checkpoint that was made in the middle."""
    plans, bounds, _, names = lived(tmp_path / "log", 3)
    kept = lived(tmp_path / "checkpoint", 3, checkpoint=True)
    assert (plans, bounds) == kept[:2] and len(bounds) == 5
    for folder in ("log", "checkpoint"):
        agent = rollout(*reversed(names))  # a journal knows in which order they came
        with es.open(tmp_path / folder, agent=agent) as session:
            assert agent.bounds() == bounds and session.status().abandoned == 15
            require_same_arrays(kept[2], agent.state(), "the states differ")
        audit = es.audit(tmp_path / folder, agent=rollout(*names))
        assert audit.is_whole and audit.recomputed > 50


def test_a_candidate_that_is_not_handed_over_again_is_asked_for(tmp_path):
    names = lived(tmp_path, 1)[3]
    for checkpoint in (True, False):
        if not checkpoint:
            for path in tmp_path.glob("checkpoint*"):
                path.unlink()
        for ask in (lambda agent: es.open(tmp_path, agent=agent), lambda agent: es.audit(tmp_path, agent=agent)):
            with pytest.raises(ValueError, match=r"has the candidates \['later-0'\], which the agent"):
                ask(rollout("v2", "v3"))
    agent = rollout("v2", "v3")
    agent.add_candidate("later-0", "stands in for it")
    with es.open(tmp_path, agent=agent):
        assert list(agent.bounds()) == ["incumbent", *names]


def test_another_threshold_is_another_rollout(tmp_path):
    lived(tmp_path, 1)
    with pytest.raises(ValueError, match="begun with another agent"):
        es.open(tmp_path, agent=rollout("v2", "v3", "later-0", slack=0.3))


def test_an_agent_is_restored_bit_for_bit_and_only_to_one_with_the_same_names():
    agent, rng = rollout("good", "bad"), np.random.default_rng(0)
    session = in_memory(agent)
    live(session, rng, 60, beta, lost=range(0, 60, 7))
    state, again = agent.state(), rollout("bad", "good")
    again.restore(state)
    require_same_arrays(state, again.state(), "the states differ")
    assert again.plan().policy.names == agent.plan().policy.names and again.bounds() == agent.bounds()
    with pytest.raises(es.DamagedFile, match="has the candidate 'bad', which this agent was not given"):
        rollout("good").restore(state)
    for name, change in (("rows.deployed", 99), ("race.names", "x"), ("race.seen", np.nan)):
        damaged = {key: value.copy() for key, value in state.items()}
        damaged[name][...] = change
        with pytest.raises(es.DamagedFile):
            again.restore(damaged)
    assert again.bounds() == agent.bounds()


def test_a_halted_rollout_deploys_the_incumbent_and_takes_its_reports():
    agent, rng = rollout("good"), np.random.default_rng(0)
    session = in_memory(agent)
    session.halt("maintenance")
    deployed = session.deploy(rng)
    assert deployed.policy.policy == ["now"] and deployed.plan.id == -1
    session.learn(totals(0.5), deployment=deployed.id)
    session.resume_exploring("done")
    assert session.deploy(rng).plan.source == "search"


def test_monitors_watch_totals_where_they_have_a_largest_value():
    session, rng = es.open(None, agent=rollout("bad")), np.random.default_rng(0)
    live(session, rng, 400, lambda name, rng: 0.6 if name == "incumbent" else 0.3)
    assert "the incumbent is not as safe as stated" in session.status().stopped  # it was said to have 0.9
    assert es.open(None, agent=rollout("good", utility_max=None)).status().monitors == {}


# ---- candidates of an agent with a planner


def observing(task):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation())


def constant(task, action):
    table = np.zeros((task.horizon, task.num_states, task.num_actions))
    table[..., action] = 1.0
    return es.TablePolicy(table)


def test_only_some_certifiers_try_policies_of_others():
    task = es.make("streaming", 1).task
    for agent in (es.OPSE(task, es.Constants.tuned(task)), es.Fixed(task, "uniform")):
        with pytest.raises(TypeError, match="tries no policies of others"):
            agent.add_candidate("mine", constant(task, 0))
    with pytest.raises(TypeError, match="candidates are policies by their names"):
        es.Rollout(0.5, 0.2, ["v2"], "v1")
    with pytest.raises(TypeError, match="needs probabilities"):
        observing(task).add_candidate("mine", print)
    with pytest.raises(ValueError, match="must have shape"):
        observing(task).add_candidate("mine", es.TablePolicy(np.ones((1, 2, 1))))
    with pytest.raises(ValueError, match="same object as 'incumbent'"):
        observing(task).add_candidate("mine", task.safe_policy)


def test_a_candidate_beside_a_planner_has_a_row_of_its_own_and_acts_once_it_is_proved():
    cmdp = late_reports.problem(0.85)
    agent = observing(cmdp.task)
    agent.add_candidate("mine", constant(cmdp.task, 1))
    record = es.run(cmdp, agent, 1000)
    assert agent.certificate.ledger.names.index("mine") == 6  # behind those that proposals share
    assert 0.5 < agent.bounds()["mine"] <= 0.85 and (record.acting == "mine").mean() > 0.1
    assert (record.utility_values >= cmdp.task.threshold - 1e-9).all()


def test_compiled_and_plain_loops_try_a_candidate_alike():
    cmdp = es.make("streaming", 1)

    class Plain(es.OPSE):
        pass

    records = []
    for kind in (es.OPSE, Plain):
        agent = kind(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
        agent.add_candidate("mine", constant(cmdp.task, 1))
        records.append((es.run(cmdp, agent, 200), agent.bounds()))
    assert records[0][1] == records[1][1] and "mine" in records[0][0].acting
    np.testing.assert_array_equal(records[0][0].utility_values, records[1][0].utility_values)


def test_a_journal_keeps_candidates_beside_a_planner(tmp_path):
    cmdp, rng = es.make("streaming", 1), np.random.default_rng(0)
    task, mine = cmdp.task, constant(cmdp.task, 1)

    def play(session, num):
        for _ in range(num):
            deployed = session.deploy(rng)
            states, actions = [task.initial_state], []
            for h in range(task.horizon):
                actions.append(deployed.policy.act(h, states[-1], rng))
                states.append(int(rng.choice(task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
            session.learn(es.Episode(states, actions, component=deployed.component), deployment=deployed.id)

    with es.open(tmp_path, agent=observing(task)) as session:
        play(session, 30)
        session.add_candidate("mine", mine)
        play(session, 30)
        bounds = session.agent.bounds()
    assert bounds["mine"] > 0
    again = observing(task)
    again.add_candidate("mine", mine)
    with es.open(tmp_path, agent=again) as session:
        assert again.bounds() == bounds
    found = observing(task)
    found.add_candidate("mine", mine)
    assert es.audit(tmp_path, agent=found).is_whole


@pytest.mark.parametrize("m", [1, 2])
def test_a_number_that_no_float_holds_is_refused_and_breaks_nothing(m):
    """Of two limits the monitors, asked whether its range alone is wrong, failed at it, and the session broke."""
    agent = rollout("v2") if m == 1 else es.Rollout([0.5, 0.5], [0.3, 0.3], {"v2": "v2"}, "v1", utility_max=1.0)
    session, of = es.open(None, agent), (lambda total: total) if m == 1 else (lambda total: [total, 0.5])
    made = session.deploy(np.random.default_rng(0))
    for total in (es.Episode.of_totals(of(10**400)), es.Episode.of_totals(of(0.5), -(10**400))):
        with pytest.raises(InvalidEpisode, match="finite number"):
            session.learn(total, deployment=made.id)
    session.learn(es.Episode.of_totals(of(0.5)), deployment=made.id)
    assert not session.stopped


@pytest.mark.parametrize("m", [1, 2])
def test_a_total_above_the_most_halts(m):
    agent = es.Rollout(0.5, 0.3, {"v2": "v2"}, "v1", utility_max=1.0)
    agent = agent if m == 1 else es.Rollout([0.5, 0.5], [0.3, 0.3], {"v2": "v2"}, "v1", utility_max=1.0)
    session, rng = es.open(None, agent), np.random.default_rng(0)
    with pytest.raises(InvalidEpisode, match="at most 1"):
        session.learn(es.Episode.of_totals(7.0 if m == 1 else [0.5, 7.0]), deployment=session.deploy(rng).id)
    assert "outside [0, 1" in session.stopped


def test_utilities_may_all_be_negative():
    session = es.open(None, es.Rollout(-2, 0.5, {"v2": "v2"}, "v1", utility_max=-1.0, least_total=-3.0))
    for total in (-1.0, -3.0):
        session.learn(es.Episode.of_totals(total), deployment=session.deploy(np.random.default_rng(0)).id)
    assert not session.stopped


def test_a_name_that_a_checkpoint_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="needs a name"):
        rollout("v2\0")


def test_an_empty_name_is_no_name():
    """One report by it, and nothing could be deployed any more."""
    session, rng = es.open(None, es.Rollout(0.5, 0.2, {"v2": "v2"}, "v1", utility_max=1.0)), np.random.default_rng(0)
    for _ in range(2):
        deployed = session.deploy(rng, episode_id="")
        session.learn(es.Episode.of_totals(1.0), deployment=deployed.id, episode_id="")
    assert session.status().reported == 2 and not session.reported_ids
