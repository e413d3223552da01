"""The service under load, under kills, and under nonsense; what docs/reliability.md says of `episafe serve`.

    python benchmarks/service.py [--quick] [load] [kills] [nonsense]

load      16 clients, each plan, learn, plan, learn …, `sync="each"`: pairs a second, the times of `plan`.
kills     SIGKILL again and again while clients retry: every acknowledged report is in the journal once, every plan
          that a client acted on is there, and the audit finds the folder whole.
nonsense  malformed JSON, deep nesting, huge bodies, wrong tokens, replayed ids: no crash, nothing learned, no leak.
"""

import asyncio
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

import episafe as es
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal_folder import LOG, read_head
from episafe.service.server import serve
from episafe.storage.frames import read as read_frames

PORT, TOKEN, CLIENTS = int(os.environ.get("PORT", "18765")), "0123456789abcdef0123456789abcdef", 16
SERVERS = multiprocessing.get_context("forkserver")
SERVERS.set_forkserver_preload(["episafe.service.app", "uvicorn"])
KNOWN = {"total_utility": 0.5, "total_reward": 0.0}


def agent() -> es.Rollout:
    """What is served: a candidate with utility 0.6 against an incumbent with 0.7, threshold 0.5."""
    return es.Rollout(0.5, 0.2, candidates={"v2": "v2"}, incumbent="v1", utility_max=1.0)


class Connection:
    """A client that keeps its connection, with as little work of its own as it can."""

    def __init__(self) -> None:
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, name: str, body: bytes, token: str = TOKEN) -> tuple[int, bytes]:
        """Status and body of the answer; OSError where the service is away."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", PORT)
        assert self.reader is not None
        head = (
            f"POST /{name} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        try:
            self.writer.write(head.encode() + body)
            answer = await self.reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            return int(answer.split(b" ", 2)[1]), await self.reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise OSError(str(error)) from error

    def close(self) -> None:
        """Hang up."""
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def until_answered(connection: Connection, name: str, said: dict) -> dict:
    """Ask again until there is an answer, as clients do."""
    while True:
        with suppress(OSError):
            status, body = await connection.ask(name, json.dumps(said).encode())
            if status != 503:
                assert status == 200, body
                return json.loads(body)
        await asyncio.sleep(0.02)


def serve_here(folder: str) -> None:
    """`episafe serve` in this process."""
    os.environ["EPISAFE_TOKEN"] = TOKEN
    serve(Path(folder), agent, port=PORT)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[BaseProcess]:
    """The service, answering, in a process of its own; its imports are made once, so that it is there soon."""
    process = SERVERS.Process(target=serve_here, args=(str(folder),), daemon=True)
    process.start()
    connection = Connection()
    while True:
        assert process.is_alive(), "the service ended"
        with suppress(OSError):
            if (await connection.ask("plan", b"{nonsense"))[0] == 400:
                break
        await asyncio.sleep(0.05)
    connection.close()
    try:
        yield process
    finally:
        process.terminate()
        process.join(30)


async def pairs(number: int, count: int, times: list[float], luck: random.Random) -> None:
    """One client: plan, learn, plan, learn …"""
    connection = Connection()
    for k in range(count):
        name, begun = f"{number}-{k}", time.perf_counter()
        plan = await until_answered(connection, "plan", {"episode_id": name})
        times.append(time.perf_counter() - begun)
        if plan["deployment"] is None:
            continue  # too late, or too much: nothing is kept, and nothing is reported
        utility = min(max(luck.gauss(0.7 if plan["acting"] == "incumbent" else 0.6, 0.1), 0.0), 1.0)
        said = {
            "episode_id": name,
            "deployment": plan["deployment"],
            "episode": {"total_utility": utility, "total_reward": 1.0},
        }
        await until_answered(connection, "learn", said)
    connection.close()


async def load(quick: bool) -> bool:
    """Pairs a second from 16 clients, and the 99th percentile of a plan's time."""
    each, times = (20 if quick else 250), []
    with tempfile.TemporaryDirectory() as folder:
        async with served(Path(folder) / "journal") as process:
            await asyncio.gather(*(pairs(100 + n, 5, [], random.Random(n)) for n in range(CLIENTS)))
            begun, used = time.perf_counter(), [_cpu_seconds(pid) for pid in (process.pid, os.getpid())]
            await asyncio.gather(*(pairs(n, each, times, random.Random(n)) for n in range(CLIENTS)))
            seconds = time.perf_counter() - begun
            used = [_cpu_seconds(pid) - then for pid, then in zip((process.pid, os.getpid()), used, strict=True)]
    rate, late = CLIENTS * each / seconds, float(np.percentile(times, 99)) * 1000
    server, clients = (1000 * spent / (CLIENTS * each) for spent in used)
    print(
        f"load: {rate:.0f} pairs of plan and learn a second from {CLIENTS} clients; 99 % of plans within {late:.0f} "
        f"ms; CPU of a pair: {server:.2f} ms of the service, {clients:.2f} ms of all clients; {_load()}"
    )
    return rate >= 300 and late < 100


async def kills(quick: bool) -> bool:
    """SIGKILL under load; then every acknowledged report is there once, and every plan that was acted on."""
    rounds, acted, reported = (5 if quick else 200), {}, set()
    luck = random.Random(1)
    with tempfile.TemporaryDirectory() as parent:
        folder, stop = Path(parent) / "journal", asyncio.Event()

        async def client(number: int) -> None:
            connection, k = Connection(), 0
            while not stop.is_set():
                name, k = f"{number}-{k}", k + 1
                plan = await until_answered(connection, "plan", {"episode_id": name})
                if plan["deployment"] is None:
                    continue
                acted[name] = (plan["deployment"], plan["component"])
                said = {
                    "episode_id": name,
                    "deployment": plan["deployment"],
                    "episode": {"total_utility": luck.random(), "total_reward": 1.0},
                }
                answer = await until_answered(connection, "learn", said)
                assert answer["learned"]
                reported.add(name)

        clients = [asyncio.create_task(client(n)) for n in range(CLIENTS)]
        for n in range(1, rounds + 1):
            async with served(folder) as process:
                await asyncio.sleep(luck.uniform(0.02, 0.3))
                process.kill()
                process.join()
            if n % 50 == 0:
                print(f"kills: {n} so far, {len(reported)} acknowledged reports", flush=True)
        stop.set()
        async with served(folder):
            await asyncio.gather(*clients)
        frames = list(read_frames(folder / LOG, read_head(folder)["genesis"]))
        names = [frame.notes["id"] for frame in frames if frame.kind == Kind.REPORT]
        deployed = {(f.notes.get("name"), f.notes["id"], f.notes["component"]) for f in frames if f.kind == Kind.DEPLOY}
        lost, twice = len(reported - set(names)), len(names) - len(set(names))
        unknown = sum((name, *what) not in deployed for name, what in acted.items())
        whole = not es.audit(folder, agent=agent()).damage
    print(f"kills: {rounds} SIGKILLs, {len(reported)} acknowledged reports: {lost} lost, {twice} twice; {_load()}")
    print(f"       {len(acted)} plans acted on, {unknown} not in the journal; audit {'whole' if whole else 'DAMAGED'}")
    return not (lost or twice or unknown) and whole


def nonsense_request(luck: random.Random) -> tuple[str, bytes, str]:
    """A request that must change nothing."""
    name = luck.choice(["plan", "act", "learn", "abandon", "halt", "nothing", "../learn", "status"])
    kinds = [
        lambda: bytes(luck.randrange(256) for _ in range(luck.randrange(60))),
        lambda: b"[" * luck.randrange(1, 100_000),
        lambda: b'{"episode_id": 0.' + b"9" * luck.randrange(1, 9000) + b"}",  # whole numbers are names
        lambda: json.dumps(
            {"deployment": luck.choice([-1, 10**9, "x", None, [], {}]), "episode": luck.choice([1, [], {}, None])}
        ).encode(),
        lambda: json.dumps(
            {"episode_id": "known", "episode": {"total_utility": luck.choice([-1, 2, "1", None]), "total_reward": 1}}
        ).encode(),
        lambda: b'{"deployment": 0, "step": 1e999, "state": NaN}',
        lambda: b'"' + b"x" * luck.choice([10, 2_000_000]) + b'"',
        lambda: json.dumps({"reason": ""}).encode(),
        lambda: json.dumps({"episode_id": "known", "episode": KNOWN}).encode(),  # replayed: learned once, before
    ]
    return name, luck.choice(kinds)(), luck.choice([TOKEN, TOKEN, "", "wrong", TOKEN[:-1], "\u00fc"])


async def nonsense(quick: bool) -> bool:
    """Requests that must change nothing, and do not."""
    count, luck, statuses = (500 if quick else 100_000), random.Random(2), Counter[int]()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "journal"
        async with served(folder) as process:
            connection = Connection()
            await until_answered(connection, "plan", {"episode_id": "known"})
            await until_answered(connection, "learn", {"episode_id": "known", "episode": KNOWN})
            before = _held(process.pid)
            for _ in range(count):
                name, body, token = nonsense_request(luck)
                if name == "plan" and token == TOKEN and body in (b"", b" "):
                    continue  # which asks for a plan
                try:
                    status, _answer = await connection.ask(name, body, token)
                    statuses[status] += 1
                except OSError:
                    statuses[0] += 1  # a body that is refused before it is read ends the connection
            connection.close()
            alive = (await until_answered(connection, "plan", {"episode_id": "after"}))["deployment"] == 1
            grown = [after - then for after, then in zip(_held(process.pid), before, strict=True)]
        kinds = Counter(frame.kind for frame in read_frames(folder / LOG, read_head(folder)["genesis"]))
        learned, deployed = kinds[Kind.REPORT] - 1, kinds[Kind.DEPLOY] - 2
        changed = learned + deployed + kinds[Kind.HALT] + kinds[Kind.ABANDON] + kinds[Kind.FAULT]
    print(f"nonsense: {count} requests, answers {dict(sorted(statuses.items()))} (0: hung up); {statuses[500]} crashes")
    print(
        f"          {learned} learned, {deployed} deployed, {changed} frames of any kind; memory {grown[0]:+.0f} MiB, "
        f"files {grown[1]:+.0f}, threads {grown[2]:+.0f}; {'answers' if alive else 'DOES NOT ANSWER'} afterwards"
    )
    return not statuses[500] and not changed and grown[0] < 50 and grown[1] < 10 and alive


def _load() -> str:
    return f"load of the machine {os.getloadavg()[0]:.1f}"


def _cpu_seconds(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _held(pid: int) -> tuple[float, int, int]:
    """MiB, open files and threads that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    memory, threads = (int(text.partition(f"{name}:")[2].split()[0]) for name in ("VmRSS", "Threads"))
    return memory / 1024, len(os.listdir(f"/proc/{pid}/fd")), threads


def main() -> int:
    """Run what is asked for, or all; whether every target holds."""
    asked = [name for name in ("load", "kills", "nonsense") if name in sys.argv[1:]] or ["load", "kills", "nonsense"]
    held = [asyncio.run(globals()[name]("--quick" in sys.argv)) for name in asked]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
