"""The HTTP service: one session behind it, and clients that repeat, lie, or send nonsense."""

import asyncio
import json
import multiprocessing
import os
import socket
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

import episafe as es
from episafe.core.task import Carry, Constraint, OneHot, Task
from episafe.core.types import ENDED, START
from episafe.service.app import Limits, Service, openapi_document, serve
from episafe.service.dashboard import session_page
from episafe.session.audit import read_lines
from episafe.session.events import Report, as_value, decode_lines
from episafe.session.file_log import FileLog
from episafe.session.session import Session
from postgres_server import server

TOKEN = "a-token-for-tests-only"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


def make_agent() -> es.SafeAgent:
    return es.SafeAgent(es.make("tabular", seed=0))


def uniform_agent() -> es.Fixed:
    task = es.make("tabular", seed=0).task
    return es.Fixed(task, np.full((4, 5, 3), 1 / 3))


class Client:
    """Asks the application in this process; each call has a connection of its own."""

    def __init__(self, session: Session, limits: Limits | None = None) -> None:
        self.session, self.app = session, Service(session, TOKEN, limits).app

    def ask(self, method: str, path: str, body: object = None, **options: object) -> httpx.Response:
        return asyncio.run(self.ask_now(method, path, body, **options))

    async def ask_now(self, method: str, path: str, body: object = None, headers=HEADERS, **options) -> httpx.Response:
        if isinstance(body, bytes):
            options["content"] = body
        elif body is not None:
            options["json"] = body
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, headers=headers, **options)

    def get(self, path: str) -> dict:
        return self.post(path, None)

    def post(self, path: str, body: object) -> dict:
        answer = self.ask("GET" if body is None else "POST", path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def client(tmp_path) -> Client:
    return Client(es.open(tmp_path / "shop", make_agent()))


def play(client: Client, rng: np.random.Generator, **asked: object) -> tuple[dict, list[dict]]:
    """Play an episode as a client does; return the deployment and the steps."""
    made, states, steps = client.post("/deployments", asked), [4, *rng.integers(5, size=3).tolist()], []
    for state in states:
        answer = client.post(f"/deployments/{made['id']}/act", {"observation": state, "steps": steps})
        steps.append({"observation": state, "action": answer["action"]})
    return made, steps


def test_episodes_over_http_are_logged_counted_and_pass_the_audit(client, tmp_path, rng):
    played = {}
    for k in range(12):
        made, steps = play(client, rng, episode_id=f"order {k}")
        assert client.post(f"/deployments/{made['id']}/report", {"steps": steps}) == {"counted": True, "reason": ""}
        played[made["id"]] = steps
    found = {e.body.id: e.body for e in decode_lines(read_lines(tmp_path / "shop")) if isinstance(e.body, Report)}
    assert found.keys() == played.keys() == set(range(12))
    for id, steps in played.items():
        assert found[id].episode.actions == tuple(step["action"] for step in steps)
        assert found[id].episode.states[:-1] == tuple(step["observation"] for step in steps)
    audit = es.audit(tmp_path / "shop", agent=make_agent())
    assert audit.passed, str(audit)
    status, bounds = client.get("/status"), client.get("/bounds")
    assert (status["deployments"], status["reports"], status["pending"]) == (12, 12, 0)
    assert bounds == {name: {"utility": b[0]} for name, b in client.session.bounds().items()}


def test_repeated_requests_change_nothing(client):
    made = [client.post("/deployments", {"episode_id": "a"}) for _ in range(2)]
    assert made[0] == made[1] and made[0]["id"] == 0
    steps = []
    for _ in range(4):
        asked = {"observation": 0, "steps": steps}
        answers = [client.post("/deployments/0/act", asked) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        steps = [*steps, {"observation": 0, "action": answers[0]["action"]}]
    assert client.post("/deployments/0/report", {"steps": steps})["counted"]
    events = client.session.status()["events"]
    for path in ("report", "abandon"):
        again = client.post(f"/deployments/0/{path}", {"steps": steps} if path == "report" else {})
        assert not again["counted"] and "reported or abandoned before" in again["reason"]
    assert client.ask("POST", "/deployments", {"episode_id": "a"}).status_code == 409
    assert client.ask("POST", "/deployments/0/act", {"observation": 0}).status_code == 409
    assert client.session.status()["events"] == events


def test_steps_draw_independent_actions_with_the_stated_probabilities():
    client, pairs = Client(es.open(None, uniform_agent())), []
    for _ in range(300):
        made = client.session.deploy()
        first = client.post(f"/deployments/{made.id}/act", {"observation": 0})
        steps = [{"observation": 0, "action": first["action"]}]
        pairs.append((first["action"], client.post(f"/deployments/{made.id}/act", {"observation": 0, "steps": steps})))
    assert all(answer["probabilities"] == pytest.approx([1 / 3] * 3) for _, answer in pairs)
    counts = Counter((a, answer["action"]) for a, answer in pairs)
    chi2 = sum((counts[a, b] - 300 / 9) ** 2 / (300 / 9) for a in range(3) for b in range(3))
    assert chi2 < 26.1  # 0.1 % quantile of χ² with 8 degrees of freedom; equal numbers at every step give 600


def test_running_totals_a_random_start_an_early_end_and_an_override():
    def careful(h: int, state: object) -> list[float]:
        _, total = state
        return [0.0, 1.0] if total > 0.4 else [1.0, 0.0]

    limit = Constraint(None, 1.0, 0.5, "served")
    outside = {START: (0.0, (0.0,)), ENDED: (0.0, (0.0,))}
    inner = Task(5, 2, (limit,), careful, START, encode=tuple, outside=outside, features=OneHot(size=9))
    add = Carry(inner, lambda h, state, action, w, utility: (state[1] + float(utility[0]), utility))
    task = replace(inner, carry=add, encode=lambda given: (tuple(given[0]), given[1]))
    client = Client(es.open(None, es.Fixed(task, careful)))
    client.post("/deployments", {"episode_id": "x"})
    first = {"observation": [0, 1], "action": 0, "reward": 0.2, "utility": 0.5}
    assert client.post("/deployments/0/act", {"observation": [0, 1]}) == {"action": 0, "probabilities": [1.0, 0.0]}
    answer = client.post("/deployments/0/act", {"observation": [1, 1], "steps": [first]})
    assert answer == {"action": 1, "probabilities": [0.0, 1.0]}  # the policy sees the running total 0.5
    second = {"observation": [1, 1], "action": 0, "reward": 0.0, "utility": [0.25], "overridden": True}
    assert client.post("/deployments/0/report", {"steps": [first, second], "remaining_utility": 0.5})["counted"]
    body = next(one.body for one in decode_lines(client.session.log.read()) if isinstance(one.body, Report))
    states = [as_value(one) for one in body.episode.states]
    assert states == [START, ((0, 1), 0.0), ((1, 1), 0.5), ENDED, ENDED, ENDED]
    assert body.episode.actions == (0, 0, 0, 0, 0) and body.overridden == 1
    assert body.episode.utilities == ((0.0,), (0.5,), (0.25,), (0.25,), (0.25,))
    assert client.get("/status")["overridden"] == 1


def test_decisions_need_a_reason_and_take_effect(client):
    def decide(what: str, **more: object) -> httpx.Response:
        return client.ask("POST", "/decisions", {"what": what, "reason": "because", **more})

    assert decide("halt").json()["halted"] == "because"
    made = client.post("/deployments", {})
    assert (made["component"], made["weights"], made["reason"]) == ("incumbent", {"incumbent": 1.0}, "because")
    assert decide("resume").json()["halted"] == ""
    assert decide("change", threshold=0.5).json()["limits"][0]["threshold"] == 0.5
    assert client.post("/deployments", {})["component"] is not None
    assert "proposal-1" in client.get("/bounds")
    refused = decide("promote", name="proposal-1")
    assert refused.status_code == 422 and "below the limits" in refused.json()["error"]
    assert decide("change", threshold=4.0).status_code == 422
    assert decide("withdraw", name="proposal-1").status_code == 200
    assert decide("withdraw", name="proposal-1").status_code == 422
    for body in ({"what": "halt"}, {"what": "halt", "reason": ""}, {"what": "close", "reason": "x"}):
        assert client.ask("POST", "/decisions", body).status_code == 422
    assert [one["what"] for one in client.get("/status")["decisions"]] == ["halt", "resume", "change", "withdraw"]


NONSENSE = [
    (400, "POST", "/deployments", b"\xff\xfe"),
    (400, "POST", "/deployments/0/act", b'{"observation":' + b"[" * 100_000),
    (422, "POST", "/deployments/0/act", b'{"observation":' + b"[" * 900 + b"]" * 900 + b"}"),
    (400, "POST", "/deployments/0/report", b'{"total_utility": NaN}'),
    (422, "POST", "/deployments/0/report", b'{"total_utility": 1e999}'),
    (422, "POST", "/deployments/0/report", b'{"total_utility": 1' + b"0" * 400 + b"}"),
    (422, "POST", "/deployments/0/report", b'{"steps": [{"action": ' + b"[" * 900 + b"]" * 900 + b"}]}"),
    (422, "POST", "/deployments", {"episode_id": "x" * 201}),
    (422, "POST", "/deployments", {"episode": "misspelt"}),
    (422, "POST", "/deployments/0/act", {}),
    (422, "POST", "/deployments/0/act", {"observation": 5}),
    (422, "POST", "/deployments/0/act", {"observation": {"a": 1}}),
    (422, "POST", "/deployments/0/act", {"observation": 10**30}),
    (422, "POST", "/deployments/0/act", {"observation": 0, "steps": [{"observation": 0, "action": 0}] * 4}),
    (422, "POST", "/deployments/0/report", {}),
    (422, "POST", "/deployments/0/report", {"steps": [{"observation": 0, "action": 0}]}),
    (422, "POST", "/deployments/0/report", {"steps": [{"observation": 0, "action": 3}] * 4}),
    (422, "POST", "/deployments/0/report", {"steps": [{"observation": 0, "action": 10**30}] * 4}),
    (422, "POST", "/deployments/0/report", {"steps": [{"observation": 0, "action": 0, "chance": {"array": 1}}] * 4}),
    (422, "POST", "/deployments/0/report", {"steps": [{"observation": 0, "action": 0, "utility": [1, 1]}] * 4}),
    (422, "POST", "/deployments/0/report", {"steps": [{"observation": 0, "action": 0}] * 4, "total_utility": 1}),
    (422, "POST", "/deployments/0/report", {"total_utility": [0.5, 0.5]}),
    (404, "POST", "/deployments/99/report", {"total_utility": 1}),
    (404, "POST", f"/deployments/{'9' * 5000}/report", {"total_utility": 1}),
    (404, "POST", "/deployments/０/abandon", {}),
    (404, "GET", "/../etc/passwd", None),
    (405, "PUT", "/deployments", {}),
    (413, "POST", "/deployments", b'"' + b"x" * (1 << 20) + b'"'),
    (422, "POST", "/decisions", {"what": "change", "reason": "no value"}),
    (422, "POST", "/decisions", {"what": "change", "reason": "x", "threshold": [0.1, 0.2]}),
]


def test_nonsense_is_refused_with_a_remedy_and_nothing_is_learned(client):
    client.post("/deployments", {"episode_id": "known"})
    before, bounds = client.session.status(), client.get("/bounds")
    for status, method, path, body in NONSENSE:
        answer = client.ask(method, path, body)
        assert answer.status_code == status, (method, path, body, answer.text)
        problem = answer.json()
        assert problem["error"] and problem["remedy"], (path, body, problem)
    assert client.session.status() == before
    assert client.get("/bounds") == bounds


def test_an_error_names_the_place_and_the_value(client):
    client.post("/deployments", {})
    steps = [{"observation": 0, "action": 1}, {"observation": 0, "action": "left"}]
    problem = client.ask("POST", "/deployments/0/report", {"steps": steps}).json()
    assert problem["at"] == "$.steps[1].action" and problem["value"] == "left"
    assert "int" in problem["error"] and "openapi.json" in problem["remedy"]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", "Bearer ü"])
def test_without_the_token_nothing_is_told(client, header):
    headers = {"authorization": header.encode()}
    for method, path in (("POST", "/deployments"), ("GET", "/status"), ("GET", "/openapi.json"), ("GET", "/metrics")):
        answer = client.ask(method, path, {} if method == "POST" else None, headers=headers)
        assert answer.status_code == 401 and TOKEN not in answer.text
    assert client.ask("GET", "/health", headers={}).json() == {"alive": True}
    assert client.session.status()["deployments"] == 0
    with pytest.raises(ValueError, match="at least 16"):
        Service(client.session, "short")


def test_limits_on_rate_and_time(tmp_path):
    client = Client(es.open(None, make_agent()), Limits(rate=2.0))
    codes = [client.ask("GET", "/status").status_code for _ in range(8)]
    assert codes[:4] == [200] * 4 and codes[-1] == 429

    slow = Client(es.open(tmp_path, make_agent()), Limits(seconds=0.2, at_once=1, threads=2))
    other, release = FileLog(tmp_path), threading.Event()

    def hold() -> None:
        with other.lock():
            release.wait(10)

    async def ask_twice() -> list[httpx.Response]:
        answers = await asyncio.gather(*(slow.ask_now("POST", "/deployments", {}) for _ in range(2)))
        release.set()
        while not slow.session.status()["abandoned"]:  # the client never learned of the deployment
            await asyncio.sleep(0.05)
        return answers

    holder = threading.Thread(target=hold)
    holder.start()
    answers = asyncio.run(ask_twice())
    holder.join()
    assert [one.status_code for one in answers] == [503, 503]
    assert {one.json()["error"] for one in answers} == {"no answer within 0.2 s", "1 requests are under way"}
    assert answers[0].headers["retry-after"] == "1" and slow.session.status()["pending"] == 0


def test_a_log_that_cannot_be_written_lets_the_incumbent_act(tmp_path):
    def fail(file: int) -> None:
        raise OSError("no space left on device")

    session = Session(FileLog(tmp_path), make_agent())
    client = Client(session)
    session.log._fsync = fail
    made = client.post("/deployments", {})
    assert made["id"] is None and made["component"] == "incumbent" and "no space left" in made["reason"]
    assert client.ask("POST", "/decisions", {"what": "halt", "reason": "x"}).status_code == 503


def test_an_outdated_session_is_opened_again(tmp_path):
    sessions = [es.open(tmp_path, make_agent()) for _ in range(2)]
    app = Service(sessions[0], TOKEN, reopen=lambda: sessions[1]).app
    sessions[0].is_outdated = True
    client = Client(sessions[1])
    client.app = app
    assert client.post("/deployments", {})["id"] == 0
    assert sessions[1].state.num_deployed == 1 and sessions[0].state.num_deployed == 0


def test_the_openapi_document_describes_every_operation(client):
    document = client.get("/openapi.json")
    assert document == json.loads(json.dumps(openapi_document()))
    assert set(document["paths"]["/deployments/{id}/report"]) == {"post"}
    text, schemas = json.dumps(document), document["components"]["schemas"]
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names == set(schemas) and {"ReportRequest", "Step", "Problem", "Decision"} <= names
    assert schemas["Step"]["required"] == ["observation", "action"]
    assert document["paths"]["/health"]["get"]["security"] == [] and document["security"] == [{"token": []}]


def test_metrics(client):
    made = client.post("/deployments", {})
    text = client.ask("GET", "/metrics").text
    assert "episafe_deployments 1.0" in text and "episafe_pending 1.0" in text and "episafe_halted 0.0" in text
    weight = made["weights"]["proposal-1"]
    assert f'episafe_weight{{policy="proposal-1"}} {weight}' in text
    assert f'episafe_limit{{limit="utility"}} {client.session.task.thresholds[0]}' in text


@pytest.mark.parametrize("where", ["file", "postgres"])
def test_two_workers_share_one_session(tmp_path, where):
    with ExitStack() as stack:
        location, name = str(tmp_path / "shop"), None
        if where == "postgres":
            running, name = stack.enter_context(server()), "shop"
            if isinstance(running, str):
                pytest.skip(running)
            location = running.address
        serve_and_play(location, name)


def serve_and_play(location: str, name: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {"token": TOKEN, "name": name, "port": port, "workers": 2}
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(location, uniform_agent), kwargs=options)
    process.start()

    def ask(path: str, body: dict) -> dict:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), HEADERS)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def pair(k: int) -> int:
        id = ask("/deployments", {"episode_id": f"order {k}"})["id"]
        assert ask(f"/deployments/{id}/report", {"total_utility": 2.0})["counted"]
        return id

    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError):
                ask("/deployments", {"episode_id": "order 0"})
                break
            time.sleep(0.1)
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        with ThreadPoolExecutor(8) as threads:
            assert sorted(threads.map(pair, range(30))) == list(range(30))
    finally:
        process.terminate()
        process.join(30)
    assert process.exitcode == 0 and len(workers) >= 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
    assert "<span>reported</span><b>30</b>" in session_page(location, name)
    assert es.audit(location, name=name).passed
