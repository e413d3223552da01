"""Damaged files, and hostile ones, sealed correctly so that what refuses them is not the seal. As a script: reads them.

python hostile.py FOLDER    makes every file in FOLDER and reads it by every reader, under a limit on memory
"""

import hashlib
import io
import json
import os
import pickle
import resource
import struct
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np

MARGIN = 400 << 20  # bytes of address space beyond what is taken when reading begins
SEAL = 64


def npy(array, *, allow_pickle=False):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), (1, 0), allow_pickle=allow_pickle)
    return stream.getvalue()


def header(text, data=b""):
    """An array file with this text as its header."""
    raw = text.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw + data


def described(shape, descr="'<f8'", data=b""):
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n", data)


def archive(members, compression=zipfile.ZIP_STORED, change=None):
    """The bytes of an archive of (name, bytes) pairs, before its seal."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for name, data in members:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = compression
            if change is not None:
                change(entry)
            file.writestr(entry, data)
        file.comment = b"0" * SEAL
    return stream.getvalue()


def sealed(raw):
    return raw[:-SEAL] + hashlib.sha256(raw[:-SEAL]).hexdigest().encode()


class Payload:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def as_link(entry):
    entry.external_attr = 0o120777 << 16


def _many_members():
    return sealed(archive([(f"a{i}.npy", b"") for i in range(40_000)]))


class Files:
    """Hostile files for one reader, beside members that it knows; `own` is the name of a member that may be there."""

    def __init__(self, own, plain):
        self.own = f"{own}.npy"
        self.plain = {"format": npy(np.array(1)), "notes": npy(np.array("{}")), **plain}

    def members(self, **changed):
        return [(f"{name}.npy", data) for name, data in {**self.plain, **changed}.items()]

    def with_member(self, name, data, **options):
        return sealed(archive([*self.members(), (name, data)], **options))

    def replacing(self, key, data):
        return sealed(archive(self.members(**{key: data})))

    def two_names_for_one_member(self):
        raw = self.with_member(self.own, npy(np.zeros(1000)))
        end = raw.rindex(b"PK\x05\x06")
        entries, length, place = struct.unpack("<HLL", raw[end + 10 : end + 20])
        directory = raw[place : place + length]
        last = directory.rindex(b"PK\x01\x02")
        twin = directory[last:].replace(self.own.encode(), b"b" + self.own.encode()[1:])
        new_end = bytearray(raw[end:])
        new_end[8:20] = struct.pack("<HHLL", entries + 1, entries + 1, length + len(twin), place)
        return sealed(raw[:end] + twin + bytes(new_end))

    def bomb(self, num_bytes):
        data = described((num_bytes // 8,), data=bytes(num_bytes))
        return self.with_member(self.own, data, compression=zipfile.ZIP_DEFLATED)

    def lying_size(self):
        """A member whose directory says 1000 bytes and whose data unpack to far more."""
        raw = bytearray(self.bomb(64 << 20))
        for mark, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
            place = raw.rindex(mark)
            raw[place + at : place + at + 4] = struct.pack("<L", 1128)
        return sealed(bytes(raw))

    def twice(self):
        stream = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as file:
            warnings.simplefilter("ignore")
            for name, data in [*self.members(), (self.own, npy(np.zeros(3))), (self.own, npy(np.ones(3)))]:
                file.writestr(zipfile.ZipInfo(name), data)
            file.comment = b"0" * SEAL
        return sealed(stream.getvalue())

    def all(self, marker):
        """Every hostile file: name ↦ bytes. `marker` is where a payload would leave a trace."""
        evil = pickle.dumps(Payload(marker))
        return {
            "empty": b"",
            "text": b"this is no archive" * 100,
            "zip without a seal": archive([("a.npy", npy(np.zeros(3)))])[:-SEAL],
            "pickle": evil,
            "object array": self.with_member(
                self.own, npy(np.array([Payload(marker)], dtype=object), allow_pickle=True)
            ),
            "object array by its header": self.with_member(self.own, described((1,), "'|O'", evil)),
            "object array inside a structure": self.with_member(self.own, described((1,), "[('x', '|O')]", evil)),
            "structure": self.with_member(self.own, npy(np.zeros(3, dtype=[("x", "<f8")]))),
            "bytes": self.with_member(self.own, npy(np.array([b"abc"]))),
            "dates": self.with_member(self.own, npy(np.array(["2020-01-01"], dtype="M8[D]"))),
            "complex": self.with_member(self.own, npy(np.zeros(3, dtype=complex))),
            "long double": self.with_member(self.own, npy(np.zeros(3, dtype=np.longdouble))),
            "big-endian": self.with_member(self.own, npy(np.zeros(3, dtype=">f8"))),
            "subarray": self.with_member(self.own, described((1,), "('<f8', (1000000000,))")),
            "columns first": self.with_member(self.own, npy(np.asfortranarray(np.zeros((3, 4))))),
            "absurd length": self.with_member(self.own, described((2**60,))),
            "absurd lengths": self.with_member(self.own, described((2**31, 2**31, 2**31))),
            "absurd and empty": self.with_member(self.own, described((2**62, 0))),
            "negative length": self.with_member(self.own, described((-1,))),
            "a length that is no number": self.with_member(self.own, described("('x',)")),
            "a length that is true": self.with_member(self.own, described("(True,)", data=bytes(8))),
            "a thousand axes": self.with_member(self.own, described((1,) * 1000, data=bytes(8))),
            "wide text": self.with_member(self.own, described((1,), "'<U1000000000'")),
            "longer than its header": self.with_member(self.own, described((3,), data=bytes(32))),
            "shorter than its header": self.with_member(self.own, described((3,), data=bytes(16))),
            "header that is code": self.with_member(self.own, header(f"__import__('os').system('touch {marker}')")),
            "deep header": self.with_member(self.own, header("(" * 1500 + ")" * 1500)),
            "header of many signs": self.with_member(self.own, header("-" * 3000 + "1")),
            "long header": self.with_member(self.own, header("{" + " " * 60_000 + "}")),
            "header of another version": self.with_member(self.own, b"\x93NUMPY\x03\x00" + npy(np.zeros(3))[8:]),
            "no header": self.with_member(self.own, b"x"),
            "truth that is neither": self.with_member(self.own, described((2,), "'|b1'", b"\x07\x01")),
            "text beyond Unicode": self.with_member(self.own, described((1,), "'<U1'", b"\xff\xff\xff\xff")),
            "bomb": self.bomb(1 << 28),
            "many bombs": sealed(
                archive(
                    [(f"a{i}.npy", described((1 << 21,), data=bytes(1 << 24))) for i in range(16)], zipfile.ZIP_DEFLATED
                )
            ),
            "lying size": self.lying_size(),
            "two names for one member": self.two_names_for_one_member(),
            "the same name twice": self.twice(),
            "many members": _many_members(),
            "a path": self.with_member("../a.npy", npy(np.zeros(3))),
            "an absolute path": self.with_member("/tmp/a.npy", npy(np.zeros(3))),
            "a folder": self.with_member("a/", b""),
            "a link": self.with_member(self.own, b"/etc/passwd", change=as_link),
            "no array": self.with_member("a.txt", b"hello"),
            "odd name": self.with_member("a\u202e.npy", npy(np.zeros(3))),
            "compressed in another way": self.with_member(self.own, npy(np.zeros(999)), compression=zipfile.ZIP_LZMA),
            "future format": self.replacing("format", npy(np.array(2))),
            "no format": sealed(archive([("notes.npy", npy(np.array("{}")))])),
            "format that is text": self.replacing("format", npy(np.array("1"))),
            "notes that are no JSON": self.replacing("notes", npy(np.array("{"))),
            "notes that are a list": self.replacing("notes", npy(np.array("[]"))),
            "deep notes": self.replacing("notes", npy(np.array("[" * 100_000))),
            "notes that are numbers": self.replacing("notes", npy(np.zeros(3))),
            "sequence that is text": self.replacing("sequence", npy(np.array("9"))),
            "negative sequence": self.replacing("sequence", npy(np.array(-1))),
        }


def damages(raw, rng):
    """Truncations at every boundary of a member and at random places, and flipped bits: all of them."""
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        boundaries = [entry.header_offset for entry in file.infolist()] + [file.start_dir]
    cuts = {
        *boundaries,
        *(b + 1 for b in boundaries),
        *range(len(raw) - 90, len(raw)),
        *rng.integers(len(raw), size=200),
    }
    yield from (raw[: int(cut)] for cut in sorted(cuts) if cut < len(raw))
    for bit in rng.integers(8 * len(raw), size=400).tolist():
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)
    for start in rng.integers(len(raw) - 20, size=50).tolist():
        yield raw[:start] + raw[start + 7 :]  # lost
        yield raw[:start] + bytes(20) + raw[start + 20 :] if any(raw[start : start + 20]) else raw[:start]  # blanked
    yield raw + b"x"


def main(folder):
    import episafe as es
    from episafe.storage import checkpoint

    bandit = es.bandits.make("finite", seed=0)
    agent = es.bandits.OPLBSP(bandit.task, 1000)
    folder, marker = Path(folder), str(Path(folder) / "marker")
    readers = {
        "checkpoint.npz": lambda place: checkpoint.read(place),
        "episodes.npz": lambda place: es.Record.load(place),
        "problem.npz": lambda place: es.LinearCMDP.load(place / "problem.npz"),
        "agent.npz": lambda place: agent.restore(place / "agent.npz"),
    }
    sequence = {"sequence": npy(np.array(1))}
    made = {
        "checkpoint.npz": Files("regression.gram", sequence).all(marker),
        "episodes.npz": Files("lams", {}).all(marker),
        "problem.npz": Files("slack", {}).all(marker),
        "agent.npz": Files("model.gram", {}).all(marker),
    }
    for name, several in made.items():
        for i, data in enumerate(several.values()):
            (folder / str(i)).mkdir(exist_ok=True)
            for path in checkpoint.NAMES if name == "checkpoint.npz" else (name,):
                (folder / str(i) / path).write_bytes(data)
            (folder / str(i) / "run.toml").write_text("")
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + MARGIN, taken + MARGIN))
    for name, reader in readers.items():
        for i, kind in enumerate(made[name]):
            start = time.perf_counter()
            try:
                reader(folder / str(i))
                found = "loaded"
            except es.DamagedFile as error:
                found = f"refused: {error}"[:300]
            except BaseException as error:
                found = f"raised {type(error).__name__}: {error}"[:300]
            seconds = time.perf_counter() - start
            print(json.dumps([kind, name, found, seconds, os.path.exists(marker)]))


if __name__ == "__main__":
    main(sys.argv[1])
