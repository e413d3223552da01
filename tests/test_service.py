"""`episafe serve`: one question has one answer, what goes wrong is the incumbent, nonsense changes nothing."""

import asyncio
import gc
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import pytest
import uvicorn
from starlette.applications import Starlette
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.errors import InvalidEpisode
from episafe.problems.states import ENDED, Outside
from episafe.service import admission, server
from episafe.service.app import Service
from episafe.service.dashboard import watch
from episafe.service.handlers import Handlers
from episafe.service.openapi import OPERATIONS, description
from episafe.service.request_limits import Bucket, RequestLimits, read_json
from episafe.service.server import serve

CLIENTS = Path(__file__).parents[1] / "examples" / "clients"
sys.path.insert(0, str(CLIENTS))
from client import Client  # noqa: E402


def rollout():
    return es.Rollout(0.5, 0.2, candidates={"v2": "v2"}, incumbent="v1", utility_max=1.0)


def learner():
    cmdp = es.make("streaming")
    return es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task), certifier=es.certify.Observation())


PATIENT = RequestLimits(seconds=60.0)  # a busy machine compiles for longer than a client waits


@contextmanager
def answering(session, token="", limits=PATIENT):
    """The address of a service on this session, for as long as it answers."""
    service = Service(Handlers(session), token, limits)
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def fetch(address, body=None, **headers):
    """Status and answer."""
    request = urllib.request.Request(address, body, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def planned(handlers, **asked):
    """What `plan` is answered in the end."""
    return handlers.note_answer(asked, handlers.plan(asked), handlers.num_answers)


def test_an_episode_from_plan_to_report(tmp_path):
    with answering(es.open(tmp_path / "shop", learner())) as address:
        ask = Client(address).ask
        plan = ask("plan", episode_id="a")
        assert plan == ask("plan", episode_id="a")  # the same deployment, its coin included, under the same name
        states, actions, luck, task = [0], [], np.random.default_rng(0), es.make("streaming")
        for step in range(task.task.horizon):
            said = ask("act", deployment=plan["deployment"], step=step, state=states[-1])
            assert said["deployment"] == plan["deployment"] and not said["reason"]
            actions.append(said["action"])
            states.append(int(luck.choice(task.P.shape[-1], p=task.P[step, states[-1], actions[-1]])))
        report = {"episode_id": "a", "episode": {"states": states, "actions": actions}}
        assert ask("learn", **report) == {"learned": True, "again": False}
        assert ask("learn", **report) == {"learned": True, "again": True}
        status, said = fetch(f"{address}/status")
        assert (status, said["started"], said["reported"], said["num_missing"]) == (200, 1, 1, 0)
        assert said["bounds"]["incumbent"] == pytest.approx(task.task.threshold + task.task.slack)
        with pytest.raises(RuntimeError, match="reported before"):
            ask("plan", episode_id="a")
    assert not es.audit(tmp_path / "shop", agent=learner()).damage


def test_a_plan_of_several_constraints_has_a_bound_of_each():
    agent = es.Rollout([0.5, 0.5], [0.2, 0.2], candidates={"v2": "v2"}, incumbent="v1", utility_max=1.0)
    assert len(Handlers(es.open(None, agent)).plan({})["utility_bound"]) == 2


def test_a_name_finds_its_deployment_after_a_restart(tmp_path):
    with es.open(tmp_path / "shop", rollout()) as session:
        first = planned(Handlers(session), episode_id="a")
    with es.open(tmp_path / "shop", rollout()) as session:
        handlers = Handlers(session)
        assert planned(handlers, episode_id="a") == first
        totals = {"total_utility": 0.5, "total_reward": 0.0}
        assert handlers.learn({"episode_id": "a", "episode": totals}) == {"learned": True, "again": False}
        assert session.status().num_missing == 0
    with es.open(tmp_path / "shop", rollout()) as session:
        assert Handlers(session).learn({"episode_id": "a", "episode": totals}) == {"learned": True, "again": True}
        assert session.status().reported == 1


def test_a_deployment_whose_plan_is_gone_is_abandoned_and_made_anew():
    session = es.open(None, rollout())
    made = session.deploy(np.random.default_rng(0), episode_id="a")
    session.agent.recent_plans, session._plans = list, {}
    again = session.deploy(np.random.default_rng(0), episode_id="a")
    assert again.id == made.id + 1 and session.status().abandoned == 1


def test_a_report_of_another_episode_than_its_deployment_is_refused():
    session = es.open(None, rollout())
    made = session.deploy(np.random.default_rng(0), episode_id="a")
    with pytest.raises(InvalidEpisode, match="is of episode 'a'"):
        session.learn(es.Episode.of_totals(0.5), deployment=made.id, episode_id="b")
    session.learn(es.Episode.of_totals(0.5), deployment=made.id)
    assert session.was_reported("a")


def test_an_action_that_fails_is_the_incumbents_and_its_deployment_counts_at_its_worst():
    session = es.open(None, learner())
    handlers = Handlers(session)
    made = handlers.plan({"episode_id": "a"})
    session.acting = lambda _: Broken()
    said = handlers.act({"deployment": made["deployment"], "step": 0, "state": 0})
    assert said["deployment"] is None and "no answer from the model" in said["reason"]
    assert session.status().abandoned == 1
    del session.acting
    said = handlers.act({"deployment": made["deployment"], "step": 1, "state": 0})  # the rest of the episode too
    assert said["deployment"] is None and "abandoned before" in said["reason"]


class Broken:
    name = "broken"

    def act(self, step, state, rng):
        raise ConnectionError("no answer from the model")


def test_overload_and_lateness_are_answered_by_the_incumbent():
    session = es.open(None, learner())
    with answering(session, limits=RequestLimits(at_once=1, seconds=0.05)) as address:
        slow = threading.Event()
        deploy = session.deploy
        session.deploy = lambda *asked: (slow.wait(5), deploy(*asked))[1]
        late = fetch(f"{address}/plan", b'{"episode_id": "late"}')[1]
        assert late["acting"] == "incumbent" and "no answer within" in late["reason"]
        busy = fetch(f"{address}/plan", b"{}")[1]
        assert busy["acting"] == "incumbent" and "overloaded" in busy["reason"]
        action = fetch(f"{address}/act", b'{"deployment": null, "step": 0, "state": 0}')[1]
        assert action["deployment"] is None and "overloaded" in action["reason"]
        begun = fetch(f"{address}/act", b'{"deployment": 7, "step": 1, "state": 0}')[1]
        assert "overloaded" not in begun["reason"]  # in mid-episode it waits: nothing is proved of what two have played
        assert fetch(f"{address}/status")[0] == 503
        slow.set()
        deadline = time.monotonic() + 5
        while session.status().abandoned == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert session.status().abandoned == 1  # nobody acted on what came too late


def test_a_plan_asked_again_under_overload_gives_up_what_was_drawn_before():
    session = es.open(None, rollout())
    with answering(session, limits=RequestLimits(at_once=1, seconds=60)) as address:
        first = fetch(f"{address}/plan", b'{"episode_id": 17}')[1]
        busy, free, deploy = threading.Event(), threading.Event(), session.deploy
        session.deploy = lambda *asked: (busy.set(), free.wait(9), deploy(*asked))[2]
        slow = threading.Thread(target=fetch, args=(f"{address}/plan", b"{}"))
        slow.start()
        assert busy.wait(9)
        assert "overloaded" in fetch(f"{address}/plan", b'{"episode_id": 17}')[1]["reason"]
        deadline = time.monotonic() + 5
        while first["deployment"] in session.book.waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        free.set()
        slow.join()
    assert session.status().abandoned == 1  # the incumbent acts in it, so that its report would be of nobody drawn


def test_a_name_used_twice_is_not_taken_for_a_report_made_twice():
    handlers = Handlers(es.open(None, rollout()))
    totals = {"total_utility": 0.5, "total_reward": 0.0}
    first, second = (handlers.plan({})["deployment"] for _ in range(2))
    said = {"deployment": first, "episode_id": "a", "episode": totals}
    assert handlers.learn(said) == {"learned": True, "again": False}
    assert handlers.learn(said) == {"learned": True, "again": True}
    with pytest.raises(InvalidEpisode, match="reported before"):
        handlers.learn({"deployment": second, "episode_id": "a", "episode": totals})
    assert second in handlers.session.book.waiting
    with pytest.raises(InvalidEpisode, match="reported before"):
        handlers.learn({"deployment": second + 90, "episode_id": "a", "episode": totals})  # which was never made


def test_a_report_under_the_name_of_another_deployment_is_refused():
    """The report that the name was for would be acknowledged as one made twice, and never learned."""
    handlers = Handlers(es.open(None, rollout()))
    said = {"episode_id": "a", "episode": {"total_utility": 0.5, "total_reward": 0.0}}
    nameless, named = planned(handlers)["deployment"], planned(handlers, episode_id="a")["deployment"]
    with pytest.raises(InvalidEpisode, match=f"that of deployment {named}, not of {nameless}"):
        handlers.learn({"deployment": nameless, **said})
    assert handlers.learn(said) == {"learned": True, "again": False}
    assert list(handlers.session.book.waiting) == [nameless]


def test_a_report_by_a_name_that_two_deployments_have_had_says_which(tmp_path):
    """What came of the first, which was abandoned, counted for who was drawn in the second, whose own report was then
    acknowledged and never learned."""
    totals = {"total_utility": 0.5, "total_reward": 0.0}
    said = {"episode_id": "a", "episode": totals}
    with es.open(tmp_path, agent=rollout()) as session:
        handlers = Handlers(session)
        first = planned(handlers, episode_id="a")["deployment"]
        session.halt("a person")  # so that what was drawn is not acted on any more
        second = planned(handlers, episode_id="a")["deployment"]
        assert second > first
        for _ in range(2):
            with pytest.raises(es.InvalidEpisode, match="more than one deployment"):
                handlers.learn(said)
            with pytest.raises(es.InvalidEpisode, match="more than one deployment"):
                session.learn(es.Episode.of_totals(0.5), episode_id="a")
    with es.open(tmp_path, agent=rollout()) as session:
        handlers = Handlers(session)
        planned(handlers, episode_id="a")
        with pytest.raises(es.InvalidEpisode, match="more than one deployment"):
            handlers.learn(said)
        assert handlers.learn({**said, "deployment": second}) == {"learned": True, "again": False}
        assert handlers.learn({**said, "deployment": second}) == {"learned": True, "again": True}
        for late in (said, {**said, "deployment": first}):  # never learned, and never acknowledged
            with pytest.raises(es.InvalidEpisode):
                handlers.learn(late)


def test_a_candidate_that_is_added_in_part_stops_the_session(monkeypatch):
    session = es.open(None, rollout())
    with pytest.raises(ValueError):
        session.add_candidate("", "v9")
    assert not session.stopped  # refused, and nothing was changed

    def interrupted(self, name):
        raise KeyboardInterrupt

    monkeypatch.setattr(es.Rollout, "begin_candidate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.add_candidate("v9", "v9")
    assert "interrupted while a candidate was added" in session.stopped
    assert session.deploy(np.random.default_rng(0)).acting == "incumbent"


def test_after_a_halt_the_incumbent_acts_in_episodes_under_way_too():
    session = es.open(None, learner())
    handlers, rng = Handlers(session), np.random.default_rng(0)
    while (made := session.deploy(rng)).policy is session.task.safe_policy:
        session.learn(cmdp_episode(session, made, rng), deployment=made.id)
    assert handlers.act({"deployment": made.id, "step": 0, "state": 0})["deployment"] == made.id
    session.halt("stop it")
    answer = handlers.act({"deployment": made.id, "step": 1, "state": 0})
    assert answer["deployment"] is None and answer["reason"] and session.status().abandoned == 1


def cmdp_episode(session, made, rng):
    """An episode that stays where it is."""
    task = session.task
    return es.Episode([0] * (task.horizon + 1), [made.policy.act(h, 0, rng) for h in range(task.horizon)])


def test_a_report_by_name_counts_for_nobody_where_the_incumbent_was_the_answer():
    """A plan that came too late leaves a deployment by that name for a moment, in which somebody else was drawn."""
    session, slow = es.open(None, rollout()), threading.Event()
    deploy, abandon = session.deploy, session.abandon
    session.deploy = lambda *asked: (slow.wait(5), deploy(*asked))[1]
    session.abandon = lambda deployment: (time.sleep(0.3), abandon(deployment))  # the moment
    report = b'{"episode_id": "late", "episode": {"total_utility": 1, "total_reward": 1}}'
    with answering(session, limits=RequestLimits(seconds=0.05)) as address:
        assert fetch(f"{address}/plan", b'{"episode_id": "late"}')[1]["deployment"] is None
        slow.set()
        while not session.status().started:
            time.sleep(0.001)
        status, answer = fetch(f"{address}/learn", report)
        assert status == 409 and "report nothing" in answer["error"] and session.status().reported == 0
        deadline = time.monotonic() + 5
        while session.status().abandoned == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
    handlers = Handlers(es.open(None, rollout()))
    handlers.note_answer({"episode_id": "late"}, handlers.refuse({}, "overloaded"), 0)
    planned(handlers, episode_id="late")  # asked again, it is an episode like any other
    assert handlers.learn(json.loads(report)) == {"learned": True, "again": False}


def test_after_a_restart_a_report_says_which_deployment_it_is_of(tmp_path):
    """Its name alone does not: the incumbent may have been the answer, while somebody else was drawn too late."""
    with es.open(tmp_path / "shop", rollout()) as session:
        made = planned(Handlers(session), episode_id="a")["deployment"]
    said = {"episode_id": "a", "episode": {"total_utility": 1.0, "total_reward": 0.0}}
    with es.open(tmp_path / "shop", rollout()) as session:
        handlers = Handlers(session)
        for name in ("a", "never asked"):  # of no deployment it would be taken for one from elsewhere
            with pytest.raises(InvalidEpisode, match="the number of its deployment"):
                handlers.learn({**said, "episode_id": name})
        assert session.status().reported == 0
        assert handlers.learn({**said, "deployment": made}) == {"learned": True, "again": False}
        assert handlers.learn(said) == {"learned": True, "again": True}


def test_what_was_asked_twice_at_once_is_the_incumbents_if_that_was_one_of_the_answers():
    """The first question takes long; whoever asks again is refused for that, acts by himself, and is not to be told."""
    session, busy, free = es.open(None, rollout()), threading.Event(), threading.Event()
    deploy, answers = session.deploy, []
    session.deploy = lambda *asked: (busy.set(), free.wait(9), deploy(*asked))[2]
    with answering(session, limits=RequestLimits(at_once=1, seconds=60)) as address:
        ask = lambda: answers.append(fetch(f"{address}/plan", b'{"episode_id": "a"}')[1])  # noqa: E731
        slow = threading.Thread(target=ask)
        slow.start()
        assert busy.wait(9)
        ask()
        free.set()
        slow.join()
        assert [answer["deployment"] for answer in answers] == [None, None]
        report = b'{"episode_id": "a", "episode": {"total_utility": 1, "total_reward": 1}}'
        status, said = fetch(f"{address}/learn", report)
        assert status == 409 and "report nothing" in said["error"]
        deadline = time.monotonic() + 5
        while session.status().abandoned == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert session.status().abandoned == 1


def test_an_abandoned_deployment_is_not_taken_for_the_one_that_was_reported_by_that_name():
    handlers = Handlers(es.open(None, rollout()))
    said = {"episode_id": "a", "episode": {"total_utility": 0.5, "total_reward": 0.0}}
    given_up, made = planned(handlers)["deployment"], planned(handlers)["deployment"]
    assert handlers.learn({**said, "deployment": made}) == {"learned": True, "again": False}
    handlers.abandon({"deployment": given_up})
    with pytest.raises(InvalidEpisode, match="reported before"):
        handlers.learn({**said, "deployment": given_up})
    assert handlers.learn({**said, "deployment": made}) == {"learned": True, "again": True}


def test_a_person_who_changes_something_stops_what_is_under_way():
    session = es.open(None, learner())
    session.add_candidate("steady", es.TablePolicy(session.task.safe_policy.table().copy()))
    handlers, rng = Handlers(session), np.random.default_rng(0)
    while (made := session.deploy(rng)).acting != "steady":
        session.learn(cmdp_episode(session, made, rng), deployment=made.id)
    assert handlers.act({"deployment": made.id, "step": 0, "state": 0})["deployment"] == made.id
    session.withdraw("steady", "it is not")
    assert session.acting(made.id) is None
    assert handlers.act({"deployment": made.id, "step": 1, "state": 0})["deployment"] is None


def test_a_report_may_come_before_the_first_plan_of_a_service_that_was_started_again(tmp_path, monkeypatch):
    """What was planned to have it compiled stood in no frame, and the agent was taken for one used elsewhere."""
    rng = np.random.default_rng(0)
    with es.open(tmp_path / "shop", rollout()) as session:
        first, second = session.deploy(rng), session.deploy(rng)
        session.learn(es.Episode.of_totals(1.0), deployment=first.id)

    def answer(sockets, app):
        found.append(lives[0].learn(es.Episode.of_totals(1.0), deployment=second.id))
        found.append(lives[0].deploy(rng).id)

    found, lives, opened = [], [], server.open_session
    monkeypatch.setattr(server, "open_session", lambda *a, **k: (lives.append(opened(*a, **k)), lives[0])[1])
    monkeypatch.setattr(admission, "answer", answer)
    serve(tmp_path / "shop", rollout, port=free_port())
    assert found == [None, 2] and lives[0].broken == "the journal is closed"
    es.open(tmp_path / "shop", rollout()).close()


def test_what_fails_after_its_answer_was_given_is_no_noise(caplog):
    session, failed = es.open(None, rollout()), threading.Event()

    def deploy(*asked):
        time.sleep(0.1)
        failed.set()
        raise InvalidEpisode("reported meanwhile")

    session.deploy = deploy
    with answering(session, limits=RequestLimits(seconds=0.02)) as address:
        assert "no answer within" in fetch(f"{address}/plan", b'{"episode_id": "late"}')[1]["reason"]
        assert failed.wait(5)
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"a": NaN}', "no number"),
        (b'{"a": 1e999}', "too large"),
        (b"[" * 100_000, "deep"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"\xff", "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_request_is_refused(body, says):
    with pytest.raises(ValueError, match=says):
        read_json(body, 16)


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("plan", {"episode": 1}, "unknown: 'episode'"),
        ("plan", {"episode_id": ""}, "1 to 200"),
        ("plan", {"episode_id": True}, "1 to 200"),
        ("act", {"step": 0}, "a state"),
        ("act", {"step": -1, "state": 0}, "step"),
        ("act", {"step": 0, "state": {"a": 1}}, "a state is"),
        ("learn", {"episode": {}}, "deployment or an episode_id"),
        ("learn", {"episode_id": "a"}, "needs an episode"),
        ("learn", {"episode_id": "a", "episode": {"state": 1}}, "unknown"),
        ("learn", {"episode_id": "a", "episode": {"states": 3}}, "must be a list"),
        ("halt", {}, "reason"),
        ("abandon", {"deployment": True}, "whole number"),
    ],
)
def test_what_a_request_lacks_is_said(name, body, says):
    session = es.open(None, learner())
    with pytest.raises(ValueError, match=says) as refused:
        getattr(Handlers(session), name)(body)
    assert refused.type is ValueError  # no InvalidEpisode, which over HTTP is another code
    assert session.status().started == 0 == session.status().reported


def test_who_shows_no_token_gets_nothing():
    session = es.open(None, rollout())
    with answering(session, "s" * 32) as address:
        for shown in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "s" * 32},
            {"authorization": "Basic " + "s" * 32},
        ):
            for path in ("plan", "status", "metrics", "openapi.json", ""):
                assert fetch(f"{address}/{path}", None if path != "plan" else b"{}", **shown)[0] == 401
        assert fetch(f"{address}/plan", b"{}", authorization="Bearer " + "s" * 32)[0] == 200
    assert session.status().started == 1


def test_without_a_token_only_this_machine_is_answered():
    with answering(es.open(None, rollout())) as address:
        assert fetch(f"{address}/health", host="evil.example")[0] == 403
        assert fetch(f"{address}/plan", b"{}", **{"content-type": "text/plain"})[0] == 415  # what a web page may send
        assert fetch(f"{address}/plan", b" " * (1 << 20) + b"{}")[0] == 413


def test_other_addresses_ask_for_a_token(tmp_path, monkeypatch):
    monkeypatch.delenv("EPISAFE_TOKEN", raising=False)
    with pytest.raises(ValueError, match="not the loopback"):
        serve(tmp_path / "shop", rollout, host="0.0.0.0")
    (tmp_path / "token").write_text("short")
    with pytest.raises(ValueError, match="at least 16"):
        serve(tmp_path / "shop", rollout, token_file=tmp_path / "token")
    assert not (tmp_path / "shop").exists()


def test_a_service_has_planned_before_anybody_waits(tmp_path, monkeypatch):
    opened, asked, plan, plans = [], [], es.Rollout.plan, []
    monkeypatch.setattr(es.Rollout, "plan", lambda agent: (plans.append(agent), plan(agent))[1])

    def run(sockets, app):
        session = opened[-1]
        asked.append((plans.count(session.agent), session.status().started))
        asked.append(Handlers(session).plan({"episode_id": len(opened)})["deployment"])

    monkeypatch.setattr(server, "open_session", lambda *at, **how: opened.append(es.open(*at, **how)) or opened[-1])
    monkeypatch.setattr(admission, "answer", run)
    for _ in range(2):
        serve(tmp_path / "shop", rollout)
    assert asked == [(1, 0), 0, (2, 1), 1] and es.audit(tmp_path / "shop", agent=rollout()).is_whole


def test_a_port_in_use_is_said_before_anything_is_begun(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is in use: choose another, --port"):
            serve(tmp_path / "shop", rollout, port=port)
        with pytest.raises(OSError, match="is in use"):
            watch(tmp_path / "shop", port=port)
        assert not (tmp_path / "shop").exists()
        es.open(tmp_path / "shop", rollout()).close()
        for command in (["serve", "--agent", "test_service:rollout"], ["dashboard"]):
            done = CliRunner().invoke(app, [*command, str(tmp_path / "shop"), "--port", str(port)])
            assert done.exit_code == 1 and f"port {port} of 127.0.0.1 is in use" in " ".join(done.output.split())


def test_an_address_of_another_machine_is_said():
    error = pytest.raises(OSError, match=r"port 8765 of 192.0.2.1 cannot be had")  # an address of examples
    with error, admission.listening("192.0.2.1", 8765):
        pass


def test_a_server_that_does_not_start_is_no_sign_of_something_unsafe():
    @asynccontextmanager
    async def fails(_):
        raise RuntimeError("no")
        yield

    with admission.listening("127.0.0.1", 0) as sockets, pytest.raises(OSError, match="did not start"):  # exit code 1
        admission.answer(sockets, Starlette(lifespan=fails))


def test_what_makes_no_agent_is_refused_before_a_folder_is_made(tmp_path):
    for wrong in (es.make("tabular"), lambda: es.make("tabular")):
        with pytest.raises(es.InvalidProblem, match="the agent is a LinearCMDP: name a function that makes an agent"):
            serve(tmp_path / "shop", wrong, port=0)
    assert not (tmp_path / "shop").exists()


def test_a_page_that_is_not_there_names_those_that_are():
    with answering(es.open(None, rollout())) as address:
        status, said = fetch(f"{address}/plam", b"{}")
        assert status == 404 and said["error"].startswith("there is no POST /plam: ask one of POST /plan")
        assert fetch(f"{address}/plan")[0] == 405
        with pytest.raises(RuntimeError, match="there is no POST /resume"):
            Client(address).ask("resume", reason="all is well")


def test_the_command_says_an_alarm_on_its_standard_error(tmp_path):
    """And where it is served, once the folder is open, and not before."""
    (tmp_path / "own_shop.py").write_text(
        "import episafe as es\n\n\ndef agent():\n"
        "    return es.Rollout(0.5, 0.2, candidates={'v2': 'v2'}, incumbent='v1', utility_max=1.0)\n"
    )
    port = free_port()
    command = [sys.executable, "-m", "episafe", "serve", "shop", "--agent", "own_shop:agent", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        try:
            said = next(line for line in running.stderr if "served at" in line or "rror" in line)
            client = Client(f"http://127.0.0.1:{port}")
            client.ask("plan", episode_id="1")
            with pytest.raises(RuntimeError, match="at most 1"):
                client.ask("learn", episode_id="1", episode={"total_utility": 90, "total_reward": 1})
        finally:
            running.terminate()
        said += running.stderr.read()
    assert "INFO episafe.service: shop is served at" in said
    assert "ERROR episafe.session: alarm what=range" in said and "the session is closed" in said


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def test_a_halt_is_kept_and_has_no_way_back_over_http(tmp_path):
    with answering(es.open(tmp_path / "shop", rollout())) as address:
        assert Client(address).ask("halt", reason="the shop is closed") == {"halted": True}
        assert Client(address).ask("plan")["acting"] == "incumbent"
        assert fetch(f"{address}/health")[1]["stopped"] == "halted: the shop is closed"
        assert not any("resume" in name for name in OPERATIONS)
    with es.open(tmp_path / "shop", rollout()) as session:
        assert session.stopped


def test_a_disk_that_keeps_nothing_is_answered_by_the_incumbent_and_503(tmp_path):
    session = es.open(tmp_path / "shop", rollout())
    handlers = Handlers(session)
    made = handlers.plan({"episode_id": "a"})
    session._break("no room on the disk")
    assert handlers.plan({"episode_id": "b"})["deployment"] is None
    with answering(session) as address:
        body = {"deployment": made["deployment"], "episode": {"total_utility": 0.5, "total_reward": 0.0}}
        status, said = fetch(f"{address}/learn", json.dumps(body).encode())
        assert status == 503 and "no room" in said["error"]


def test_bandits_are_served_their_action_the_same_however_often_it_is_asked_for(tmp_path):
    bandit = es.bandits.make("finite")
    build = lambda: es.bandits.OPLBSP(bandit.task, radius="determinant")  # noqa: E731
    names = [f"round {k}" for k in range(20)]
    with es.open(tmp_path / "shop", build()) as session:
        made = [planned(Handlers(session), episode_id=name) for name in names]
        assert [planned(Handlers(session), episode_id=name) for name in names] == made
        assert len({tuple(one["action"]) for one in made}) > 1
    with es.open(tmp_path / "shop", build()) as session:
        handlers = Handlers(session)
        assert [planned(handlers, episode_id=name)["action"] for name in names] == [one["action"] for one in made]
        said = {"episode_id": names[0], "action": made[0]["action"], "reward": 0.5, "utility": 0.5}
        assert handlers.learn(said) == {"learned": True, "again": False}


def test_what_can_be_asked_is_described():
    said = description()
    assert set(said["paths"]) == {f"/{name}" for name in OPERATIONS}
    assert all(hasattr(Handlers, name) for name in OPERATIONS)
    with answering(es.open(None, rollout())) as address, urllib.request.urlopen(address) as page:
        text = page.read().decode()
    assert (
        "POST /plan" in text
        and "//" not in text.replace("<!doctype", "").partition("<style>")[2].partition("</style>")[0]
    )


def test_permissions_come_back_with_time():
    bucket = Bucket(1000)
    assert sum(bucket.take() for _ in range(5000)) < 2600
    time.sleep(0.01)
    assert bucket.take()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_client_in_javascript():
    script = """
        import { Client } from "./client.mjs";
        const client = new Client(process.argv[1]);
        const plan = await client.ask("plan", { episode_id: "a" });
        await client.ask("learn", { episode_id: "a", episode: { total_utility: 0.5, total_reward: 1 } });
        let refused = "";
        try { await client.ask("plan", { episode_id: "a" }); } catch (error) { refused = error.message; }
        console.log(JSON.stringify({ deployment: plan.deployment, refused }));
    """
    session = es.open(None, rollout())
    with answering(session) as address:
        command = ["node", "--input-type=module", "-e", script, address]
        said = json.loads(
            subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True, check=True, timeout=30).stdout
        )
    assert said["deployment"] == 0 and "reported before" in said["refused"] and session.status().reported == 1


def test_clients_are_short():
    for name in ("client.py", "client.mjs"):
        assert len((CLIENTS / name).read_text().splitlines()) <= 30


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_systemd_unit_is_one(tmp_path):
    unit = (CLIENTS.parents[1] / "packaging" / "episafe.service").read_text()
    assert "/srv/shop/.venv/bin/episafe serve" in unit
    (tmp_path / "episafe.service").write_text(unit.replace("/srv/shop/.venv/bin/episafe", shutil.which("true")))
    found = subprocess.run(["systemd-analyze", "verify", tmp_path / "episafe.service"], capture_output=True, text=True)
    assert found.returncode == 0 and not found.stderr, found.stderr


def test_metrics_say_bounds_and_thresholds(tmp_path):
    session = es.open(tmp_path / "shop", rollout())
    Handlers(session).plan({"episode_id": "a"})
    with answering(session) as address, urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert "episafe_deployments_total 1.0" in text and 'episafe_threshold{constraint="utility"} 0.5' in text
    assert "episafe_incumbent_share" in text and "episafe_missing 1.0" in text


def test_what_is_answered_later_is_not_given_up_for_an_earlier_answer():
    """An overloaded service answers by the incumbent, and gives up behind it what was drawn by that name before; the
    client may have asked again until it comes to that."""
    handlers, asked = Handlers(es.open(None, rollout())), {"episode_id": "a"}
    service, later = Service(handlers, "", PATIENT), []

    async def overloaded():
        loop = asyncio.get_running_loop()
        with mock.patch.object(loop, "run_in_executor", lambda _, *call: later.append(call)):
            return await service._plan_anyway(asked, "the service is overloaded")

    handlers.note_answer(asked, asyncio.run(overloaded()), handlers.num_answers)
    made = planned(handlers, **asked)
    for call, *given in later:
        call(*given)
    said = {**asked, "deployment": made["deployment"], "episode": {"total_utility": 1.0, "total_reward": 0.0}}
    assert handlers.learn(said) == {"learned": True, "again": False}


def test_what_was_drawn_before_is_given_up_where_the_incumbent_is_the_answer():
    handlers, asked = Handlers(es.open(None, rollout())), {"episode_id": "a"}
    first = planned(handlers, **asked)["deployment"]
    service = Service(handlers, "", PATIENT)
    asyncio.run(service._plan_anyway(asked, "the service is overloaded"))
    assert first not in handlers.session.book.waiting


class Doors(gymnasium.Env):
    """Four steps; action 1 in the second one ends the episode."""

    observation_space, action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(2)

    def __init__(self, random_start):
        self.random_start = random_start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h = 0
        return int(self.np_random.integers(3)) if self.random_start else 0, {}

    def step(self, action):
        self.h += 1
        return self.h % 3, 0.5, self.h == 2 and action == 1, False, {"cost": 0.25}


def doors(random_start, safe_policy, **more):
    problem = es.from_gymnasium(
        Doors(random_start), features=es.features.OneHot(), horizon=4, cost_limit=3, slack=1.0, safe_policy=safe_policy,
        random_start=random_start, **more,
    )  # fmt: skip
    return problem, Handlers(es.open(None, es.OPSE(problem.task, certifier=es.certify.Observation())))


@pytest.mark.parametrize("random_start", [False, True])
def test_a_client_counts_its_steps_from_the_first_observation(random_start):
    asked = []
    _, handlers = doors(random_start, lambda h, state: asked.append(h) or [1.0, 0.0])
    asked.clear()
    for step in range(4):
        made = handlers.plan({})["deployment"]
        for deployment in (None, made):
            asked.clear()
            handlers.act({"deployment": deployment, "step": step, "state": step % 3})
            assert set(asked) <= {step}, (random_start, step, asked)
    handlers.act({"deployment": None, "step": 3, "state": 2})
    assert set(asked) == {3}


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("taken", [[0, 0, 0, 0], [0, 1, 0, 0]], ids=["to the horizon", "ended early"])
def test_a_report_of_the_steps_that_were_made_is_the_live_episode(random_start, taken):
    problem, handlers = doors(random_start, lambda h, state: [0.5, 0.5])
    live = next(
        problem.episodes([problem.task.as_policy(lambda h, state: np.eye(2)[taken[h]])], np.random.default_rng(0))
    )
    first, T = int(random_start), 2 if taken[1] else 4
    said = {"states": [int(s) if s is not ENDED else None for s in live.states[first : first + T + 1]]}
    said |= {"actions": taken[:T], "rewards": [0.5] * T, "utilities": [0.75] * T}
    with mock.patch.object(handlers.session, "learn") as learn:
        handlers.learn({"deployment": 0, "episode": said | ({"terminated": True} if T < 4 else {})})
    ((episode,), _) = learn.call_args
    assert list(episode.states) == live.states
    assert [a for a, s in zip(episode.actions, live.states, strict=False) if not isinstance(s, Outside)] == taken[:T]
    np.testing.assert_allclose(episode.rewards, live.rewards)
    np.testing.assert_allclose(episode.utilities, live.utilities)
    assert handlers.learn({"deployment": handlers.plan({})["deployment"], "episode": said | {"terminated": T < 4}})[
        "learned"
    ]


@pytest.mark.parametrize("random_start", [False, True])
def test_a_report_of_fewer_steps_says_that_the_episode_terminated_or_is_refused(random_start):
    _, handlers = doors(random_start, lambda h, state: [0.5, 0.5])
    made = handlers.plan({})["deployment"]
    short = {"states": [0, 1, 2], "actions": [0, 1], "rewards": [0.5] * 2, "utilities": [0.75] * 2}
    wrong = {
        'give "terminated": true': short,
        "5 steps, and 4 are to be reported": {"states": [0] * 6, "actions": [0] * 5, "terminated": True},
        "states must have length 3, for 2 actions, got 5": short | {"states": [0] * 5, "terminated": True},
        "rewards must have length 2, for 2 actions, got 4": short | {"rewards": [0.5] * 4, "terminated": True},
    }
    for message, said in wrong.items():
        with pytest.raises(InvalidEpisode, match=message):
            handlers.learn({"deployment": made, "episode": said})
    with pytest.raises(ValueError, match="terminated must be true or false, got 1"):
        handlers.learn({"deployment": made, "episode": short | {"terminated": 1}})
    assert handlers.learn({"deployment": made, "episode": short | {"terminated": True}})["learned"]


def test_a_trace_of_an_episode_that_ended_early_has_what_was_seen():
    def move(h, state, action, w):
        return (ENDED if h == 1 and action == 1 else (h + 1) % 3), 0.5, 0.75

    _, handlers = doors(False, lambda h, state: [0.5, 0.5], move=move)
    made = handlers.plan({})["deployment"]
    said = {
        "states": [0, 1, None],
        "actions": [0, 1],
        "rewards": [0.5] * 2,
        "utilities": [0.75] * 2,
        "terminated": True,
    }
    with mock.patch.object(handlers.session, "learn") as learn:
        handlers.learn({"deployment": made, "episode": said | {"trace": [0, [0.1, 0.2]]}})
    ((episode,), _) = learn.call_args
    assert episode.trace == (0, (0.1, 0.2, None, None))
    assert handlers.session.task.replay_fault(episode) == ""


def test_a_bandit_is_told_the_incumbents_action_also_under_overload_and_others_nothing_of_the_kind():
    bandit = es.bandits.make("finite")
    handlers = Handlers(es.open(None, es.bandits.OPLBSP(bandit.task, radius="determinant")))
    assert np.shape(handlers.refuse({}, "overloaded")["action"]) == (bandit.task.dim,)
    assert "action" not in Handlers(es.open(None, rollout())).refuse({}, "overloaded")


def test_what_fails_in_an_incumbent_that_acts_is_said_as_it_is():
    _, handlers = doors(False, lambda h, state: state.nobody if h else [1.0, 0.0])
    with pytest.raises(AttributeError, match="nobody"):
        handlers.act({"deployment": None, "step": 1, "state": 1})
    with pytest.raises(ValueError, match="a name here and no policy that acts"):
        Handlers(es.open(None, rollout())).act({"deployment": None, "step": 1, "state": 1})


class Grid(Doors):
    """Doors whose observations are arrays."""

    observation_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        state, info = super().reset(seed=seed)
        return np.array([state, 0]), info

    def step(self, action):
        state, *rest = super().step(action)
        return np.array([state, 1]), *rest


@pytest.mark.parametrize("features", [es.features.OneHot(), lambda state: np.append(state / 10, 0.5)])
def test_reports_of_lists_are_read_once_for_agent_monitors_journal_and_export(tmp_path, features):
    """Monitors were handed tuples, and the first report broke the session; no folder of them could be exported."""
    problem = es.from_gymnasium(
        Grid(False), features=features, horizon=4, cost_limit=3, slack=1.0, safe_policy=lambda h, state: [1.0, 0.0]
    )
    agent = lambda: es.OPSE(problem.task, certifier=es.certify.Observation())  # noqa: E731
    session = es.open(tmp_path / "grid", agent())
    handlers = Handlers(session)
    for k in range(3):
        made = handlers.plan({"episode_id": k})
        states = [[0, 0], [1, 1], [2, 1], [0, 1], [1, 1]]
        steps = {"states": states, "actions": [0] * 4, "rewards": [0.5] * 4, "utilities": [0.75] * 4}
        assert handlers.learn({"deployment": made["deployment"], "episode": steps})["learned"]
    assert not session.stopped and session.export_episodes(tmp_path / "log.csv") == 3
    session.close()
    with es.open(tmp_path / "grid", agent()) as session:
        assert session.status().reported == 3 and not session.stopped
    assert es.learn_log(agent(), tmp_path / "log.csv") == 3 and es.audit(tmp_path / "grid", agent=agent()).is_whole


@pytest.mark.parametrize("wrong", ["3", [[1, 1]], 7, 0.5, None, [0, 1]])
def test_nobody_acts_in_a_state_that_is_none(wrong):
    """The proposal acted in it as where nobody was: mean utility 1.2 to 1.7 for 2.4 promised, and nothing halted."""
    _, handlers = doors(False, lambda h, state: [1.0, 0.0])
    made = handlers.plan({})["deployment"]
    with pytest.raises(ValueError, match="is not in the observation space"):
        handlers.act({"deployment": made, "step": 1, "state": wrong})
    assert handlers.act({"deployment": made, "step": 1, "state": 2})["deployment"] == made
