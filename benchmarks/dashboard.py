"""What following a journal costs: how soon the page of a long one is there, and what its writer notices of it.

    python benchmarks/dashboard.py [--quick] [FOLDER …]

page    a live session of 10^5 episodes (or the folders that are given): seconds until `episafe dashboard` answers, in a
        process of its own, imports included; until the page has all of it, asked as the page's script asks; and for
        one more look. CPU seconds are those of the dashboard.
writer  a session of 5,000 episodes with `sync="each"`, alone and while a dashboard is asked twice a second, in turn:
        the CPU time of the writer and its time by the clock.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import episafe as es

PORT = 18766
PROGRAM = "import sys; sys.argv = ['episafe', *{arguments!r}]; from episafe.cli import app; app()"


def write(folder: Path, num_episodes: int, on_disk: bool = True) -> None:
    """A live session: OPSE that replans rarely, on the paper's tabular problem."""
    if not on_disk:
        os.fsync = lambda _: None  # the journal is the same, and is not waited for
    cmdp = es.make("tabular")
    agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"), replan=es.Doubling(0.3))
    rng = np.random.default_rng(0)
    with es.open(folder, agent) as session:
        for _ in range(num_episodes):
            made = session.deploy(rng)
            states, actions = [0], []
            for h in range(cmdp.task.horizon):
                actions.append(int(rng.choice(cmdp.task.num_actions, p=made.policy.probabilities(h, states[-1]))))
                states.append(int(rng.choice(cmdp.task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
            session.learn(es.Episode(states, actions), deployment=made.id)


def ask(path: str) -> bytes:
    """An answer of the dashboard."""
    with urllib.request.urlopen(f"http://localhost:{PORT}/{path}", timeout=60) as answer:
        return answer.read()


def cpu_seconds(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def as_installed() -> dict[str, str]:
    """An environment in which modules are compiled already, as pip leaves them, wherever this is run from."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "episafe-dashboard-modules")}


@contextmanager
def followed(folder: Path):
    """The dashboard of a folder in a process of its own: its number, its first page, and the seconds until then."""
    program = PROGRAM.format(arguments=["dashboard", str(folder), "--port", str(PORT)])
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, env=as_installed())
    try:
        while True:
            with suppress(OSError):
                page = ask("")
                break
            assert process.poll() is None, "the dashboard ended"
            time.sleep(0.01)
        yield process.pid, page, time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait(30)


def show(folder: Path) -> bool:
    """How soon a journal is shown."""
    subprocess.run(
        [sys.executable, "-c", "import episafe.cli, episafe.service.dashboard"], env=as_installed(), check=True
    )
    begun = time.perf_counter()
    with followed(folder) as (pid, page, first):
        used = cpu_seconds(pid)
        while b"Reading the journal" in page:
            page = ask("inside")
        whole, used_whole = time.perf_counter() - begun, cpu_seconds(pid)
        again = time.perf_counter()
        ask("inside")
        again = time.perf_counter() - again
        count = json.loads(ask("figures.json"))["deployments"]
    print(
        f"page: {folder.name}, {count:,} deployments, imports included: first page after {first:.2f} s by the clock "
        f"({used:.2f} s of CPU), all of it after {whole:.2f} s ({used_whole:.2f} s); one more look "
        f"{1000 * again:.0f} ms; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return whole < 2


def writer_seconds(folder: Path, num_episodes: int) -> tuple[float, float]:
    """CPU seconds and seconds by the clock of a process that writes a session."""
    begun = time.perf_counter()
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from pathlib import Path; "
    program += f"import dashboard; dashboard.write(Path({str(folder)!r}), {num_episodes})"
    process = subprocess.Popen([sys.executable, "-c", program])
    _, status, after = os.wait4(process.pid, 0)
    assert status == 0
    return after.ru_utime + after.ru_stime, time.perf_counter() - begun


def notice(num_episodes: int, rounds: int) -> bool:
    """What a writer notices of being followed."""
    alone, watched = [], []
    for n in range(rounds):
        with tempfile.TemporaryDirectory() as parent:
            alone.append(writer_seconds(Path(parent) / "alone", num_episodes))
            folder = Path(parent) / "watched"
            watcher = subprocess.Popen([sys.executable, __file__, "--watch", str(folder)])
            watched.append(writer_seconds(folder, num_episodes))
            watcher.terminate()
            watcher.wait()
        print(f"writer: round {n}: CPU {alone[-1][0]:.2f} and {watched[-1][0]:.2f} s; load {os.getloadavg()[0]:.1f}")
    least = [min(times)[0] for times in (alone, watched)]
    clock = [min(seconds for _, seconds in times) for times in (alone, watched)]
    added = 100 * (least[1] / least[0] - 1)
    print(
        f"writer: {num_episodes} episodes, least of {rounds}: CPU {least[0]:.2f} s alone, {least[1]:.2f} s followed "
        f"({added:+.1f} %); by the clock {clock[0]:.1f} and {clock[1]:.1f} s",
        flush=True,
    )
    return added < 1


def watch(folder: Path) -> None:
    """Follow a folder as soon as it is there, twice a second; the dashboard ends with this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    while not (folder / "journal.toml").exists():
        time.sleep(0.02)
    with followed(folder):
        while True:
            ask("inside")
            time.sleep(0.5)


def main() -> int:
    """Show both; whether both targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.watch:
        watch(asked.folders[0])
    held = [show(folder) for folder in asked.folders]
    if not asked.folders:
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "session"
            count = 2_000 if asked.quick else 100_000
            made = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from pathlib import Path; "
            made += f"import dashboard; dashboard.write(Path({str(folder)!r}), {count}, False)"
            subprocess.run([sys.executable, "-c", made], check=True)
            held.append(show(folder))
        held.append(notice(300 if asked.quick else 5_000, 1 if asked.quick else 5))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
