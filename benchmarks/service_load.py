"""Measure the HTTP service under load, on 127.0.0.1: pairs of deploy and report per second, and the time of a plan.

    python benchmarks/service_load.py [--pairs 4000] [--clients 16] [--seconds 60] [file] [postgres] [schema]

file      one worker, a log in a temporary folder, every event fsynced
postgres  two workers, a PostgreSQL server that is started in a temporary folder
schema    CPU time of decoding one report with msgspec and with pydantic (which FastAPI uses)

CPU per pair is that of the workers; the clients run in this process. The run stops after --seconds.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import episafe as es
from episafe.service.app import REQUESTS, report, serve
from episafe.session.audit import follow

TOKEN = "0123456789abcdef-benchmark"
HEAD = "POST {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer " + TOKEN + "\r\ncontent-length: {}\r\n\r\n"


def make_agent() -> es.SafeAgent:
    return es.SafeAgent(es.make("tabular", seed=0))


class Client:
    """One connection that is kept, with as little work of its own as possible."""

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        self.writer.write(HEAD.format(path, len(data)).encode() + data)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = await self.reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {head[:30]!r} {answer[:300]!r}")
        return json.loads(answer)

    async def pairs(self, name: str, port: int, count: int, deadline: float, play: "Play", times: list[float]) -> int:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        done = 0
        while done < count and time.monotonic() < deadline:
            begun = time.perf_counter()
            made = await self.ask("/deployments", {"episode_id": f"{name}-{done}"})
            times.append(time.perf_counter() - begun)
            steps = play.steps(made["component"])
            answer = await self.ask(f"/deployments/{made['id']}/report", {"steps": steps})
            assert answer["counted"], answer
            done += 1
        self.writer.close()
        return done


class Play:
    """Plays episodes as the deployed policies would; learned ones are read from the log."""

    def __init__(self, location: str, name: str | None) -> None:
        self.where, self.problem, self.rng = (location, name), es.make("tabular", seed=0), np.random.default_rng(0)
        self.tables = {"incumbent": np.asarray(self.problem.task.incumbent.table())}

    def steps(self, component: str) -> list[dict[str, int]]:
        if component not in self.tables:
            candidates = follow(*self.where).candidates.values()
            self.tables |= {one.name: np.array(one.document["table"]) for one in candidates if one.document}
        table, state, steps = self.tables[component], self.problem.task.initial_state, []
        for h, (to_act, to_move) in enumerate(self.rng.random((len(table), 2)).tolist()):
            action = min(int(np.searchsorted(np.cumsum(table[h, state]), to_act, side="right")), table.shape[2] - 1)
            steps.append({"observation": int(state), "action": action})
            moves = np.cumsum(self.problem.P[h, state, action])
            state = min(int(np.searchsorted(moves, to_move, side="right")), len(moves) - 1)
        return steps


def cpu_of(pids: list[int]) -> float:
    """Return the CPU seconds that processes have used."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    commands = {int(one): Path(f"/proc/{one}/cmdline").read_bytes() for one in found}
    return [one for one, command in commands.items() if b"resource_tracker" not in command]


async def wait_for(port: int, answers: int) -> None:
    while answers:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            answers -= 1
        except OSError:
            await asyncio.sleep(0.1)


async def load(asked: argparse.Namespace, port: int, server: int, workers: int, play: Play) -> dict[str, float]:
    times: list[float] = []
    deadline = time.monotonic() + asked.seconds
    await wait_for(port, 1)
    await asyncio.gather(*(Client().pairs(f"w{k}", port, 20, deadline, play, []) for k in range(asked.clients)))
    pids = [server] if workers == 1 else children(server)
    each, used, begun = asked.pairs // asked.clients, cpu_of(pids), time.perf_counter()
    counts = await asyncio.gather(
        *(Client().pairs(f"c{k}", port, each, deadline, play, times) for k in range(asked.clients))
    )
    seconds, used = time.perf_counter() - begun, cpu_of(pids) - used
    return {
        "pairs": sum(counts),
        "pairs per second": sum(counts) / seconds,
        "plan p50, ms": 1e3 * float(np.percentile(times, 50)),
        "plan p99, ms": 1e3 * float(np.percentile(times, 99)),
        "CPU of the workers per pair, ms": 1e3 * used / sum(counts),
        "load average": os.getloadavg()[0],
    }


def measure(asked: argparse.Namespace, location: str, name: str | None, workers: int) -> dict[str, float]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {"token": TOKEN, "name": name, "port": port, "workers": workers}
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(location, make_agent), kwargs=options)
    process.start()
    try:
        return asyncio.run(load(asked, port, process.pid or 0, workers, Play(location, name)))
    finally:
        process.terminate()
        process.join(60)


def schema() -> dict[str, float]:
    import msgspec
    import pydantic

    class Step(pydantic.BaseModel, extra="forbid"):
        observation: Any
        action: int
        reward: float | None = None
        utility: float | list[float] | None = None
        chance: Any = None
        overridden: bool = False

    class Report(pydantic.BaseModel, extra="forbid"):
        steps: list[Step] | None = None

    steps = [{"observation": [0.5, k], "action": 1, "reward": 0.5, "utility": [0.25, 1.0]} for k in range(24)]
    body, found = json.dumps({"steps": steps}).encode(), {}
    decoder = msgspec.json.Decoder(REQUESTS[report])
    for name, decode in (("msgspec", decoder.decode), ("pydantic", Report.model_validate_json)):
        best = np.inf
        for _ in range(20):
            begun = time.process_time()
            for _ in range(200):
                decode(body)
            best = min(best, (time.process_time() - begun) / 200)
        found[f"{name}, µs per report of 24 steps"] = 1e6 * best
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["file", "postgres", "schema"])
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked, held = parser.parse_args(), True
    for what in asked.what:
        least = {"file": 400, "postgres": 250}.get(what, 0)
        if what == "file":
            with tempfile.TemporaryDirectory() as folder:
                found = measure(asked, f"{folder}/session", None, 1)
                held = held and es.audit(f"{folder}/session").passed
        elif what == "postgres":
            sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
            from postgres_server import server

            with server() as running:
                if isinstance(running, str):
                    print(f"postgres: skipped, {running}")
                    continue
                found = measure(asked, running.address, "load", 2)
                held = held and es.audit(running.address, name="load").passed
        else:
            found = schema()
        print(f"{what}: " + "; ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        held = held and found.get("pairs per second", 0) >= least and found.get("plan p99, ms", 0) <= 100
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
