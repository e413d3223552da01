"""Journals: nothing reported is lost, and a run that was stopped ends as one that was not."""

import json
import os
import shutil
import threading
import zlib
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
import gym_problems
from episafe.deployment import session
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal import Journal
from episafe.deployment.journal_folder import beginning, read_head
from episafe.errors import DamagedFile
from episafe.experiments.agent_choice import build_agent
from episafe.problems.states import ENDED
from episafe.registry import AGENTS
from episafe.reports import audit_page
from episafe.runs import kept_run
from episafe.storage.frames import Reader, read
from episafe.storage.journal_files import CHECK, HEADER, MAGIC, MARKER, Log, encode, link
from episafe.storage.json_values import as_text, from_text
from episafe.types import HELD

CHAIN = es.make("streaming", seed=3)


def same_record(one, other):
    assert one.columns() == other.columns()
    for name in one.columns():
        a, b = getattr(one, name), getattr(other, name)
        np.testing.assert_array_equal(a, b, err_msg=name)


def episode(plan, rng, cmdp=CHAIN):
    mixed = isinstance(plan.policy, es.MixturePolicy)
    component, policy = plan.policy.draw(rng) if mixed else (None, plan.policy)
    states, actions = [cmdp.task.initial_state], []
    for h in range(cmdp.task.horizon):
        actions.append(policy.act(h, states[-1], rng))
        states.append(int(rng.choice(cmdp.P.shape[-1], p=cmdp.P[h, states[-1], actions[-1]])))
    return es.Episode(states, actions, component=component)


def tuned():
    return es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task))


def observing():
    return es.OPSE(CHAIN.task, es.Constants.proposing(), certifier=es.certify.Observation())


def frames_of(folder):
    return list(read(folder / "journal.log", read_head(folder)["genesis"]))


def write_frames(folder, frames):
    """A log with these frames, numbered and chained anew."""
    parts, last = [MAGIC], bytes.fromhex(read_head(folder)["genesis"])
    for number, frame in enumerate(frames):
        data, last = encode(number, frame.kind, last, frame.notes, frame.arrays)
        parts.append(data)
    (folder / "journal.log").write_bytes(b"".join(parts))


def without_checkpoints(folder):
    for path in folder.glob("checkpoint*"):
        path.unlink()


@pytest.mark.parametrize(
    ("name", "env"),
    [(name, env) for name in AGENTS for env in ("tabular", "streaming", "linear") if name != "opse-hindsight"]
    + [("opse-hindsight", "inventory")],
)
def test_a_run_made_longer_is_the_longer_run_bit_for_bit(tmp_path, env, name):
    cmdp = es.make(env, seed=1)
    first, whole = (520, 700) if name == "opse-fresh-data" else (60, 150)
    expected = es.run(cmdp, build_agent(name, cmdp), whole, seed=4)
    es.run(cmdp, build_agent(name, cmdp), first, seed=4, folder=tmp_path)
    same_record(es.resume(tmp_path, whole), expected)
    same_record(es.Record.load(tmp_path), expected)
    assert es.audit(tmp_path).damage == []


@pytest.mark.parametrize("certifier", [es.certify.Model(), es.certify.Observation()])
def test_many_batches_and_checkpoints_change_nothing(tmp_path, monkeypatch, certifier):
    monkeypatch.setattr(kept_run, "SYNC_EVERY", 0.0)
    monkeypatch.setattr(kept_run, "CHECKPOINT_EVERY", 0.0)
    constants = es.Constants.proposing() if certifier.name == "observation" else es.Constants.tuned(CHAIN.task)
    build = lambda: es.OPSE(CHAIN.task, constants, certifier=certifier)  # noqa: E731
    es.run(CHAIN, build(), 13_000, seed=2, folder=tmp_path)
    assert (tmp_path / "checkpoint-0.npz").exists()
    same_record(es.resume(tmp_path, 26_000), es.run(CHAIN, build(), 26_000, seed=2))
    audit = es.audit(tmp_path)
    assert audit.damage == [] and audit.recomputed == audit.num_plans and audit.episodes == 26_000


def test_an_interrupted_run_goes_on(tmp_path):
    def stop(done):
        if done > 2000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        es.run(CHAIN, tuned(), 30_000, seed=5, folder=tmp_path, on_progress=stop)
    assert not (tmp_path / "run.toml").exists()
    same_record(es.resume(tmp_path), es.run(CHAIN, tuned(), 30_000, seed=5))


def test_problems_by_functions_and_environments_are_resumed_with_what_is_handed_over(tmp_path):
    def world():
        return es.SampledCMDP(
            lambda s: np.eye(2) * 0.5, lambda h, s: [0.2, 0.9], lambda h, s: [0.9, 0.1 + 0.1 * (s > 0)],
            lambda h, s, a, rng: float(rng.normal()), 2, 2, 0.0, 0.9, lambda h, s: [1.0, 0.0], 0.5,
        )  # fmt: skip

    def agent(cmdp):
        return es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())

    cmdp = world()
    expected = es.run(cmdp, agent(cmdp), 50, seed=1)
    es.run(cmdp, agent(cmdp), 20, seed=1, folder=tmp_path / "functions")
    with pytest.raises(ValueError, match="cmdp="):
        es.resume(tmp_path / "functions", 50)
    same_record(es.resume(tmp_path / "functions", 50, cmdp=cmdp, agent=agent(cmdp)), expected)
    assert es.audit(tmp_path / "functions").recomputed is None
    assert es.audit(tmp_path / "functions", agent=agent(cmdp)).recomputed == 50


def test_a_live_environment_is_brought_back_by_its_actions(tmp_path):
    def made():
        env = gym_problems.WithCost(gym.make("FrozenLake-v1", max_episode_steps=5), lambda s, a, t: 0.1)
        incumbent = lambda h, s: np.eye(4)[0]  # noqa: E731
        problem = es.from_gymnasium(
            env, features=es.features.OneHot(), horizon=5, cost_limit=2.0, safe_policy=incumbent, slack=1.0
        )
        return problem, es.OPSE(problem.task, es.Constants.tuned(problem.task))

    problem, agent = made()
    expected = es.run(problem, agent, 30, seed=1)
    problem, agent = made()
    es.run(problem, agent, 12, seed=1, folder=tmp_path)
    problem, agent = made()
    same_record(es.resume(tmp_path, 30, cmdp=problem, agent=agent), expected)


def test_an_audit_that_cannot_build_the_agent_counts_the_reports_all_the_same(tmp_path):
    env = gym_problems.WithCost(gym.make("FrozenLake-v1", max_episode_steps=5), lambda s, a, t: 0.1)
    problem = es.from_gymnasium(
        env, features=es.features.OneHot(), horizon=5, cost_limit=2.0, slack=1.0, safe_policy=lambda h, s: np.eye(4)[0]
    )
    build = lambda: es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())  # noqa: E731
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=build()) as live:
        for k in range(6):
            plan = live.plan()
            component, policy = (
                plan.policy.draw(rng) if isinstance(plan.policy, es.MixturePolicy) else (None, plan.policy)
            )
            if k != 4:
                seen = replace(es.play(problem, policy, rng), component=component)
                live.learn(seen, deployment=plan.deployment)
    alone, whole = es.audit(tmp_path), es.audit(tmp_path, agent=build())
    assert alone.recomputed is None and whole.recomputed == whole.num_plans
    for audit in (alone, whole):
        assert audit.episodes == 5 and sum(audit.missing.values()) == 1 and audit.oldest_missing
    page = audit_page.as_text(alone.as_dict(), alone.lines)
    assert "5 episodes were reported" in page and "no certificate was recomputed here" in page
    assert "in a mixture with weights" in audit_page.as_text(whole.as_dict(), whole.lines)


@pytest.mark.parametrize("build", ["opse", "fixed"])
def test_a_vector_environment_is_brought_back_batch_by_batch(tmp_path, build):
    def made():
        one = lambda: gym_problems.WithCost(gym.make("FrozenLake-v1", max_episode_steps=5), lambda s, a, t: 0.1)  # noqa: E731
        problem = es.from_gymnasium(
            gym.vector.SyncVectorEnv([one] * 3), features=es.features.OneHot(), horizon=5, cost_limit=2.0,
            safe_policy=lambda h, s: np.eye(4)[0], slack=1.0,
        )  # fmt: skip
        task = problem.task
        agent = es.OPSE(task, es.Constants.tuned(task)) if build == "opse" else es.Fixed(task, "uniform")
        return problem, agent

    expected = es.run(*made(), 31, seed=1)
    es.run(*made(), 12, seed=1, folder=tmp_path)
    problem, agent = made()
    same_record(es.resume(tmp_path, 31, cmdp=problem, agent=agent), expected)
    assert es.audit(tmp_path, agent=made()[1]).is_whole
    problem, agent = made()
    with pytest.raises(ValueError, match="cannot be made longer"):
        es.resume(tmp_path, 40, cmdp=problem, agent=agent)


@pytest.mark.parametrize("build", [tuned, observing])
def test_late_parallel_and_missing_reports_survive_closing(tmp_path, build):
    """What comes back is a twin that was never closed: the same plans to the end."""
    rng, waiting, twin, order = np.random.default_rng(0), [], es.open(None, agent=build()), []
    for lap in range(3):
        with es.open(tmp_path, agent=build(), sync="plans") as live:
            for i in range(25):
                plan = live.plan()
                mine = twin.plan()
                assert repr((plan.id, plan.source, plan.lam, plan.utility_bound)) == repr(
                    (mine.id, mine.source, mine.lam, mine.utility_bound)
                )
                waiting.append((episode(plan, rng), plan.deployment, f"{lap}-{i}"))
                if i % 4 == 3:
                    order = list(rng.permutation(len(waiting)))
                    for j in order[:-2]:
                        late, deployment, name = waiting[j]
                        live.learn(late, deployment=deployment, episode_id=name)
                        twin.learn(late, deployment=deployment)
                    waiting = [waiting[j] for j in order[-2:]]
            status = live.status()
            assert status.started == 25 * (lap + 1)
            assert status.reported + status.num_missing == status.started
            with pytest.raises(es.InvalidEpisode, match="reported before"):
                live.learn(late, deployment=deployment, episode_id=name)
    audit = es.audit(tmp_path)
    assert audit.damage == [] and audit.recomputed == audit.num_plans > 0
    assert audit.missing == status.missing


def test_bandits_have_the_same_journal(tmp_path):
    bandit = es.bandits.make("finite", seed=0)
    build = lambda: es.bandits.OPLBSP(bandit.task, radius="determinant")  # noqa: E731
    twin, rng = build(), np.random.default_rng(0)
    for _ in range(2):
        with es.open(tmp_path, agent=build()) as live:
            for _ in range(8):
                plan = live.plan()
                np.testing.assert_array_equal(plan.probabilities, twin.plan().probabilities)
                action = plan.draw(rng)
                seen = float(action @ bandit.theta_r), float(action @ bandit.theta_u)
                live.learn(action, *seen, plan_id=plan.id)
                twin.learn(action, *seen)
    assert es.audit(tmp_path, agent=build()).recomputed == 16


def test_the_monitors_of_bandits_halt_too(tmp_path):
    bandit = es.bandits.make("finite", seed=0)
    build = lambda: es.bandits.OPLBSP(bandit.task, radius="determinant")  # noqa: E731
    with es.open(tmp_path, agent=build()) as live:
        for _ in range(400):
            plan = live.plan()
            action = plan.atoms[0]
            live.learn([action] * 5, [0.0] * 5, [-0.9] * 5, deployment=plan.deployment)
        assert plan.source == "safe" and plan.reason.startswith("halted: ") and plan.id == HELD
    with es.open(tmp_path, agent=build()) as live:
        assert live.plan().reason == plan.reason


def test_a_bandit_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_run, "SYNC_EVERY", 0.0)
    monkeypatch.setattr(kept_run, "CHECKPOINT_EVERY", 0.0)
    for env in ("finite", "contexts", "ball"):
        bandit = es.bandits.make(env, seed=0)
        build = lambda b=bandit: es.bandits.OPLBSP(b.task, radius="determinant", replan=es.Doubling(0.3))  # noqa: E731

        def stop(done):
            assert done < 9000
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            es.bandits.run(bandit, build(), 9000, seed=1, folder=tmp_path / env, on_progress=stop)
        found = es.bandits.run(bandit, build(), 9000, seed=1, folder=tmp_path / env)
        expected = es.bandits.run(bandit, build(), 9000, seed=1)
        same_record(found, expected)
        assert found.settings["reasons"] == expected.settings["reasons"]


def test_a_bandit_run_goes_on_with_the_luck_it_had_after_a_run_that_was_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_run, "SYNC_EVERY", 0.0)
    bandit = es.bandits.make("finite", seed=0)
    build = lambda: es.bandits.OPLBSP(bandit.task, radius="determinant", replan=es.Doubling(0.3))  # noqa: E731

    def no_space(*_):
        raise OSError("no space left on device")

    def after_a_refusal():
        agent = build()
        with monkeypatch.context() as full, pytest.raises(OSError, match="no space"):
            full.setattr(kept_run, "begin_journal", no_space)
            es.bandits.run(bandit, agent, 9000, seed=1, folder=tmp_path / "full")
        return agent

    def stop(done):
        assert done < 9000
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        es.bandits.run(bandit, after_a_refusal(), 9000, seed=1, folder=tmp_path / "run", on_progress=stop)
    found = es.resume(tmp_path / "run", cmdp=bandit, agent=build())
    same_record(found, es.bandits.run(bandit, after_a_refusal(), 9000, seed=1))


def test_threads_may_report_at_once(tmp_path):
    with es.open(tmp_path, agent=tuned(), sync="plans") as live:

        def work(seed):
            rng = np.random.default_rng(seed)
            for i in range(10):
                plan = live.plan()
                live.learn(episode(plan, rng), plan_id=plan.id, episode_id=f"{seed}-{i}")

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert live.status().reported == 40 and live.status().num_missing == 0
    assert es.audit(tmp_path).is_whole


def report_losses(live, num_episodes, rng):
    """Episodes without any utility, until the monitors have had enough."""
    for _ in range(num_episodes):
        plan = live.plan()
        seen = episode(plan, rng)
        live.learn(replace(seen, utilities=np.zeros(len(seen.actions))), plan_id=plan.id)
        if plan.id == HELD:
            return plan
    raise AssertionError("no alarm")


def test_an_alarm_stops_exploration_until_a_person_lets_it_go_on(tmp_path):
    rng = np.random.default_rng(1)
    with es.open(tmp_path, agent=tuned()) as live:
        plan = report_losses(live, 200, rng)
        assert plan.source == "safe" and plan.reason.startswith("halted: ")
        seen = live.status()
        assert seen.monitors["alarms"] and any("incumbent" in fault for fault in seen.faults)
    with es.open(tmp_path, agent=tuned()) as live:
        again = live.plan()
        assert again.reason == plan.reason and again.source == "safe"
        with pytest.raises(ValueError, match="reason in words"):
            live.resume_exploring("")
        live.resume_exploring("the sensor was mended")
        assert live.plan().id >= 0
        with pytest.raises(ValueError, match="the agent explores"):
            live.resume_exploring("once more")
    with es.open(tmp_path, agent=tuned()) as live:
        assert live.plan().id >= 0
    assert es.audit(tmp_path).damage == []


def test_a_crash_between_an_alarm_and_its_halt_halts_when_opened_again(tmp_path):
    rng = np.random.default_rng(1)
    with es.open(tmp_path, agent=tuned()) as live:
        report_losses(live, 200, rng)
    log, trail = tmp_path / "journal.log", tmp_path / "audit.jsonl"
    halt = next(frame for frame in frames_of(tmp_path) if frame.kind == Kind.FAULT)
    log.write_bytes(log.read_bytes()[: halt.offset])
    without_checkpoints(tmp_path)
    lines = trail.read_text().splitlines(keepends=True)
    trail.write_text("".join(lines[: next(n for n, line in enumerate(lines) if '"event":"fault"' in line)]))
    with es.open(tmp_path, agent=tuned()) as live:
        assert live.plan().reason.startswith("halted: ")
    with es.open(tmp_path, agent=tuned(), false_alarm=0) as live:
        assert live.plan().reason.startswith("halted: ") and live.status().monitors == {}


def test_monitors_go_on_from_a_checkpoint_as_if_never_stopped(tmp_path):
    figures = []
    for pieces in ((60,), (20, 25, 15)):
        rng, folder = np.random.default_rng(3), tmp_path / str(len(pieces))
        for length in pieces:
            with es.open(folder, agent=tuned()) as live:
                for _ in range(length):
                    plan = live.plan()
                    live.learn(episode(plan, rng), plan_id=plan.id)
                live._journal.checkpoint(live.parts)
                figures.append(live.status().monitors)
    assert figures[0] == figures[-1] and figures[0]["episodes"] == 60


def test_an_error_while_planning_deploys_the_incumbent_and_is_recorded(tmp_path, monkeypatch):
    agent = es.Ghosh2024(CHAIN.task, es.Constants.paper("streaming", "ghosh"))
    with es.open(tmp_path, agent=agent) as live:
        monkeypatch.setattr(agent, "_propose", lambda: 1 / 0)
        plan = live.plan()
        assert plan.source == "safe" and "ZeroDivisionError" in plan.reason
        assert any("ZeroDivisionError" in fault for fault in live.status().faults)
    assert any("ZeroDivisionError" in fault for fault in es.audit(tmp_path).faults)


@pytest.mark.parametrize("build", [tuned, observing])
def test_an_error_that_has_passed_does_not_keep_the_folder_shut(tmp_path, monkeypatch, build):
    agent, rng = build(), np.random.default_rng(0)
    with es.open(tmp_path, agent=agent) as live:
        sources = []
        for k in range(60):
            if k == 20:
                monkeypatch.setattr(agent, "_propose", lambda: 1 / 0)
            if k == 40:
                monkeypatch.undo()
            plan = live.plan()
            sources.append("failed" if plan.reason.startswith("planning failed") else plan.source)
            live.learn(episode(plan, rng), plan_id=plan.id)
        expected = live.plan()
    assert sources[39] == "failed" != sources[-1]
    without_checkpoints(tmp_path)
    with es.open(tmp_path, agent=build()) as live:
        assert (live.plan().id, live.plan().utility_bound) == (expected.id, expected.utility_bound)
    assert es.audit(tmp_path).is_whole


def test_a_session_that_is_halted_stays_halted(tmp_path):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as live:
        live.learn(episode(live.plan(), rng), plan_id=0)
        live.halt("somebody said so")
        assert live.plan().reason == "halted: somebody said so"
    without_checkpoints(tmp_path)
    with es.open(tmp_path, agent=tuned()) as live:
        assert live.plan().reason == "halted: somebody said so"
        live.resume_exploring("it is mended")
        assert live.plan().id == 1
    without_checkpoints(tmp_path)
    with es.open(tmp_path, agent=tuned()) as live:
        assert live.plan().id == 1


def test_the_number_of_a_plan_may_be_of_numpy(tmp_path):
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as live:
        for _ in range(5):
            plan = live.plan()
            live.learn(episode(plan, rng), plan_id=np.int64(plan.id))
        with pytest.raises(es.InvalidEpisode, match="whole number"):
            live.learn(episode(plan, rng), plan_id="first")
        with pytest.raises(es.InvalidEpisode, match="cannot hold"):
            live.learn(replace(episode(plan, rng), rewards=np.str_("")), plan_id=plan.id)
        assert live.status().stopped == "" and live.status().reported == 5
    assert es.audit(tmp_path).is_whole


@pytest.mark.parametrize("where", ["learn", "append_all", "plan"])
def test_an_interruption_leaves_no_agent_that_knows_more_than_the_disk(tmp_path, monkeypatch, where):
    def stop(*_, **__):
        raise KeyboardInterrupt

    agent, rng = tuned(), np.random.default_rng(0)
    with es.open(tmp_path, agent=agent) as live:
        plan = live.plan()
        live.learn(episode(plan, rng), plan_id=plan.id)
        monkeypatch.setattr(live._journal if where == "append_all" else agent, where, stop)
        with pytest.raises(KeyboardInterrupt):
            live.plan() if where == "plan" else live.learn(episode(plan, rng), plan_id=plan.id)
        monkeypatch.undo()
        assert live.plan().source == "safe" and "KeyboardInterrupt" in live.plan().reason
        with pytest.raises(es.NotKept, match="open the folder again"):
            live.learn(episode(plan, rng), plan_id=plan.id)
    with es.open(tmp_path, agent=tuned()) as live:
        assert live.status().reported == 1 and live.status().stopped == ""


def test_a_forked_process_deploys_the_incumbent_and_writes_nothing(tmp_path):
    rng, (read, write) = np.random.default_rng(0), os.pipe()
    with es.open(tmp_path, agent=tuned()) as live:
        live.learn(episode(live.plan(), rng), plan_id=0)
        size = (tmp_path / "journal.log").stat().st_size
        if (child := os.fork()) == 0:
            os.write(write, live.plan().reason.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert b"forked" in os.read(read, 1000)
        assert (tmp_path / "journal.log").stat().st_size == size
        live.learn(episode(live.plan(), rng), plan_id=1)
    assert es.audit(tmp_path).episodes == 2 and es.audit(tmp_path).is_whole


def test_a_deleted_folder_keeps_nothing_and_says_so(tmp_path):
    with es.open(tmp_path / "shop", agent=tuned()) as live:
        plan = live.plan()
        shutil.rmtree(tmp_path / "shop")
        with pytest.raises(es.NotKept, match="deleted"):
            live.learn(episode(plan, np.random.default_rng(0)), plan_id=plan.id)
        assert live.plan().source == "safe" and "deleted" in live.plan().reason
    assert not (tmp_path / "shop").exists()


def test_a_live_journal_builds_again_whatever_the_task_says(tmp_path):
    without_slack = replace(CHAIN.task, constraint=replace(CHAIN.task.constraint, slack=None))
    for n, task in enumerate((replace(CHAIN.task, time_homogeneous=True), without_slack)):
        with es.open(tmp_path / f"{n}", agent=es.OPSE(task, es.Constants.tuned(CHAIN.task))) as live:
            live.learn(episode(live.plan(), np.random.default_rng(0)), plan_id=0)
            live.plan()
        found = es.audit(tmp_path / f"{n}")
        assert found.is_whole and found.recomputed == 2


def test_what_does_not_fit_is_refused_and_not_kept(tmp_path):
    with es.open(tmp_path, agent=tuned()) as live:
        plan = live.plan()
        before = (tmp_path / "journal.log").stat().st_size
        for wrong, plan_id in ((es.Episode([0], [0]), plan.id), (episode(plan, np.random.default_rng(0)), 7)):
            with pytest.raises(es.InvalidEpisode):
                live.learn(wrong, plan_id=plan_id)
        assert (tmp_path / "journal.log").stat().st_size == before
    with pytest.raises(es.NotKept, match="closed"):
        live.learn(episode(plan, np.random.default_rng(0)), plan_id=plan.id)
    used = tuned()
    used.plan()
    with pytest.raises(ValueError, match="new agent"):
        es.open(tmp_path, agent=used)
    with pytest.raises(ValueError, match="another agent"):
        es.open(tmp_path, agent=es.OPSE(CHAIN.task, es.Constants.paper("streaming")))


def test_only_one_may_open_it(tmp_path):
    with es.open(tmp_path, agent=tuned()), pytest.raises(es.InUse, match="another process"):
        es.open(tmp_path, agent=tuned())


def test_a_second_run_in_a_folder_is_refused_and_harms_nothing(tmp_path):
    other = es.make("streaming", seed=4)
    es.run(CHAIN, tuned(), 30, folder=tmp_path)
    with pytest.raises(ValueError, match="holds a journal already"):
        es.run(other, es.OPSE(other.task, es.Constants.tuned(other.task)), 30, folder=tmp_path)
    assert es.audit(tmp_path).is_whole
    same_record(es.resume(tmp_path, 40), es.run(CHAIN, tuned(), 40))
    (tmp_path / "journal.toml").unlink()
    problem = (tmp_path / "problem.npz").read_bytes()
    with pytest.raises(DamagedFile, match=r"without its journal\.toml"):
        es.run(other, es.OPSE(other.task, es.Constants.tuned(other.task)), 30, folder=tmp_path)
    assert (tmp_path / "problem.npz").read_bytes() == problem


def test_what_a_killed_writer_left_is_removed(tmp_path):
    es.open(tmp_path, agent=tuned()).close()
    before = sorted(tmp_path.iterdir())
    (tmp_path / ".checkpoint-1.npz.a1b2").write_bytes(b"half")
    es.open(tmp_path, agent=tuned()).close()
    assert sorted(path for path in tmp_path.iterdir() if path.name[0] == ".") == []
    assert set(before) <= set(tmp_path.iterdir())


def test_only_one_may_begin_it(tmp_path):
    with beginning(tmp_path), pytest.raises(es.InUse, match="another process"):
        es.open(tmp_path, agent=tuned())
    assert list(tmp_path.iterdir()) == []


def test_a_torn_tail_is_cut_and_told_and_a_flipped_bit_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Journal, "checkpoint", lambda *_: None)  # one would have seen the cut tail
    rng, killed = np.random.default_rng(0), tmp_path / "killed"
    with es.open(tmp_path / "closed", agent=tuned()) as live:
        for _ in range(3):
            plan = live.plan()
            live.learn(episode(plan, rng), plan_id=plan.id)
        shutil.copytree(tmp_path / "closed", killed)
    log, trail = ((killed / name).read_bytes() for name in ("journal.log", "audit.jsonl"))
    last = frames_of(killed)[-1].offset
    spoilt = log[:-10] + bytes([log[-10] ^ 1]) + log[-9:]  # of full length
    for data in (log[: last + 1], log[: last + 15], log[: last + 40], log[:-1], spoilt):
        (killed / "journal.log").write_bytes(data)
        (killed / "audit.jsonl").write_bytes(trail)
        with es.open(killed, agent=tuned()) as live:
            assert live.status().reported == 2
            assert any(f"cut off {len(data) - last} bytes" in fault for fault in live.status().faults)
        assert any("cut off" in fault for fault in es.audit(killed).faults)
    whole = (tmp_path / "closed" / "journal.log").read_bytes()
    for bit in rng.integers(8 * len(whole), size=60).tolist():  # that it was closed, the trail knows too
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "closed" / "journal.log").write_bytes(bytes(flipped))
        with pytest.raises(DamagedFile):
            es.open(tmp_path / "closed", agent=tuned())
        assert (tmp_path / "closed" / "journal.log").read_bytes() == bytes(flipped)


def test_frames_that_cannot_have_been_written_are_refused(tmp_path):
    """With good checksums: deployments dropped or doubled, the end of a halt cut out, reports that say nothing."""
    rng, live_folder, run_folder = np.random.default_rng(0), tmp_path / "live", tmp_path / "run"
    with es.open(live_folder, agent=tuned()) as live:
        plan = live.plan()
        live.plan()
        live.learn(episode(plan, rng), plan_id=plan.id)
        live.plan()
        live.halt("to see")
        live.plan()
        live.resume_exploring("seen")
        live.plan()
    without_checkpoints(live_folder)
    es.run(CHAIN, tuned(), 20, folder=run_folder)
    frames = frames_of(live_folder)
    again = [frame for frame in frames if frame.kind == Kind.DEPLOY][1]
    resumed = next(frame for frame in frames if frame.kind == Kind.RESUME)
    report = next(frame for frame in frames if frame.kind == Kind.REPORT)
    broken = report._replace(notes={**report.notes, "values": "[["})
    elsewhere = again._replace(notes={**again.notes, "plan": 7})
    for changed in (
        [frame for frame in frames if frame is not again],
        [twice for frame in frames for twice in [frame] * (1 + (frame is again))],
        [frame for frame in frames if frame is not resumed],
        [broken if frame is report else frame for frame in frames],
        [elsewhere if frame is again else frame for frame in frames],
    ):
        write_frames(live_folder, changed)
        with pytest.raises(DamagedFile):
            es.open(live_folder, agent=tuned())
        assert not es.audit(live_folder).is_whole
    without_checkpoints(run_folder)
    whole = frames_of(run_folder)
    for kind, notes in ((report.kind, report.notes), (Kind.BATCH, {"episode": 20}), (Kind.AIM, {}), (15, {})):
        write_frames(run_folder, [*whole, report._replace(kind=kind, notes=notes)])
        with pytest.raises(DamagedFile):
            es.resume(run_folder, 30)
        assert not es.audit(run_folder).is_whole
    (run_folder / "journal.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(DamagedFile):
        es.resume(run_folder)


def test_a_journal_shorter_than_its_trail_or_checkpoint_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "CHECKPOINT_EVERY", 0.0)
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=tuned()) as live:
        for _ in range(4):
            plan = live.plan()
            live.learn(episode(plan, rng), plan_id=plan.id)
    frames = frames_of(tmp_path)
    data = (tmp_path / "journal.log").read_bytes()
    (tmp_path / "journal.log").write_bytes(data[: frames[3].offset])
    with pytest.raises(DamagedFile, match="cut short"):
        es.open(tmp_path, agent=tuned())
    for name in ("checkpoint-0.npz", "checkpoint-1.npz"):
        (tmp_path / name).unlink()
    with pytest.raises(DamagedFile, match="cut short"):
        es.open(tmp_path, agent=tuned())


def test_values_come_back_as_they_were():
    values = [1, -0.1, 1e-300, float("inf"), "a", True, None, (1, (2.5, "b")), ENDED, b"\x00\xff", [1, [2]]]
    values += [np.arange(6, dtype=np.int32).reshape(2, 3), np.float32(0.1), np.int64(3), np.array("x")]
    found = from_text(as_text(values))
    assert as_text(found) == as_text(values)
    assert [type(value) for value in found] == [type(value) for value in values]
    with pytest.raises(es.InvalidEpisode, match="cannot hold"):
        as_text(object())


def _end(path, genesis):
    """Where a log goes on, and the bytes of an unfinished frame there."""
    reader = Reader(path, genesis)
    list(reader)
    return reader.position, reader.torn


def test_frames_hold_numbers_only(tmp_path):
    path, genesis = tmp_path / "log", "00" * 32
    path.write_bytes(MAGIC + encode(0, Kind.BEGIN, bytes(32), {}, None)[0])
    log = Log(path)
    log.begin(*_end(path, genesis))
    log.cut()
    log.append_all([(Kind.BATCH, {"a": 1}, {"x": np.arange(3.0)})])
    log.close()
    _, frame = read(path, genesis)
    assert frame.notes == {"a": 1} and frame.arrays["x"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(TypeError, match="plain numbers only"):
        encode(0, Kind.BATCH, bytes(32), {}, {"x": np.array([object()])})
    text = json.dumps([{}, [["x", "|O", [3]]]]).encode()
    payload = len(text).to_bytes(4, "little") + text + bytes(24)
    own = link(bytes(32), 0, Kind.BATCH, payload)
    header = HEADER.pack(MARKER, Kind.BATCH, len(payload), 0, zlib.crc32(payload + own))
    path.write_bytes(MAGIC + header + CHECK.pack(zlib.crc32(header)) + payload + own)
    with pytest.raises(DamagedFile, match="type"):
        list(read(path, genesis))
