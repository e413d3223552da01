"""The incumbent of a folder is the one that it was kept with, unless a person says that it was replaced, and why."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.deployment import session as session_module
from episafe.deployment.incumbent_identity import MOST, IncumbentIdentity
from episafe.problems.policy import TablePolicy
from episafe.problems.rollout_task import RolloutTask
from episafe.problems.rules import Rules, listed
from episafe.storage.json_values import from_text
from stored import by_tuples
from test_session import frames, played

CARRYING = np.array([1.0, 0.0])


def at_b(h, state):
    """Differs from the incumbent of `by_tuples` at some states, and not at the start."""
    return np.array([0.5, 0.5]) if state[1] == "b" else CARRYING


def everywhere(h, state):
    return np.array([0.4, 0.6])


def world(incumbent=None):
    cmdp = by_tuples()
    if incumbent is not None:
        cmdp.task = replace(cmdp.task, safe_policy=cmdp.task.as_policy(incumbent))
    return cmdp


def model(cmdp):
    return es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task).replace(C_r=0.05, C_u=0.01))


def observing(cmdp):
    return es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation(0.1))


def live(session, cmdp, count, seed=0):
    """Deploy and report; the last two are left out."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        made = session.deploy(rng)
        states, actions = [cmdp.task.initial_state], []
        for h in range(cmdp.task.horizon):
            actions.append(int(made.policy.act(h, states[-1], rng)))
            states.append(cmdp.sample(h, states[-1], actions[-1], rng))
        if k < count - 2:
            session.learn(es.Episode(states, actions), deployment=made.id)


def kept(folder, build=model, count=8, **given):
    with es.open(folder, agent=build(world()), **given) as session:
        live(session, world(), count)


@pytest.mark.parametrize("build", [model, observing])
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("swapped", [at_b, everywhere])
def test_a_swapped_incumbent_is_refused_until_a_person_says_so(tmp_path, monkeypatch, build, checkpointed, swapped):
    monkeypatch.setattr(session_module, "CHECKPOINT_EVERY", 0.0 if checkpointed else 1e9)
    kept(tmp_path, build)
    before = (tmp_path / "journal.log").read_bytes()
    with pytest.raises(ValueError, match=r"kept with another incumbent: (at step|its table)"):
        es.open(tmp_path, agent=build(world(swapped)))
    assert (tmp_path / "journal.log").read_bytes().startswith(before)
    (damage,) = es.audit(tmp_path, agent=build(world(swapped))).damage
    assert "not the one that was recorded: at step" in damage or "names another agent" in damage
    with es.open(tmp_path, agent=build(world(swapped)), new_incumbent="Ada: the old one wears the pump out") as session:
        assert session.status().reported == 6 and session.status().num_missing == 2
        live(session, world(swapped), 8, seed=1)
    with es.open(tmp_path, agent=build(world(swapped))) as session:
        live(session, world(swapped), 5, seed=2)
    for wrong in (world(), world(lambda h, state: np.array([0.7, 0.3]))):
        with pytest.raises(ValueError, match="another incumbent"):
            es.open(tmp_path, agent=build(wrong))
    with pytest.raises(ValueError, match="leave out new_incumbent, or a later change would pass unseen"):
        es.open(tmp_path, agent=build(world(swapped)), new_incumbent="Ada: once more")
    found = es.audit(tmp_path, agent=build(world(swapped)))
    assert found.damage == [] and found.replaced == ["Ada: the old one wears the pump out"]
    events = [json.loads(line) for line in found.lines if '"what":"incumbent"' in line]
    assert [event["reason"] for event in events] == found.replaced
    assert 0 < found.recomputed < found.num_plans == found.checked


def test_every_opening_after_that_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """With checkpoints or without, the next plan is the same."""
    plans = []
    for every in (0.0, 1e9):
        monkeypatch.setattr(session_module, "CHECKPOINT_EVERY", every)
        folder = tmp_path / str(every)
        kept(folder, observing, 30)
        with es.open(folder, agent=observing(world(at_b)), new_incumbent="Ada") as session:
            live(session, world(at_b), 30, seed=1)
        with es.open(folder, agent=observing(world(at_b))) as session:
            plan = session.plan()
            plans.append((plan.id, plan.source, plan.lam, plan.utility_bound, plan.deployment))
    assert plans[0] == plans[1] and plans[0][-1] == 60


def test_numbers_go_on_and_old_plans_count_for_nothing(tmp_path):
    kept(tmp_path, observing, 6)
    with es.open(tmp_path, agent=observing(world(at_b)), new_incumbent="Ada") as session:
        old = max(frame.notes["plan"] for frame in frames(tmp_path) if frame.kind == 2)
        late, rng = min(session.book.waiting), np.random.default_rng(3)
        made = session.deploy(rng)
        assert made.plan.id == old + 1 and made.id == 6
        session.learn(es.Episode([(0.0, "a")] * 4, [0] * 3), deployment=late)
        assert session.agent.certificate.num_episodes == 0 and session.agent.num_learned == 5


def test_a_halt_outlives_the_incumbent(tmp_path):
    with es.open(tmp_path, agent=model(world())) as session:
        live(session, world(), 5)
        session.halt("the pump is broken")
    with es.open(tmp_path, agent=model(world(at_b)), new_incumbent="Ada") as session:
        assert session.plan().reason == "halted: the pump is broken"


def test_a_crash_while_it_is_replaced_leaves_a_folder_that_opens(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "CHECKPOINT_EVERY", 0.0)
    kept(tmp_path, observing)
    with monkeypatch.context() as patched:
        patched.setattr("episafe.deployment.session_start._replace_incumbent", interrupt)
        with pytest.raises(KeyboardInterrupt):
            es.open(tmp_path, agent=observing(world(at_b)), new_incumbent="Ada")
    es.open(tmp_path, agent=observing(world())).close()
    es.open(tmp_path, agent=observing(world(at_b)), new_incumbent="Ada").close()
    es.open(tmp_path, agent=observing(world(at_b))).close()


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_checkpoint_from_before_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "CHECKPOINT_EVERY", 0.0)
    kept(tmp_path)
    old = {path: path.read_bytes() for path in tmp_path.glob("checkpoint-*.npz")}
    assert old
    es.open(tmp_path, agent=model(world(at_b)), new_incumbent="Ada").close()
    for path, data in old.items():
        path.write_bytes(data)
    with pytest.raises(es.DamagedFile, match="checkpoints are older than the incumbent: delete them"):
        es.open(tmp_path, agent=model(world(at_b)))


def with_table(cmdp, table):
    return es.OPSE(replace(cmdp.task, safe_policy=TablePolicy(table)), es.Constants.tuned(cmdp.task))


def test_of_a_listed_task_the_table_is_the_identity(tmp_path):
    cmdp, rng = es.make("streaming", seed=3), np.random.default_rng(0)
    table = cmdp.task.safe_policy.table()
    other = table.copy()
    other[-1, -1] = other[-1, -1][::-1]
    with es.open(tmp_path, agent=with_table(cmdp, table)) as session:
        for _ in range(4):
            made = session.deploy(rng)
            session.learn(played(made, rng, cmdp), deployment=made.id)
    assert not any("incumbent" in frame.notes for frame in frames(tmp_path))
    with pytest.raises(ValueError, match="another incumbent: its table, or what it does at the start"):
        es.open(tmp_path, agent=with_table(cmdp, other))
    es.open(tmp_path, agent=with_table(cmdp, other), new_incumbent="Ada").close()
    es.open(tmp_path, agent=with_table(cmdp, other)).close()
    assert es.audit(tmp_path, agent=with_table(cmdp, other)).damage == []
    found = es.audit(tmp_path)  # which can build it with its first incumbent only
    assert found.damage == [] and found.recomputed is None and found.replaced == ["Ada"]
    with pytest.raises(ValueError, match="another agent or task"):
        es.open(tmp_path, agent=es.OPSE(replace(cmdp.task, horizon=4), es.Constants.paper("streaming")))


def test_bandits_have_an_incumbent_too(tmp_path):
    task = es.bandits.make("finite", seed=0).task
    other = replace(task, safe_policy=np.roll(task.safe_policy, 1))
    es.open(tmp_path, agent=es.bandits.OPLBSP(task, 1000)).close()
    with pytest.raises(ValueError, match="another incumbent"):
        es.open(tmp_path, agent=es.bandits.OPLBSP(other, 1000))
    es.open(tmp_path, agent=es.bandits.OPLBSP(other, 1000), new_incumbent="Ada").close()
    es.open(tmp_path, agent=es.bandits.OPLBSP(other, 1000)).close()


def test_a_version_stands_for_the_incumbent_and_nothing_else_is_asked(tmp_path):
    kept(tmp_path, incumbent_version="2.1")
    assert not any("incumbent" in frame.notes for frame in frames(tmp_path) if frame.kind == 4)
    es.open(tmp_path, agent=model(world(at_b)), incumbent_version="2.1").close()
    for version in ("2.2", ""):
        with pytest.raises(ValueError, match=f"its version is '{version}', and was '2.1'"):
            es.open(tmp_path, agent=model(world()), incumbent_version=version)
    es.open(tmp_path, agent=model(world(at_b)), incumbent_version="2.2", new_incumbent="Ada").close()
    es.open(tmp_path, agent=model(world(at_b)), incumbent_version="2.2").close()
    assert es.audit(tmp_path, agent=model(world(at_b))).damage == []


def test_probabilities_that_differ_by_rounding_are_the_same(tmp_path):
    kept(tmp_path)
    noise = lambda h, state: np.array([1 - 1e-8, 1e-8]) if h else CARRYING  # noqa: E731
    es.open(tmp_path, agent=model(world(noise))).close()


def test_an_incumbent_that_cannot_say_loses_no_report(tmp_path):
    def broken(h, state):
        if state[1] == "b":
            raise ZeroDivisionError
        return CARRYING

    with es.open(tmp_path, agent=model(world(broken))) as session:
        session.learn(es.Episode([(0.0, "a"), (0.1, "b"), (0.5, "a"), (0.5, "a")], [0, 0, 0]))
    said = [frame.notes["incumbent"] for frame in frames(tmp_path) if frame.kind == 4]
    assert said == [[1.0, None, 1.0]]
    es.open(tmp_path, agent=model(world())).close()


def test_what_is_asked_for_again_is_bounded_and_of_all_times(tmp_path):
    asked = []

    def counting(h, state):
        asked.append(state)
        return CARRYING

    task = world(counting).task
    known = IncumbentIdentity(task, {"fingerprint": "a"})
    for k in range(5000):
        known.noted((es.Episode([(float(k), "a")] * 4, [0, 1, 0]),))
    restored = IncumbentIdentity(task, {"fingerprint": "a"})
    restored.restore(known.state())
    asked.clear()
    assert restored.differing("a", "") == "" and MOST // 3 < len(asked) <= MOST
    times = np.array([state[0] for state in asked])
    assert np.histogram(times, 5, (0, 5000))[0].min() > 5
    steps = {from_text(place)[0] for _, place, _ in known._sample}
    assert steps == {0, 1, 2}


def test_a_simulated_run_is_not_resumed_with_another_incumbent(tmp_path):
    ours, theirs = world(), world(at_b)
    es.run(ours, model(ours), 20, folder=tmp_path)
    with pytest.raises(ValueError, match="another incumbent: at step"):
        es.resume(tmp_path, 30, cmdp=theirs, agent=model(theirs))
    assert "not the one that was recorded" in es.audit(tmp_path, agent=model(theirs)).damage[0]
    es.resume(tmp_path, 30, cmdp=ours, agent=model(ours))


@pytest.mark.parametrize("given", [" ", 7])
def test_a_reason_is_words(tmp_path, given):
    with pytest.raises(ValueError, match="give a reason in words"):
        es.open(tmp_path, agent=model(world()), new_incumbent=given)


@dataclass(frozen=True)
class Coins(Rules):
    """Action 0 is always of use, action 1 if chance brings a 1; the other incumbent tries that now and then."""

    horizon: int = 2
    num_actions: int = 2
    shape: tuple[int, ...] = (1,)
    start: tuple[int, ...] = (0,)
    tries: float = 0.0

    def move(self, h, state, action, luck):
        return (0,), 0.2 + 0.8 * action, float(action == 0 or luck[0])

    def incumbent(self, h, state):
        return np.array([1 - self.tries, self.tries])

    def chances(self, h, state):
        return [((0, 1), (0.5, 0.5))]


def test_reports_under_the_old_incumbent_are_no_log_of_the_new_one(tmp_path):
    """Which of them came may depend on what they say: as a log they would prove the policy that fails in half of all
    steps. Logs from before the first plan are logs still."""
    was, now = (listed(Coins(tries=tries), threshold=1.6, slack=0.3) for tries in (0.0, 0.02))
    rng, hindsight = np.random.default_rng(0), es.certify.Hindsight(0.05)
    for num_logged in (0, 12):
        folder = tmp_path / str(num_logged)
        with es.open(folder, es.OPSE(was.task, certifier=hindsight)) as session:
            for _ in range(num_logged):
                session.learn(was.task.replay(was.task.safe_policy, was.draw_trace(rng), rng))
            for k in range(60):
                deployed, trace = session.deploy(rng), (None, ((1,), (1,)))
                if k % 4 == 0:  # both coins fell so, and of the others nobody is told
                    session.learn(was.task.replay(deployed.policy, trace, rng), deployment=deployed.id)
            session.learn(was.task.replay(was.task.safe_policy, trace, rng))  # no log: there were plans before it
        with es.open(folder, es.OPSE(now.task, certifier=hindsight), new_incumbent="Ada") as session:
            assert session.agent.certificate.num_logged == num_logged
            assert now.evaluate(session.deploy(rng).plan.policy)[1] >= 1.6
        assert es.audit(folder, agent=es.OPSE(now.task, certifier=hindsight)).is_whole


def test_candidates_are_on_trial_beside_the_new_incumbent_too(tmp_path):
    rng, v1, v2 = np.random.default_rng(0), {"incumbent_version": "1"}, {"incumbent_version": "2"}

    def rollout():
        return es.Rollout(0.5, 0.2, {"a": "a", "b": "b"}, "now", utility_max=1.0)

    with es.open(tmp_path, rollout(), **v1) as session:
        session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)
    with es.open(tmp_path, rollout(), **v2, new_incumbent="Ada") as session:
        assert list(session.agent.bounds()) == ["incumbent", "a", "b"] and session.deploy(rng).plan.source == "search"
    with es.open(tmp_path, rollout(), **v2) as session:
        assert list(session.agent.bounds()) == ["incumbent", "a", "b"]
    assert es.audit(tmp_path, agent=rollout()).is_whole


def test_a_withdrawn_candidate_stays_withdrawn_beside_the_new_incumbent(tmp_path):
    """By opening with a new incumbent all were put on trial anew, and a person's decision was undone without a word."""
    rng, v1, v2 = np.random.default_rng(0), {"incumbent_version": "1"}, {"incumbent_version": "2"}

    def rollout():
        return es.Rollout(0.5, 0.2, {"a": "a", "b": "b"}, "now", utility_max=1.0)

    with es.open(tmp_path, rollout(), **v1) as session:
        session.withdraw("a", "recalled")
    for given in ({"new_incumbent": "Ada"}, {}, {}):
        with es.open(tmp_path, rollout(), **v2, **given) as session:
            assert list(session.agent.bounds()) == ["incumbent", "b"]
            session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)
    with es.open(tmp_path, rollout(), **v2) as session:
        session.add_candidate("a", "a")  # a person may try it again
        assert list(session.agent.bounds()) == ["incumbent", "b", "a"]
    with es.open(tmp_path, rollout(), **v2) as session:
        assert list(session.agent.bounds()) == ["incumbent", "b", "a"]
    assert es.audit(tmp_path, agent=rollout()).is_whole


def test_a_model_of_level_theorem_learns_no_more_of_the_old_incumbent_than_it_did(tmp_path):
    """Not those after the oldest deployment without a report: which come may depend on what they say."""
    rng, arms = np.random.default_rng(0), [[1.0, 0.0], [0.0, 1.0]]

    def agent(safe):
        task = es.bandits.LinearBandit([0.9, 0.2], [0.1, 0.8], arms, 0.35, safe_policy=safe, noise=0.2, slack=0.3).task
        return es.bandits.OPLBSP(task, radius="determinant")

    with es.open(tmp_path, agent([0, 1])) as session:
        for k in range(6):
            deployed = session.deploy(rng)
            if k != 3:
                session.learn([0.0, 1.0], 0.2, 0.8, deployment=deployed.id)
        assert session.agent.num_learned == 3
    with es.open(tmp_path, agent([0.1, 0.9]), new_incumbent="Ada") as session:
        assert session.agent.num_learned == 3
        session.learn([0.0, 1.0], 0.2, 0.8, deployment=3)
        assert session.agent.num_learned == 6


def test_a_refused_replacement_deletes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "CHECKPOINT_EVERY", 0.0)
    kept(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert "checkpoint-0.npz" in before
    with pytest.raises(ValueError, match="leave out new_incumbent"):
        es.open(tmp_path, agent=model(world()), new_incumbent="by mistake")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("safe", [None, everywhere], ids=["the same", "another"])
def test_a_log_that_was_cut_short_is_not_replaced_into_a_whole_one(tmp_path, monkeypatch, safe):
    """Only a checkpoint knows what is missing behind the last line of the trail."""
    session, rng = es.open(tmp_path, agent=model(world())), np.random.default_rng(0)
    made = [session.deploy(rng) for _ in range(3)]
    session._journal.checkpoint(session.parts)
    session._journal.release()
    log = tmp_path / "journal.log"
    cut = next(frame.offset for frame in frames(tmp_path) if frame.kind == 3 and frame.notes["id"] == made[1].id)
    log.write_bytes(log.read_bytes()[:cut])
    for given in ({}, {"new_incumbent": "Ada"}, {"new_incumbent": "Ada"}, {}):
        with pytest.raises(es.DamagedFile, match="cut short"):
            es.open(tmp_path, agent=model(world(safe if given else None)), **given)
    assert es.repair(tmp_path).deployments >= 2


def test_what_the_new_incumbent_does_is_not_recorded_as_what_was_promoted_before_it(tmp_path):
    """Halted before and after, for the same reason: the plan must be written down anew all the same."""

    def rollout(safe):
        return es.Rollout(0.5, 0.4, {"v2": ["v2"]}, [safe], utility_max=1.0)

    session, rng = es.open(tmp_path, agent=rollout("now")), np.random.default_rng(31)
    while not session.agent.certificate.ledger.certified[1]:
        session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)
    session.promote("v2", "May")
    session.halt("night")
    waiting = session.deploy(rng)
    assert waiting.acting == "v2"
    session.close()
    for given in ({"new_incumbent": "Ada"}, {}):
        with es.open(tmp_path, agent=rollout("other"), incumbent_version="2", **given) as session:
            assert session.acting(waiting.id) is None
            assert session.deploy(rng).acting == "incumbent"
    plan = [frame for frame in frames(tmp_path) if frame.kind == 2][-1]
    assert plan.notes["source"] == "safe" and es.audit(tmp_path, agent=rollout("other")).is_whole


def rollout(incumbent="v1", candidates=("v2",)):
    return es.Rollout(0.5, None, {name: name for name in candidates}, incumbent, utility_max=1.0)


def lived(session, num_episodes=3):
    rng = np.random.default_rng(0)
    for _ in range(num_episodes):
        session.learn(es.Episode.of_totals(0.9, 1.0), deployment=session.deploy(rng).id)


def test_a_rollouts_incumbent_of_another_name_is_another_one(tmp_path):
    """What the first had proved paid for trials beside the second: 6 of 6 lives below b."""
    with es.open(tmp_path, agent=rollout()) as session:
        lived(session)
    with pytest.raises(ValueError, match="the name that stands for it is another"):
        es.open(tmp_path, agent=rollout("v5"))
    with pytest.raises(ValueError, match="leave out new_incumbent"):
        es.open(tmp_path, agent=rollout(), new_incumbent="nobody")
    with es.open(tmp_path, agent=rollout("v5"), new_incumbent="the release of May") as session:
        lived(session)
    with pytest.raises(ValueError, match="the name that stands for it is another"):
        es.open(tmp_path, agent=rollout("v1"))
    es.open(tmp_path, agent=rollout("v5")).close()
    assert es.audit(tmp_path, agent=rollout("v5")).is_whole and "v5" not in (tmp_path / "journal.toml").read_text()


def test_a_candidate_that_was_promoted_becomes_the_incumbent_and_need_not_be_given_any_more(tmp_path):
    with es.open(tmp_path, agent=rollout()) as session:
        lived(session, 150)
        session.promote("v2", "it is the better one")
    new = lambda: rollout("v2", ("v3",))  # noqa: E731
    with es.open(tmp_path, agent=new(), new_incumbent="v1 is switched off") as session:
        lived(session)
        assert set(session.agent.bounds()) == {"incumbent", "v3"}
    with es.open(tmp_path, agent=new()) as session:
        lived(session)
    assert es.audit(tmp_path, agent=new()).is_whole
    with pytest.raises(ValueError, match=r"has the candidates \['v3'\]"):
        es.open(tmp_path, agent=rollout("v2", ()))


@pytest.mark.parametrize("kind", [str, Path, lambda name: ("models", name), str.encode, lambda name: {"at": name}])
def test_a_rollouts_incumbent_is_known_by_plain_values_of_any_kind(tmp_path, kind):
    with es.open(tmp_path, agent=rollout(kind("v1"))) as session:
        lived(session)
    with pytest.raises(ValueError, match="the name that stands for it is another"):
        es.open(tmp_path, agent=rollout(kind("v5")))
    es.open(tmp_path, agent=rollout(kind("v1"))).close()


def test_where_nobody_knows_the_old_incumbent_the_word_of_a_person_is_taken(tmp_path):
    """Who said it was told to leave it out, and what the first had proved paid for trials beside the second."""
    with es.open(tmp_path, agent=rollout(lambda: 1)) as session:
        lived(session)
    with es.open(tmp_path, agent=rollout(lambda: 2), new_incumbent="the release of May") as session:
        assert session.incumbent.replaced == ["the release of May"]


def test_a_folder_of_before_notes_the_name_when_it_is_opened(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(RolloutTask, "incumbent_name", "")
        with es.open(tmp_path, agent=rollout()) as session:
            lived(session)
    es.open(tmp_path, agent=rollout()).close()
    with pytest.raises(ValueError, match="the name that stands for it is another"):
        es.open(tmp_path, agent=rollout("v5"))
    assert es.audit(tmp_path, agent=rollout()).is_whole
