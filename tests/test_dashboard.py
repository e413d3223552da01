"""The dashboard: it follows a log that another session writes, and says what the log says."""

import asyncio
import re
from dataclasses import replace

import httpx
import numpy as np
import pytest

import episafe as es
from episafe.service import dashboard
from episafe.service.dashboard import Follower, dashboard_app, session_page
from episafe.session.session import Session


def open_shop(location, name=None) -> Session:
    task = es.make("tabular", seed=0).task
    limit = replace(task.constraints[0], name="service level")
    units = {"service level": "orders served", "reward": "EUR"}
    named = replace(task, constraints=(limit,), units=units)
    return es.open(location, es.SafeAgent(named, candidates={"v<2>": np.full((4, 5, 3), 1 / 3)}), name)


def play(session, count: int, utility: float | None = None) -> None:
    for _ in range(count):
        with session.deploy() as d:
            for h in range(4):
                d.act(0 if h else 4)
                d.record(utility=utility, reward=None if utility is None else 0.0)


def cards(page: str) -> dict[str, str]:
    return dict(re.findall(r'<div class="card"><span>(.*?)</span><b[^>]*>(.*?)</b>', page))


def rows(page: str, title: str) -> list[list[str]]:
    table = page.partition(f"<h2>{title}")[2].partition("</table>")[0]
    cells = [re.findall(r"<td.*?>(.*?)</td>", row, re.S) for row in table.split("<tr>")[2:]]
    return [[re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in cells]


def test_the_page_says_what_the_log_says_while_another_session_writes(tmp_path):
    session = open_shop(tmp_path / "shop")
    play(session, 30)
    pending = [session.deploy(f"order {k}").id for k in range(3)]
    session.abandon(pending.pop())
    follower, files = Follower(tmp_path / "shop"), sorted((tmp_path / "shop").iterdir())
    page, status = follower.page(5), session.status()
    assert list(cards(page).values())[:4] == ["33", "30", "2", "0"]
    assert [row[0] for row in rows(page, "Without a report")] == [str(id) for id in pending]
    (limit,) = rows(page, "Limits")
    assert limit[0] == "service level in orders served" and limit[1] == f"at least {session.task.thresholds[0]:.4g}"
    listed = {row[0]: row for row in rows(page, "Policies")}
    assert set(listed) == {one["name"].replace("<", "&lt;").replace(">", "&gt;") for one in status["policies"]}
    assert listed["incumbent"][3:5] == [str(status["policies"][0][key]) for key in ("deployments", "reports")]
    assert "closed" not in page and "v<2>" not in page and "<svg" in page
    for name, unit in (("mean reward", "EUR"), ("mean service level", "orders served")):
        assert f'{name}<br><span class="soft">{unit}</span>' in page
    play(session, 4)
    assert cards(follower.page())["deployments"] == "37"
    assert sorted((tmp_path / "shop").iterdir()) == files  # a follower writes nothing
    assert "setInterval" in page and "setInterval" not in session_page(tmp_path / "shop")


def test_alarms_have_remedies_and_decisions_their_reasons(tmp_path):
    session = open_shop(tmp_path)
    play(session, 120, utility=0.0)
    page = session_page(tmp_path)
    assert session.status()["halted"] and "Halted: only the incumbent acts until a person resumes" in page
    assert "What to do:</b> Measure the incumbent&#39;s slack again" in page and "halts the session" in page
    session.resume(reason="<b>measured</b> again")
    session.withdraw("v<2>", reason="old")
    page = session_page(tmp_path)
    assert "Halted" not in page and "<b>measured" not in page
    assert [row[1:] for row in rows(page, "Decisions")] == [
        ["withdraw v&lt;2&gt;", "old"],
        ["resume", "&lt;b&gt;measured&lt;/b&gt; again"],
    ]


def test_the_history_is_thinned_and_a_damaged_log_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(dashboard, "POINTS", 10)
    play(open_shop(tmp_path), 75)
    follower = Follower(tmp_path)
    assert [one[0] for one in follower._history] == list(range(0, 75, 8))
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"number": 1}\n')
    page = follower.page()
    assert "The log cannot be read." in page and cards(page)["deployments"] == "75"
    with pytest.raises(FileNotFoundError, match="give the folder of a session"):
        session_page(tmp_path / "nothing")


def test_only_pages_of_this_machine_can_read_it(tmp_path):
    open_shop(tmp_path)
    transport = httpx.ASGITransport(dashboard_app(Follower(tmp_path), "127.0.0.1"))

    async def ask(host: str) -> int:
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return (await client.get("/")).status_code

    assert [asyncio.run(ask(host)) for host in ("127.0.0.1:8001", "localhost", "evil.example")] == [200, 200, 400]
