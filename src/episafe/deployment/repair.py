"""`es.repair`: keep the longest provable beginning of a journal, put the rest beside it, and say what that costs.

Log and trail are two chains. Kept are the frames that follow from each other, say what can have happened, and have
their lines in the trail, as far as it goes. What is behind them proves nothing, but it bears witness: numbers of plans
and deployments that it names were given, and are not given again; a halt in it stays a halt.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from episafe.certify.base import INCUMBENT
from episafe.deployment.batch_frames import is_batch
from episafe.deployment.episode_tapes import num_episodes
from episafe.deployment.frame_kinds import EVENTS, Kind, Newer, change_of, marks
from episafe.deployment.journal import check_begin
from episafe.deployment.journal_folder import LOG, read_head
from episafe.deployment.session_book import Book, now
from episafe.errors import DamagedFile
from episafe.runs.record import finished_length
from episafe.storage import checkpoint
from episafe.storage.atomic_files import atomic, read_arrays, write_text
from episafe.storage.audit_trail import TRAIL, Trail, broken_at, hash_of
from episafe.storage.frames import UNREADABLE, Frame, Reader, remains
from episafe.storage.journal_files import HASH, Log, encode

DROPPED, PAGE = "dropped-{}", "repair.json"  # folders with what repairs dropped, and what they say of it
SHOWN = 10  # names of reports
PASSED = 1_000_000  # numbers of deployments that are not given where the log lacks nobody knows how many
MOST = 2**40  # plans or deployments: what says that there were more is damaged
MADE = {"plan": "plans", "plans": "plans", "id": "deployments", "deployment": "deployments", "episode": "deployments",
        "deployments": "deployments", "frames": "frames"}  # fmt: skip
BY_EVENT = {event: kind for kind, event in EVENTS.items()}
COUNTS = ("plans", "deployments", "frames")  # of all that were made; the others are the number of one


@dataclass
class Repair:
    """What a repair found and did.

    Attributes:
        folder, kind: of the journal.
        damage: what was wrong, in words; empty if there was nothing to repair.
        frames, episodes: how many were kept.
        dropped: the folder with what was dropped; "" if nothing was.
        reports, plans, deployments: how many were lost; of the last two, at most, by all that bears witness.
        passed: numbers of deployments that are passed over, for where a log is cut nobody knows how many are gone.
        unread: at most so many frames are lost that cannot be read; there may be reports among them.
        halts: the reasons of halts in what was dropped.
        changes: what people had promoted, withdrawn, changed or put on trial in what was dropped: it holds no more.
        names: of the reports that were dropped, where they had one: they can be made again.
        then: what comes next, in words.
    """

    folder: str
    kind: str
    damage: list[str] = field(default_factory=list)
    frames: int = 0
    episodes: int = 0
    dropped: str = ""
    reports: int = 0
    plans: int = 0
    deployments: int = 0
    passed: int = 0
    unread: int = 0
    halts: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    then: str = "nothing to repair: the folder opens as it is"

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        kept = f"kept {self.frames} frames with {self.episodes} episodes"
        if not self.damage:
            return [kept, self.then]
        lost = f"lost {self.reports} reports, at most {self.plans} plans and {self.deployments} deployments"
        lost += f"; up to {self.unread} frames cannot be read" if self.unread else ""
        lost += f", and what only the end of {LOG} knew; {self.passed:,} numbers are not given" if self.passed else ""
        halts = [f"a halt was dropped, and stays: {halt}" for halt in self.halts]
        halts += [f"was dropped, and is to be done again: {change}" for change in self.changes]
        more = f" and {len(self.names) - SHOWN} more, see {PAGE} there" if len(self.names) > SHOWN else ""
        again = [f"report again: {', '.join(self.names[:SHOWN])}{more}"] if self.names else []
        return [*self.damage, f"{kept}; the rest is in {self.folder}/{self.dropped}", lost, *halts, *again, self.then]


def repair(folder: str | Path, on_progress: Callable[[float], object] = lambda share: None) -> Repair:
    """Keep the longest provable beginning of a journal, put the rest beside it, and say what that costs.

    Nothing is deleted. A folder that is whole is not changed: an unfinished last frame, and lines that only the trail
    lacks, are mended by opening it. After a repair a live session is halted until a person lets it explore again.

    Args:
        folder: of a journal that nobody has open.
        on_progress: called now and then with the share of the log that was read.
    """
    folder = Path(folder)
    head = read_head(folder)
    log = Log(folder / LOG)  # nobody else may write it
    try:
        salvage = Salvage(folder, head, on_progress)
        if salvage.found.damage:
            salvage.repair()
        return salvage.found
    finally:
        log.close()


class Salvage:
    """One repair.

    Args:
        folder: of the journal.
        head: of it.
        on_progress: called with the share of the log that was read.

    Attributes:
        found: what is wrong with it, and what was kept.
    """

    def __init__(self, folder: Path, head: Mapping[str, Any], on_progress: Callable[[float], object]) -> None:
        self._folder, self._genesis, self._fingerprint = folder, str(head["genesis"]), str(head["fingerprint"])
        self.found, self._length = Repair(str(folder), str(head["kind"])), head.get("num_episodes", 0)
        self._frames, self._end, self._is_short = list[Frame](), 0, False
        self._read_log(on_progress)
        self._lines, self._num_proved = self._read_trail()
        self._num_due = self._agreed()
        self._ahead = [path for name in checkpoint.NAMES if self._is_ahead(path := folder / name)]
        self.found.frames, self.found.episodes = len(self._frames), self._counted().reported

    def _read_log(self, on_progress: Callable[[float], object]) -> None:
        """The frames that follow from each other, and say what can have happened."""
        reader, book = Reader(self._folder / LOG, self._genesis), Book(self._fingerprint)
        try:
            for frame in reader:
                book.count(frame, self.found.kind)
                self._frames.append(frame)
                self._end = reader.end
                on_progress(reader.share)
        except Newer:
            raise
        except DamagedFile as error:
            self._lacks(str(error).partition(";")[0].removeprefix(f"{self._folder}/"))
        except UNREADABLE as error:
            self._lacks(f"{LOG}: frame {len(self._frames)} says what cannot have happened ({error})")
        if not self._frames:
            raise DamagedFile(f"{self._folder / LOG}: not even its first frame can be proved: restore it from a copy")
        check_begin(self._frames[:1], self._genesis, self._folder / LOG)

    def _lacks(self, why: str) -> None:
        """The log lacks frames that were there."""
        self.found.damage.append(why)
        self._is_short = True

    def _read_trail(self) -> tuple[list[str], int]:
        """All lines, and how many of them follow from each other."""
        try:
            *lines, rest = (self._folder / TRAIL).read_bytes().decode(errors="replace").split("\n")
        except FileNotFoundError:
            self.found.damage.append(f"{TRAIL} is missing")
            return [], 0
        broken = broken_at(lines, self._genesis)
        if broken is None:
            if not _may_begin(f'{{"line":{len(lines)},', rest.rstrip("\0")):
                self.found.damage.append(f"{TRAIL}: its unfinished last line is none")
            return lines, len(lines)
        self.found.damage.append(f"{TRAIL}: line {broken + 1} does not follow from the one before it")
        return lines, broken

    def _agreed(self) -> int:
        """Cut off what the trail says otherwise; how many lines the log has."""
        hashes, due = [self._genesis, *map(hash_of, self._lines[: self._num_proved])], 0
        for number, num_lines, head in marks(self._frames, self._genesis):
            if num_lines < len(hashes) and hashes[num_lines] != head:
                self._lacks(f"{TRAIL}: line {num_lines} is not what frame {number} of {LOG} says")
                self._end = self._frames[number].offset
                del self._frames[number:]
                break
            due = num_lines
        written = max([len(self._lines), *map(_lines_up_to, self._lines[self._num_proved :])])
        if due < written and not self._is_short:  # lines that do not follow bear witness too
            self._lacks(f"{TRAIL} has {written} lines and {LOG} those of {due}: {LOG} was cut short")
        self._num_proved = min(self._num_proved, due)
        return due

    def _is_ahead(self, path: Path) -> bool:
        """Whether a checkpoint of this journal knows of more frames or lines than are kept."""
        try:
            notes = read_arrays(path)[1]
            frames, lines = (int(notes[name]) for name in ("frames", "lines"))
            if notes["genesis"] != self._genesis:
                return False
        except (FileNotFoundError, DamagedFile, KeyError, TypeError, ValueError):
            return False
        if frames > len(self._frames) and not self._is_short:
            self._lacks(
                f"{path.name} knows of {frames} frames, and {LOG} has {len(self._frames)}: it was cut short, or the "
                "checkpoint is of a copy"
            )
        elif lines > self._num_proved and not self.found.damage:
            self.found.damage.append(f"{path.name} knows of {lines} lines, and {TRAIL} has {self._num_proved}")
        return frames > len(self._frames) or lines > self._num_proved

    def _counted(self) -> Book:
        book = Book(self._fingerprint)
        for frame in self._frames:
            book.count(frame, self.found.kind)
        return book

    def repair(self) -> None:
        """Put aside what is not kept, and go on in the log with what is known of it. The log first: until the trail
        agrees with it, nobody can open the folder."""
        with (self._folder / LOG).open("rb") as file:
            kept, rest = file.read(self._end), file.read()
        new, last, data = self._next_frames(rest), kept[-HASH:], [kept]
        self._put_aside(rest)
        for number, (kind, notes) in enumerate(new, len(self._frames)):
            frame, last = encode(number, kind, last, notes, None)
            data.append(frame)
        with atomic(self._folder / LOG) as file:
            file.write(b"".join(data))
        write_text(self._folder / TRAIL, "".join(f"{line}\n" for line in self._next_lines(new)))
        for path in self._ahead:
            path.unlink()

    def _next_frames(self, rest: bytes) -> list[tuple[Kind, dict[str, Any]]]:
        """What the log goes on with: numbers that were given and are lost, or only why somebody must look. Whichever it
        is, nobody is promoted any more."""
        found, kept, lost, (frames, num_unread) = self.found, Witnesses(), Witnesses(), remains(rest)
        kept.hear_frames(self._frames)
        lost.hear_frames(frames)
        lost.hear_lines(self._lines[self._num_proved :])
        for path in self._ahead:
            lost.hear_checkpoint(path)
        book = self._counted()
        only_named = sorted(lost.reported_names - book.names.keys() - set(lost.names))
        found.reports = max(len(lost.names), lost.reported - book.reported)
        found.names, found.halts = [*filter(None, lost.names), *only_named], lost.halts
        found.changes = [change for change in lost.changes if change not in kept.changes]
        found.changes += [f"put {name} on trial" for name in sorted(lost.added - kept.added)]
        reason = f"repaired: {found.damage[0]}" + "".join(f"; it was halted: {halt}" for halt in lost.halts[-1:])
        if found.kind == "run":
            asked, aim = self._aims(kept, lost)
            found.then = f"resume it: what was dropped is played again, bit for bit, up to {aim} episodes in all"
            return [(Kind.FAULT, {"reason": reason}), *([(Kind.AIM, {"num_episodes": aim})] if aim != asked else [])]
        found.then = "only the incumbent acts, until somebody calls session.resume_exploring(reason)"
        if self._is_short:
            found.unread = max(num_unread, lost.frames - len(self._frames) - len(frames))
        plans, deployments = (max(one, other) + found.unread for one, other in zip(lost.made, kept.made, strict=True))
        found.plans, found.deployments = plans - kept.plans, deployments - kept.deployments
        if not (self._is_short or found.plans or found.deployments):
            return [*self._demotion(reason), (Kind.HALT, {"reason": reason, "time": now()})]
        candidates = max(lost.candidates, len(lost.added - kept.added)) + found.unread
        found.passed = PASSED if self._is_short else 0  # what was deployed after the last that bears witness
        numbers = {"plans": plans + found.passed, "deployments": deployments + found.passed, "candidates": candidates}
        numbers |= {"passed": found.passed} if found.passed else {}
        return [(Kind.LOST, {"reason": reason, **numbers, "time": now()})]

    def _aims(self, kept: "Witnesses", lost: "Witnesses") -> tuple[int, int]:
        """How many episodes a run was to have, by what is kept; and by what was dropped too, or was ever played."""
        asked = [self._length, *kept.aims]
        return asked[-1], max([*asked, *lost.aims][-1], lost.deployments, finished_length(self._folder))

    def _demotion(self, reason: str) -> list[tuple[Kind, dict[str, Any]]]:
        """The incumbent in place of who was promoted, if anybody was: a person is to say again that it acts."""
        promoted = [frame for frame in self._frames if frame.kind == Kind.PROMOTE]
        if not promoted or promoted[-1].notes.get("name") == INCUMBENT:
            return []
        self.found.changes.append(change_of(Kind.PROMOTE, promoted[-1].notes))
        return [(Kind.PROMOTE, {"name": INCUMBENT, "reason": reason, "bounds": [], "time": now()})]

    def _put_aside(self, rest: bytes) -> None:
        """Everything that is not kept goes into a folder of its own, with the page that says why."""
        place = next(p for n in count(1) if not (p := self._folder / DROPPED.format(n)).exists())
        place.mkdir()
        self.found.dropped = place.name
        lines = (self._folder / TRAIL).read_bytes() if (self._folder / TRAIL).exists() else b""
        pieces = {LOG: rest, TRAIL: lines[sum(len(line.encode()) + 1 for line in self._lines[: self._num_proved]) :]}
        pieces |= {path.name: path.read_bytes() for path in self._ahead}
        for name, data in pieces.items():
            with atomic(place / name) as file:
                file.write(data)
        write_text(place / PAGE, json.dumps(self.found.as_dict(), indent=2))

    def _next_lines(self, new: list[tuple[Kind, dict[str, Any]]]) -> list[str]:
        """The lines that are kept, and those of the new frames; opening adds what lies between."""
        lines = self._lines[: self._num_proved]
        if len(lines) < self._num_due:
            return lines
        trail = Trail(0.0, {}, self._genesis)
        trail.count, trail.head = len(lines), hash_of(lines[-1]) if lines else self._genesis
        return [*lines, *(trail.event(EVENTS[kind], notes) for kind, notes in new if kind in EVENTS)]


def _lines_up_to(line: str) -> int:
    """How many lines there were up to this one, by what it says itself; 0 where it cannot be read."""
    try:
        number = _count(json.loads(line)["line"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return 0
    return 0 if number is None else number + 1


def _may_begin(line: str, text: str) -> bool:
    """Whether a text may be the beginning of what begins with `line`."""
    return line.startswith(text) or text.startswith(line)


class Witnesses:
    """What frames, lines and checkpoints say was ever made, whether or not it can be proved that they are right.

    Attributes:
        plans, deployments, frames: how many were made, at least.
        names: of reports, "" for those without one.
        reported, reported_names: how many reports there were in all, and their names, as checkpoints know.
        halts: their reasons.
        changes: what people promoted, withdrew and changed.
        added: the names of the policies that somebody put on trial.
        candidates: how many were put on trial or lost, at least: by the frames, or by the lines, which say the same.
        aims: how many episodes a simulation was to have, one after the other.
    """

    def __init__(self) -> None:
        self.plans = self.deployments = self.frames = 0
        self.names: list[str] = []
        self.reported, self.reported_names = 0, set[str]()
        self.halts: list[str] = []
        self.changes: list[str] = []
        self.added: set[str] = set()
        self.candidates = 0
        self.aims: list[int] = []

    @property
    def made(self) -> tuple[int, int]:
        """Plans and deployments."""
        return self.plans, self.deployments

    def hear_frames(self, frames: Iterable[Frame]) -> None:
        """Frames that can be read."""
        spent = 0
        for frame in frames:
            notes = dict(frame.notes)
            self._hear_change(frame.kind, notes)
            if frame.kind == Kind.BATCH and is_batch(notes, frame.arrays):
                self.deployments = max(self.deployments, notes["episode"] + num_episodes(frame.arrays))
            if frame.kind == Kind.AIM and (aim := _count(notes.get("num_episodes"))):
                self.aims.append(aim)
            if frame.kind == Kind.REPORT:
                self.names.append(str(notes.get("id") or ""))
            if frame.kind != Kind.DEPLOY:
                notes.pop("id", None)
            spent += self._hear(notes, EVENTS[Kind(frame.kind)] if frame.kind in EVENTS else "")
        self.candidates = max(self.candidates, spent)

    def hear_lines(self, lines: Iterable[str]) -> None:
        """Lines of a trail; a halt is heard even where the rest of its line cannot be read."""
        spent = 0
        for line in lines:
            try:
                said = json.loads(line)
                spent += self._hear(said, said.get("event", ""))
                self._hear_change(BY_EVENT.get(said.get("event"), 0), said)
            except (ValueError, TypeError, AttributeError, RecursionError):
                if '"event":"halt"' in line:
                    self.halts.append("of which only a part of the line is left")
        self.candidates = max(self.candidates, spent)

    def hear_checkpoint(self, path: Path) -> None:
        """What a checkpoint knew, if it can be read."""
        book = Book("")
        try:
            book.restore({"book": read_arrays(path)[0]["book.book"]})
        except (FileNotFoundError, DamagedFile, KeyError):
            return
        self._hear({"plan": book.newest, "deployments": book.started}, "")
        self.reported, self.reported_names = max(self.reported, book.reported), self.reported_names | book.names.keys()
        self.added |= set(book.candidates)
        if book.halted:
            self.halts.append(book.halted)

    def _hear_change(self, kind: int, said: Mapping[str, Any]) -> None:
        """What a person did; a frame and its line say the same."""
        if (change := change_of(kind, said)) and change not in self.changes:
            self.changes.append(change)

    def _hear(self, said: Mapping[str, Any], event: str) -> int:
        """What a frame or line says; how many candidates it put on trial, or has lost with the incumbent's sequence."""
        for name in said.keys() & MADE.keys():
            if (number := _count(said[name])) is not None:
                made = number if name in COUNTS else number + 1
                setattr(self, MADE[name], max(getattr(self, MADE[name]), made))
        if event in ("halt", "lost"):
            self.halts.append(str(said.get("reason", "")))
        if event == EVENTS[Kind.CANDIDATE]:
            self.added.add(str(said.get("name")))
            return 1
        return 1 + (_count(said.get("candidates")) or 0) if event == EVENTS[Kind.LOST] else 0


def _count(said: Any) -> int | None:
    """A number of things that there can have been; None for anything else."""
    return said if type(said) is int and 0 <= said < MOST else None
