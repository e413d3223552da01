"""Sweeps: what a file asks for is what is run, nothing is made twice, and kills lose only what was under way."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.experiments import worker_pool
from episafe.experiments.executors import Here, executor_on
from episafe.experiments.job import Job
from episafe.experiments.sweep import read_sweep
from episafe.experiments.worker_pool import run_jobs

FILE = """
title = "a try"
episodes = 30
seeds = ["0..2", 7]

[[environment]]
name = "streaming"
buffer_length = [4, 5]

[[agent]]
name = "opse"
constants = "tuned"
C_u = [1.0, 2.0]

[[agent]]
name = "incumbent"
"""
OWN = """
import episafe as es

def problem(seed, loss=0.0):
    return es.make("streaming", seed, threshold_scale=0.6 - loss)

def cautious(task, policy="incumbent"):
    return es.Fixed(task, policy)
"""
LIVE = """
import time
import gymnasium
import episafe as es

class Ring(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(8), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = 0
        return 0, {}

    def step(self, action):
        time.sleep(0)  # another thread's turn
        self.s = (self.s + 1 + int(self.np_random.random() < 0.4 + 0.2 * int(action))) % 8
        return self.s, float(action), False, False, {"utility": float(self.s % 3 != 0)}

def made(env):
    return es.from_gymnasium(env, features=es.features.OneHot(), horizon=5, threshold=1.0, slack=0.3,
                             safe_policy=lambda h, s: [1.0, 0.0])

env = Ring()
problem, wrapped = made(env), made(gymnasium.Wrapper(env))
"""


@pytest.fixture
def here(monkeypatch):
    """Everything in this process: processes are tested where they matter."""
    from contextlib import nullcontext

    monkeypatch.setattr(worker_pool, "processes", lambda workers: nullcontext(Here()))


def written(path, text=FILE):
    path.write_text(text)
    return path


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def jobs(num=6, num_episodes=20, **more):
    return [Job(f"run-{seed}", "streaming", "opse", seed, num_episodes, **more) for seed in range(num)]


def facts(folder):
    """All of a record that does not depend on the clock."""
    record = es.Record.load(folder)
    said = {name: value for name, value in record.settings.items() if name != "seconds"}
    return {name: getattr(record, name).tobytes() for name in record.columns()}, said, record.optimum


def test_lists_are_tried_in_every_combination_and_ranges_have_both_ends(tmp_path):
    sweep = read_sweep(written(tmp_path / "a.toml"))
    assert sweep.seeds == (0, 1, 2, 7)
    made = sweep.jobs()
    assert len(made) == len({job.name for job in made}) == 4 * 2 * 3
    asked = {(job.agent, job.options, job.changes, job.constants) for job in made}
    assert ("opse", (("buffer_length", 5),), (("C_u", 2.0),), "tuned") in asked
    assert ("incumbent", (("buffer_length", 4),), (), "published") in asked
    assert [job.seed for job in made] == sorted(job.seed for job in made)  # seed by seed


def test_a_value_that_is_itself_a_list_is_listed(tmp_path):
    text = FILE.replace("buffer_length = [4, 5]", "reward_probability = [[0.1, 0.2], [0.3, 0.4]]")
    text = text.replace('"streaming"', '"own:problem"')
    assert [values for _, values in read_sweep(written(tmp_path / "a.toml", text)).environments] == [
        (("reward_probability", (0.1, 0.2)),), (("reward_probability", (0.3, 0.4)),),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"streaming"', '"maze"', "no environment 'maze'"),
        ('"opse"', '"ppo"', "no agent 'ppo'"),
        ("buffer_length", "length", "streaming has no option 'length'; it has"),
        ("C_u", "C_q", "opse has no C_q"),
        ('name = "incumbent"', 'name = "incumbent"\nC_u = 1', "incumbent reads no constants"),
        ("episodes = 30", "", "episodes is missing"),
        ("episodes = 30", "episodes = 0", "episodes must be"),
        ("title", "tittle", "no 'tittle' here"),
        ('["0..2", 7]', '"5..2"', "ranges such as"),
        ('["0..2", 7]', "[1.5]", "ranges such as"),
        ("[[agent]]", "[agent]", "is no TOML"),
        ("seeds = ", "seeds = [", "is no TOML"),
        ('["0..2", 7]', '"0..999999999"', "seeds, more than"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_before_anything_runs(tmp_path, old, new, message):
    done = invoke("sweep", written(tmp_path / "a.toml", FILE.replace(old, new)), "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_a_sweep_makes_what_is_missing_and_its_report_keeps_settings_apart(tmp_path, here):
    file, out = written(tmp_path / "a.toml"), tmp_path / "out"
    first = invoke("sweep", file, "--out", out)
    assert first.exit_code == 0, first.output
    assert "24 runs made, 0 were there already" in first.stdout
    page = (out / "summary.md").read_text()
    assert "C_u=1.0" in page and "C_u=2.0" in page and "differ in C_u" not in page
    written(file, FILE.replace("7]", "7, 8]"))
    assert "6 runs made, 24 were there already" in invoke("sweep", file, "--out", out).stdout
    frame = es.results(out)
    assert len(frame) == 30 and set(frame.changes.dropna()) == {"C_u=1.0", "C_u=2.0"}


def test_own_environments_and_agents_are_named_by_module(tmp_path, here, monkeypatch):
    (tmp_path / "own_sweep.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    text = FILE.replace('"streaming"\nbuffer_length = [4, 5]', '"own_sweep:problem"\nloss = [0.0, 0.25]')
    text = text.replace('name = "incumbent"', 'name = "own_sweep:cautious"\npolicy = ["incumbent", "uniform"]')
    done = invoke("sweep", written(tmp_path / "a.toml", text), "--out", "out")
    assert done.exit_code == 0, done.output
    frame = es.results("out")
    assert len(frame) == 4 * 2 * 4
    assert set(frame.agent) == {"opse", "incumbent", "uniform"}
    assert set(frame.env) == {"streaming", "own_sweep:problem"} - {"streaming"}
    assert set(frame.options) == {"loss=0.0", "loss=0.25"}


@pytest.fixture
def live(tmp_path, monkeypatch):
    """A module with one environment that is two problems, one of them of its wrapper."""
    pytest.importorskip("gymnasium")
    (tmp_path / "live_sweep.py").write_text(LIVE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import live_sweep

    yield live_sweep
    del sys.modules["live_sweep"]


def test_one_environment_has_one_run_at_a_time_whatever_the_threads(tmp_path, live):
    found = []
    for threads in (1, 4):
        folder = tmp_path / str(threads)
        asked = [
            Job(f"{name}-{seed}", f"live_sweep:{name}", "incumbent", seed, 100)
            for seed in range(4)
            for name in ("problem", "wrapped")
        ]
        with ThreadPoolExecutor(threads) as executor:
            assert run_jobs(asked, folder, executor=executor) == (0, {})
        found.append([facts(folder / job.name) for job in asked])
    assert found[0] == found[1]


def test_a_run_in_the_midst_of_another_of_its_environment_is_refused(live):
    problem, outcomes = live.problem, []

    def another(done):
        with ThreadPoolExecutor(1) as executor:
            outcomes.append(executor.submit(live.wrapped.reset).exception())
        with pytest.raises(es.InvalidProblem, match="a run of this environment is under way"):
            es.run(live.wrapped, es.Fixed(live.wrapped.task, "incumbent"), 10)

    expected = es.run(problem, es.Fixed(problem.task, "incumbent"), 50)
    record = es.run(problem, es.Fixed(problem.task, "incumbent"), 50, on_progress=another)
    assert outcomes and all("a run in another thread plays this environment" in str(error) for error in outcomes)
    assert np.array_equal(record.utility_totals, expected.utility_totals)
    problem.reset()  # and it is free again


def test_an_environment_is_free_again_after_a_run_that_failed(tmp_path, live):
    problem = live.problem
    with pytest.raises(ZeroDivisionError):
        es.run(
            problem, es.Fixed(problem.task, "incumbent"), 50, on_progress=lambda done: 1 // 0, folder=tmp_path / "run"
        )
    with ThreadPoolExecutor(1) as executor:
        resumed = {"cmdp": problem, "agent": es.Fixed(problem.task, "incumbent")}
        record = executor.submit(es.resume, tmp_path / "run", **resumed).result(timeout=60)
    assert np.array_equal(
        record.utility_totals, es.run(problem, es.Fixed(problem.task, "incumbent"), 50).utility_totals
    )


def test_a_folder_with_a_run_of_other_settings_is_refused_and_left_alone(tmp_path, here):
    run_jobs(jobs(2), tmp_path)
    before = facts(tmp_path / "run-0")
    with pytest.raises(ValueError, match="holds a run of other settings"):
        run_jobs(jobs(2, num_episodes=21), tmp_path)
    assert facts(tmp_path / "run-0") == before
    with pytest.raises(ValueError, match="two runs are called run-0"):
        run_jobs([*jobs(1), *jobs(1)], tmp_path)


def test_a_record_of_another_version_is_not_kept(tmp_path, here, monkeypatch):
    real = worker_pool.versions()
    monkeypatch.setattr(worker_pool, "versions", lambda: {**real, "numpy_version": "0.9"})
    _, failures = run_jobs(jobs(1), tmp_path)
    assert "numpy_version" in failures["run-0"] and "install the same everywhere" in failures["run-0"]
    monkeypatch.undo()
    assert not (tmp_path / "run-0" / "run.toml").exists()


def test_bytes_that_come_back_damaged_are_not_kept(tmp_path, monkeypatch):
    def torn(job):
        files = job.record().files()
        return {**files, "episodes.npz": files["episodes.npz"][:-1]}

    monkeypatch.setattr(worker_pool, "_files", torn)
    _, failures = run_jobs(jobs(2), tmp_path, executor=Here())
    assert set(failures) == {"run-0", "run-1"} and "DamagedFile" in failures["run-0"]
    monkeypatch.undo()
    there, failures = run_jobs(jobs(2), tmp_path, executor=Here())
    assert (there, failures) == (0, {})


def test_executors_are_named():
    with executor_on("local") as executor:
        assert executor is None
    for wrong in ("remote", "dask", "dask:"):
        with pytest.raises(ValueError, match="--on takes"), executor_on(wrong):
            pass


KILLING = """
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path
from episafe.experiments.job import Job
from episafe.experiments.worker_pool import run_jobs

@dataclass(frozen=True)
class Deadly(Job):
    marks: str = ""

    def compiled_as(self):
        return "nothing", "nothing"

    def short(self):
        return Job("short", "streaming", "incumbent", 0, 1)

    def record(self):
        mark = Path(self.marks) / self.name
        with open(mark, "a") as file:
            file.write(".")
        often = 99 if self.name == "always" else 1 if self.name == "once" else 0
        if len(mark.read_text()) <= often:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().record()

if __name__ == "__main__":
    folder, marks = map(Path, sys.argv[1:3])
    names = [f"run-{n}" for n in range(4)] + sys.argv[3:]
    jobs = [Deadly(name, "streaming", "incumbent", seed, 5, marks=str(marks)) for seed, name in enumerate(names)]
    print(run_jobs(jobs, folder, 2))
"""


@pytest.mark.parametrize("deadly", ["once", "always"])
def test_a_killed_worker_loses_only_what_was_under_way(tmp_path, deadly):
    (tmp_path / "killing.py").write_text(KILLING)
    folder, marks = tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    done = subprocess.run(
        [sys.executable, tmp_path / "killing.py", folder, marks, deadly], capture_output=True, text=True, check=True
    )
    there = {path.parent.name for path in folder.glob("*/run.toml")}
    assert there >= {f"run-{n}" for n in range(4)}  # a pool that dies takes what it had begun with it, and is replaced
    assert ("once" in there) == (deadly == "once")
    assert ("its worker was killed" in done.stdout) == (deadly == "always")


def test_a_killed_driver_loses_nothing_that_was_written(tmp_path):
    file, out = written(tmp_path / "a.toml", FILE.replace("episodes = 30", "episodes = 20_000")), tmp_path / "out"
    command = [sys.executable, "-m", "episafe", "sweep", file, "--out", out, "--workers", "1"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _until(lambda: len(list(out.glob("records/*/run.toml"))) >= 3, 120)
    finally:
        driver.kill()
        driver.wait()
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("records/*/run.toml")}
    assert 3 <= len(stamps) < 24
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{24 - len(stamps)} runs made, {len(stamps)} were there already" in again.stdout
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert len(es.load_records(out)) == 24


def _until(is_so, seconds):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


class Cluster:
    """A Dask scheduler and workers, each a process of its own that can be killed."""

    def __init__(self, folder: Path, num_workers: int) -> None:
        place = folder / "scheduler.json"
        here = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        here += ["--host", "127.0.0.1", "--scheduler-file", str(place)]
        self.scheduler = subprocess.Popen(here, **quiet)
        _until(place.exists, 60)
        import json

        self.address = json.loads(place.read_text())["address"]
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny"]
        self.workers = [subprocess.Popen([*worker, "--no-dashboard"], **quiet) for _ in range(num_workers)]

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path, 3)
    yield made
    made.close()


@pytest.mark.slow
def test_dask_gives_the_same_bytes_as_this_process(tmp_path, cluster):
    with executor_on(f"dask:{cluster.address}") as executor:
        assert run_jobs(jobs(12, 2000), tmp_path / "dask", executor=executor) == (0, {})
    run_jobs(jobs(12, 2000), tmp_path / "here", executor=Here())
    for job in jobs(12, 2000):
        assert facts(tmp_path / "dask" / job.name) == facts(tmp_path / "here" / job.name)


@pytest.mark.slow
def test_dask_loses_nothing_when_two_of_three_workers_are_killed(tmp_path, cluster):
    killed = []

    def on_done(job):
        if len(killed) < 2:
            victim = cluster.workers[len(killed)]
            os.kill(victim.pid, signal.SIGKILL)
            killed.append(victim)

    with executor_on(f"dask:{cluster.address}") as executor:
        assert run_jobs(jobs(40, 20_000), tmp_path / "dask", on_done=on_done, executor=executor) == (0, {})
    assert len(killed) == 2 and len(es.load_records(tmp_path / "dask")) == 40


@pytest.mark.slow
def test_a_killed_scheduler_ends_the_sweep_and_the_same_command_finishes_it(tmp_path, cluster):
    def on_done(job):
        if cluster.scheduler.poll() is None:
            cluster.scheduler.kill()

    made = jobs(40, 20_000)
    with executor_on(f"dask:{cluster.address}") as executor:
        _, failures = run_jobs(made, tmp_path / "dask", on_done=on_done, executor=executor)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "dask").glob("*/run.toml")}
    assert 1 <= len(stamps) < 40 and len(failures) == 40 - len(stamps)
    assert all("the cluster is gone" in reason for reason in failures.values())
    assert run_jobs(made, tmp_path / "dask", executor=Here()) == (len(stamps), {})
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    np.testing.assert_equal(len(es.load_records(tmp_path / "dask")), 40)
