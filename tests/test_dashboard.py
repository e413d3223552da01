"""`episafe dashboard`: what the page says is what the journal holds, while it is written, and nothing changes."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time

import httpx
import numpy as np
import pytest
import uvicorn
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.deployment.audit import audit
from episafe.deployment.explanation import explain
from episafe.deployment.follower import Follower
from episafe.deployment.frame_kinds import Kind
from episafe.reports import dashboard_page
from episafe.reports.audit_page import as_html
from episafe.service.dashboard import Dashboard
from episafe.storage.frames import UNREADABLE, decode
from episafe.storage.journal_files import LENGTH

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def rollout():
    return es.Rollout(0.5, 0.35, candidates={"v2": "v2"}, incumbent="v1", utility_max=1.0)


def play(session, num, seed=0, utility=0.9, every=0):
    """So many deployments; of every so many one is not reported."""
    rng = np.random.default_rng(seed)
    for k in range(num):
        made = session.deploy(rng)
        if not every or k % every:
            episode = es.Episode.of_totals(float(rng.random() < utility), 1.0 + rng.random())
            session.learn(episode, deployment=made.id)


@pytest.fixture
def session(tmp_path):
    with es.open(tmp_path / "shop", rollout()) as opened:
        yield opened


def ask(dashboard, path, **headers):
    """An answer of the application itself, without a network."""

    async def asked():
        transport = httpx.ASGITransport(app=dashboard.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(asked())


def test_what_is_read_bit_by_bit_is_what_the_session_counts(session, tmp_path):
    follower = Follower(tmp_path / "shop")
    assert follower.read_on() and follower.record is None and not follower.read_on()
    play(session, 150)
    while follower.read_on(seconds=0.0):  # one frame at a time
        pass
    session.promote("v2", "the release of May")
    session.change("the board asks for more", threshold=0.6, slack=0.25)
    session.halt("a person")
    play(session, 25, seed=1, every=5)
    session.abandon(next(iter(session.book.waiting)))
    assert follower.read_on() and follower.share_read == 1.0
    status, columns = session.status(), follower.columns
    counted = len(columns), columns.reported, len(columns.waiting), columns.abandoned
    assert counted == (status.started, status.reported, status.num_missing, status.abandoned) == (175, 170, 4, 1)
    assert (follower.halted, follower.promoted, follower.threshold) == ("a person", "v2", 0.6)
    assert follower.earlier == [(150, 0.5)] and columns.halts == [(149, "a person")]
    said = [event.says for event in follower.events]
    assert "promoted v2: the release of May" in said and "exploring was stopped: a person" in said
    at_once = Follower(tmp_path / "shop")
    at_once.read_on()
    for name in at_once.record.columns():
        np.testing.assert_array_equal(getattr(at_once.record, name), getattr(follower.record, name))
    newest = follower.latest()[0]
    assert (newest.number, newest.acting) == (174, "v2") and newest.why.threshold == 0.6


def test_most_frames_are_not_read_as_json_and_say_the_same(session, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for k in range(60):  # coins of the session and of the caller; names, some of which JSON escapes
        name = (None, f"order-{k}", None, f'a "quoted" {k}')[k % 4]
        made = session.deploy(rng, episode_id=name) if k % 3 else session.plan()
        number = made.id if k % 3 else made.deployment
        if k % 7:
            session.learn(es.Episode.of_totals(1.0, float(k), component=None if k % 3 else 0), deployment=number)
    read = []
    monkeypatch.setattr("episafe.storage.frames.decode", lambda payload: read.append(payload) or decode(payload))
    quick, slow = Follower(tmp_path / "shop"), Follower(tmp_path / "shop")
    quick.read_on()
    counted = [payload for payload in read if b'"component":' in payload or b'"values":' in payload]
    assert counted and all(b"quoted" in payload for payload in counted)
    monkeypatch.setattr("episafe.deployment.live_columns.COMMON", {})
    slow.read_on()
    assert dashboard_page.figures(quick) == dashboard_page.figures(slow)
    assert quick.columns.waiting == slow.columns.waiting and quick.events == slow.events
    for name in slow.record.columns():
        np.testing.assert_array_equal(getattr(quick.record, name), getattr(slow.record, name))


@pytest.mark.parametrize(
    "text, more",
    [
        (b'[{"id":1,"plan":0,"component":0,"time":"t"},[]]', 1),  # says that its text is longer than it is
        (b'[{"id":1,"plan":0,"component":0,"time":"t"},[]]', -1),
        (b'[{"id":01,"plan":0,"component":0,"time":"t"},[]]', 0),
        (b'[{"id":1,"plan":00,"component":null,"time":"t"},[]]', 0),
        (b'[{"id":1,"plan":0,"component":0,"time":"t\t"},[]]', 0),
        (b'[{"id":1,"plan":0,"component":0,"time":"t","name":"\xe9"},[]]', 0),
        (b'[{"plan":0,"deployment":1,"named":true,"id":"\xff","time":"t","values":"[]"},[]]', 0),
    ],
)
def test_what_the_reader_refuses_fits_no_pattern(session, tmp_path, text, more):
    payload = LENGTH.pack(len(text) + more) + text
    with pytest.raises(UNREADABLE):
        decode(payload)
    columns = Follower(tmp_path / "shop").columns
    assert not any(columns.take_common(kind, payload) for kind in (Kind.DEPLOY, Kind.REPORT))


def test_an_alarm_is_one_and_the_page_says_it(session, tmp_path):
    play(session, 150)
    session.promote("v2", "the release of May")
    session.halt("quiet")
    play(session, 300, seed=1, utility=0.0)
    follower = Follower(tmp_path / "shop")
    follower.read_on()
    assert session.monitors.alarms and follower.num_alarms == len(session.monitors.alarms)
    page = dashboard_page.page(follower, 2.0)
    assert "alarm of the monitors" in page and "Halted: the incumbent acts" in page
    assert "src=" not in page and "http" not in page.replace("http-equiv", "")  # nothing from elsewhere


def test_the_page_follows_while_it_is_written_and_changes_nothing(session, tmp_path):
    folder = tmp_path / "shop"
    play(session, 20)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    dashboard = Dashboard(folder)
    page, inside, figures = (ask(dashboard, path) for path in ("/", "/inside", "/figures.json"))
    assert page.status_code == inside.status_code == figures.status_code == 200
    assert figures.json()["deployments"] == 20 and "20 deployments" in inside.text and inside.text in page.text
    assert ask(dashboard, "/inside", **{"if-none-match": inside.headers["etag"]}).status_code == 304
    play(session, 1, seed=1)
    again = ask(dashboard, "/inside", **{"if-none-match": inside.headers["etag"]})
    assert again.status_code == 200 and "21 deployments" in again.text
    assert all((folder / name).read_bytes().startswith(data) for name, data in before.items() if "log" in name)
    assert {path.name for path in folder.iterdir()} == before.keys()
    assert json.loads(figures.text)["latest"][0]["why"][0].startswith("Plan")


def test_another_name_of_this_machine_is_refused(session, tmp_path):
    assert ask(Dashboard(tmp_path / "shop"), "/", host="evil.example").status_code == 403


def test_damage_is_said_and_a_repaired_folder_is_read_anew(tmp_path):
    folder = tmp_path / "shop"
    with es.open(folder, rollout()) as session:
        play(session, 20)
    dashboard = Dashboard(folder)
    assert ask(dashboard, "/inside").status_code == 200
    data = bytearray((folder / "journal.log").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "journal.log").write_bytes(data + b"eF2")
    answer = ask(Dashboard(folder), "/inside")
    assert answer.status_code == 503 and "repair" in answer.json()["error"]
    es.repair(folder)
    figures = ask(dashboard, "/figures.json").json()
    assert 0 < figures["deployments"] < 20 and figures["halted"] and figures["abandoned"]


def test_an_unfinished_frame_is_waited_for(session, tmp_path):
    play(session, 5)
    data = (tmp_path / "shop" / "journal.log").read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "shop", copy)
    (copy / "journal.log").write_bytes(data[:-10])
    follower = Follower(copy)
    follower.read_on()
    reported = follower.columns.reported
    (copy / "journal.log").write_bytes(data)
    assert follower.read_on() and follower.columns.reported == reported + 1 == 5


def test_a_simulation_and_several_constraints_are_followed(tmp_path):
    cmdp = es.make("tabular", seed=0, num_constraints=2)
    agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"), certifier=es.certify.Observation())
    record = es.run(cmdp, agent, num_episodes=60, seed=0, folder=tmp_path)
    found = CliRunner().invoke(app, ["dashboard", str(tmp_path), "--json"])
    said = json.loads(found.output)
    assert (said["kind"], said["deployments"], said["missing"]) == ("run", 60, 0)
    assert said["incumbent_acted"] == record.incumbent_acted().sum() and len(said["thresholds"]) == 2
    follower = Follower(tmp_path)
    follower.read_on()
    page = dashboard_page.page(follower, 2.0)
    assert page.count("Lower bound of each plan") >= 2 and "constraint 2" not in page
    assert "The agent decides: a coin draws one of 2 policies" in page and "Reward: not known" not in page
    assert all(name in page for name in cmdp.task.constraint_names)  # "constraint 0", as the task counts


def test_constraints_are_called_what_the_task_calls_them(tmp_path):
    folder, rng = tmp_path / "shop", np.random.default_rng(0)

    def built():
        return es.Rollout([0.5, 0.6], [0.4, 0.2], {"v2": ["v2"]}, ["v1"], 0.05, 1.0, names=("speed", "safety"))

    with es.open(folder, built()) as session:
        for _ in range(40):
            session.learn(es.Episode.of_totals(rng.beta(9, 1, 2), 1.0), deployment=session.deploy(rng).id)
    follower = Follower(folder)
    follower.read_on()
    assert follower.record.constraint_names == ("speed", "safety")
    why = " ".join(follower.latest()[0].why.sentences)
    assert "in safety, which has the least room." in why and why.startswith("Plan")
    assert "in safety" in " ".join(explain(folder).sentences)
    page = dashboard_page.page(follower, 2.0)
    assert "speed" in page and "Of safety, the constraint with the least room." in page and "constraint 0" not in page
    found = audit(folder, built())
    page = as_html(found.as_dict(), found.lines)
    assert "Lower bound of each plan: speed" in page and "constraint 0" not in page


def test_usage(tmp_path):
    found = CliRunner().invoke(app, ["dashboard", str(tmp_path)])
    assert found.exit_code == 2 and "holds no journal" in found.output


def test_the_page_of_a_long_journal_is_there_before_all_of_it_was_read(session, tmp_path, monkeypatch):
    play(session, 3)
    monkeypatch.setattr("episafe.service.dashboard.AT_MOST", 0.0)  # a frame for each request
    made = Dashboard(tmp_path / "shop")
    assert "Reading the journal" in ask(made, "/").text
    for _ in range(100):
        page = ask(made, "/inside").text
        if "Reading the journal" not in page:
            break
    assert "3 deployments" in page


def test_no_compiler_and_no_drawing_library_is_waited_for(session, tmp_path):
    play(session, 3)
    script = f"""
import sys
from pathlib import Path
import episafe.cli, uvicorn
from episafe.reports import dashboard_page
from episafe.service.dashboard import Dashboard
made = Dashboard(Path({str(tmp_path / "shop")!r}))
made._follower.read_on()
assert "3 deployments" in dashboard_page.page(made._follower, 2.0)
sys.exit(", ".join(name for name in ("numba", "scipy", "matplotlib", "pandas") if name in sys.modules))
"""
    assert not subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stderr.strip()


class Growing(Dashboard):
    """A dashboard whose session goes on when the page has asked for the third time."""

    asked = 0

    def _inside(self, request):
        self.asked += 1
        if self.asked == 3:
            play(self.session, 7, seed=1)
        return super()._inside(request)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1400, 420])
def test_a_real_browser_follows_a_session_that_is_written(session, tmp_path, width):
    play(session, 30)
    dashboard = Growing(tmp_path / "shop", 0.5)
    dashboard.session = session
    server = uvicorn.Server(uvicorn.Config(dashboard.app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1600", "--virtual-time-budget=5000",
        "--dump-dom", f"http://localhost:{port}/",
    ]  # fmt: skip
    try:
        dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    finally:
        server.should_exit = True
        thread.join(10)
    assert "looked at" in dom and "37 deployments" in dom and "does not answer" not in dom.partition("<script>")[0]
    assert dom.count("<details") == 20 and dom.count("<svg") > 4
