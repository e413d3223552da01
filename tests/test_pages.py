"""Every page in a real browser: no script errors, nothing clipped or faint; offline, by keyboard, by ear, on paper."""

import base64
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import uvicorn

import episafe as es
from browser import CHROMIUM, DRIVER, SCHEMES, WIDTHS, browser, look_at, unnamed, unreachable
from episafe.benchmark.results import Row
from episafe.deployment.explanation import explain
from episafe.reports import benchmark_page, explanation_page
from episafe.reports.audit_page import as_html
from episafe.reports.frontier_page import to_html
from episafe.reports.report import write_report
from episafe.service import openapi
from episafe.service.dashboard import Dashboard

pytest.importorskip("selenium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver here"),
]
ROOT = Path(__file__).parent.parent
PAGES = (
    "run", "two-constraints", "live", "several", "bandit", "audit", "audit-two", "explanation", "frontier", "benchmark",
    "dashboard", "service",
)  # fmt: skip


@pytest.fixture(scope="module")
def driver():
    with browser() as made:
        yield made


def live_session(folder):
    """A session of which one report is late, and which a person has halted."""
    cmdp, rng = es.make("streaming", seed=0), np.random.default_rng(0)
    task, steps = cmdp.task, np.arange(cmdp.task.horizon)
    with es.open(folder, agent=es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation())) as session:
        for k in range(40):
            deployed, states, actions = session.deploy(rng), [task.initial_state], []
            for h in steps:
                actions.append(deployed.policy.act(h, states[-1], rng))
                states.append(int(rng.choice(task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
            signals = [signal[steps, states[:-1], actions] for signal in (task.reward, task.utility)]
            if k != 7:
                session.learn(
                    es.Episode(states, actions, *signals, component=deployed.component), deployment=deployed.id
                )
        session.halt("a person said so")
        session.deploy(rng)


def points():
    """What `episafe frontier` would draw, small."""
    return [
        {"env": "streaming", "agent": agent, "multiplier": multiplier, "regret": 100 * multiplier, "level": "heuristic",
         "regret_half_width": 9.0, "violation": 0.5 / multiplier, "violation_half_width": 0.1, "num_problems": 3,
         "num_episodes": 300}
        for agent in ("opse, tuned", "opse, published", "ghosh, published", "dope, published")
        for multiplier in (2.0, 1.0, 0.5)
    ]  # fmt: skip


def benchmark():
    """The page of `episafe benchmark`, small."""
    agents = ("opse-observation", "ghosh", "incumbent")
    rows = [
        Row(name, agent, 100, 3, 1.0, int(agent == "ghosh"), 0.0, 0.5, 0.1, 0.2, 0.1, 40.0, 1.5, 1e4)
        for name in ("streaming", "ring", "media", "jobs", "linear")
        for agent in agents
    ]  # fmt: skip
    sets = {row.set: ("known signals", row.set) for row in rows}
    said = [asdict(row) for row in rows]
    return benchmark_page.to_html(said, said, [], [], sets, {}, "five sets of three problems")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The address of every page, by its name."""
    folder = tmp_path_factory.mktemp("pages")
    for name, options in (("run", {}), ("two-constraints", {"num_constraints": 2})):
        cmdp = es.make("tabular", seed=0, **options)
        agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
        record = es.run(cmdp, agent, 120, folder=folder / name)
    for seed in range(2):
        record.noting(run_seed=seed).save(folder / "several" / str(seed))
        bandit = es.bandits.make("finite", seed=seed)
        es.run(bandit, es.bandits.OPLBSP(bandit.task, radius="determinant"), 200, seed).save(
            folder / "bandit" / str(seed)
        )
    live_session(folder / "live")
    found, two = es.audit(folder / "live"), es.audit(folder / "two-constraints")
    written = {name: write_report(folder / name) for name in ("run", "two-constraints", "several", "bandit", "live")}
    drawn = {
        "audit": as_html(found.as_dict(), found.lines),
        "audit-two": as_html(two.as_dict(), two.lines),
        "explanation": explanation_page.to_html("live", explain(folder / "live", 0)),
        "frontier": to_html(points(), []),
    }
    for name, page in {**drawn, "benchmark": benchmark(), "service": openapi.page()}.items():
        written[name] = folder / f"{name}.html"
        written[name].write_text(page)
    with dashboard(folder / "live") as address:
        yield {**{name: f"file://{path}" for name, path in written.items()}, "dashboard": address}


@contextmanager
def dashboard(folder):
    """The address of a dashboard that follows a folder."""
    server = uvicorn.Server(uvicorn.Config(Dashboard(folder).app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://localhost:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_right_at_every_width_light_and_dark(driver, pages, name):
    for width in WIDTHS:
        for scheme in SCHEMES:
            assert look_at(driver, pages[name], width, scheme) == [], (name, width, scheme)


def test_the_tables_of_the_paper_need_no_scrolling_on_a_laptop(driver, tmp_path):
    cmdp = es.make("tabular", seed=0)
    record = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation()), 60)
    agents = ("opse-observation", "opse-fresh-data", "ghosh", "incumbent")
    for row in product(("tabular", "streaming", "linear"), ("released", "text"), agents, range(3)):
        said = dict(zip(("env", "variant", "agent", "run_seed"), row, strict=True))
        record.noting(**said).save(tmp_path / "-".join(map(str, row)))
    page = write_report(tmp_path)
    beyond = "return [...document.querySelectorAll('.scroll')].map(one => one.scrollWidth - one.clientWidth)"
    for width in (1200, 1280, 1400):
        assert look_at(driver, page.as_uri(), width, "light") == []
        assert driver.execute_script(beyond) == [0, 0], width


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_used_by_keyboard_and_by_ear(driver, pages, name):
    look_at(driver, pages[name], WIDTHS[0], "light")
    assert unreachable(driver) == [] and unnamed(driver) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_dark_on_white_and_within_the_paper(driver, pages, name, tmp_path):
    driver.get(pages[name])
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shut = (
        "return [...document.querySelectorAll('details:not(.row) > :not(summary)')].filter(o => !o.checkVisibility())"
    )
    assert driver.execute_script(shut) == []  # nobody can open it on paper
    done = driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert base64.b64decode(done["data"]).startswith(b"%PDF")
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    )
    beyond = driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert beyond <= 0  # 718 pixels are the width of A4 within Chromium's margins


@pytest.mark.parametrize("script", ["throw new Error('x')", "fetch('https://example.org/')"])
def test_a_page_with_a_fault_is_found(driver, pages, script, tmp_path):
    """Controls: an error of a script, and a request, are seen."""
    page = tmp_path / "page.html"
    text = Path(pages["run"].removeprefix("file://")).read_text()
    page.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    assert look_at(driver, f"file://{page}", 1400, "light")


def test_a_clipped_faint_nameless_page_is_found(driver, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        "<html><body><p style='width:3000px;color:#eee'>wide</p><button></button>"
        "<span tabindex='-1'><a href='#' tabindex='-1'>x</a></span></body></html>"
    )
    seen = look_at(driver, f"file://{page}", 768, "light")
    assert any("wider" in one for one in seen) and any("faint" in one for one in seen)
    assert "a button without a name" in unnamed(driver) and any("not reached" in one for one in unreachable(driver))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", ROOT / "docs", folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", ["index", "five-minutes", "choosing", "gallery", "theory-certificates", "genindex"])
def test_the_site_is_read_offline_and_nothing_is_clipped(driver, site, name):
    for width in WIDTHS:
        seen = look_at(driver, f"file://{site / name}.html", width, "light")
        assert [one for one in seen if not one.startswith("faint")] == [], (name, width)  # colours are the theme's


@pytest.mark.parametrize(("media", "width"), [("screen", 768), ("print", 717)])
def test_no_table_or_code_of_the_site_is_moved_sideways_on_a_tablet_or_cut_on_paper(driver, site, media, width):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    moved = """return [...document.querySelectorAll(".table-wrapper, .highlight pre")]
        .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim().slice(0, 40))"""
    wide = []
    for page in sorted(site.rglob("*.html")):
        driver.get(f"file://{page}")
        wide += [(page.name, words) for words in driver.execute_script(moved)]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert wide == []


def test_names_on_the_site_are_broken_between_words_alone(site):
    cells = re.findall(r"<td.*?</td>", (site / "paper-map.html").read_text(), flags=re.DOTALL)
    names = re.findall(r'<span class="pre">([^<]*(?:<wbr>[^<]*)+)</span>', "".join(cells))
    assert len(names) > 100 and all(re.search(r"[._/=:]$", part) for name in names for part in name.split("<wbr>")[:-1])
    agents = (site / "agents.html").read_text()
    assert '<span class="pre whole">opse-observation</span>' in agents
    assert '<td class="number"><p>0.003</p></td>' in agents


def test_no_formula_of_the_site_is_read_as_emphasis(site):
    """Underscores behind a bracket or a dash begin emphasis in Markdown, and are eaten: φ_i‖_{Λ} … ‖_{Λ}."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<code.*?</code>", "", page.read_text(), flags=re.DOTALL)
        said = [re.sub(r"<.*?>", "", words) for words in re.findall(r"<em>(.*?)</em>", text, flags=re.DOTALL)]
        assert [words for words in said if re.search(r"[{}^‖Σᵀ]", words)] == [], page.name


def test_the_search_page_says_what_to_do_before_anything_is_asked(driver, site):
    driver.get(f"file://{site}/search.html")
    said = driver.find_element("css selector", "[role=main]").text
    assert "Words to look for" in said and "index" in said and not unnamed(driver)
    driver.find_element("id", "words").send_keys("incumbent\n")
    assert "q=incumbent" in driver.current_url


def test_the_site_finds_words(driver, site):
    driver.get(f"file://{site}/search.html?q=incumbent")
    found = "return document.querySelectorAll('#search-results li').length"
    from selenium.webdriver.support.ui import WebDriverWait

    assert WebDriverWait(driver, 20).until(lambda driver: driver.execute_script(found))
