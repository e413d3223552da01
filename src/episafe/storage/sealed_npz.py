"""Named arrays in one file, with a seal, read without trust.

A file is an .npz (a zip archive of arrays, as numpy's), whose last 64 bytes, the archive's comment, are the SHA-256 of
all the bytes before them: a flipped or missing byte anywhere breaks the seal. A seal is no signature, so a file that
has one may still be hostile. Reading goes by layers, each of which has bounded what the next one may ask for: the
archive's directory, the seal, the header of each array, its bytes. Nothing in a file is ever run.
"""

import hashlib
import math
import re
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile
from episafe.storage.regular_files import open_regular

FORMAT = 1  # of what is written; a file says which it is
FORMAT_NAME = "format"
SEAL = 64  # bytes: a SHA-256 in hexadecimal
END = struct.Struct("<4s4H2LH")  # the archive's last record: mark, disks, entries, directory's size and place, comment
END_MARK, ZIP64_MARK, ZIP64_LOCATOR = b"PK\x05\x06", b"PK\x06\x07", 20
ZIP64_FROM = 2**31 - 1  # bytes: larger archives have a second directory record
MOST_MEMBERS, LARGEST_DIRECTORY, LARGEST_HEADER, LARGEST_LENGTH = 20_000, 4 << 20, 4096, 2**40
UNPACKED_FREELY, UNPACKED_RATIO = 128 << 20, 100  # no file unpacks to more than this, or so many times its size
NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*\.npy", re.ASCII)
TYPES = {"|b1", "|i1", "|u1", *(f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)), "<f4", "<f8"}
LARGEST_CHARACTER = 0x10FFFF
CHUNK = 1 << 20
LONGEST_REASON = 200


def write(file: IO[bytes], arrays: Mapping[str, Any], *, compress: bool) -> None:
    """Write arrays to an empty file that can be read back; compressed only as far as `read` would unpack it."""
    members = {FORMAT_NAME: np.array(FORMAT), **{name: np.asarray(value) for name, value in arrays.items()}}
    for name, array in members.items():
        if not NAME.fullmatch(f"{name}.npy") or not _is_plain(array.dtype):
            raise ValueError(f"an array {name!r} of type {array.dtype} is not stored: plain numbers and text are")
    _write_archive(file, members, zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED)
    if compress and sum(array.nbytes for array in members.values()) > _most_unpacked(file.tell()) // 2:
        file.seek(0)
        file.truncate()
        _write_archive(file, members, zipfile.ZIP_STORED)
    seal = _digest(file, file.tell() - SEAL)
    file.seek(-SEAL, 2)
    file.write(seal)


def read(path: Path, names: set[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of a file that `write` wrote; anything else is a DamagedFile, found out at bounded cost.

    Args:
        path: the file.
        names: those that may occur; None for any.
    """
    try:
        with open_regular(path, remedy="delete it and make it again") as file:
            return _read(path, file, names)
    except (FileNotFoundError, PermissionError, DamagedFile):
        raise
    except Exception as error:  # a torn or foreign file fails in any layer: zip, zlib, the array header
        why = f"{type(error).__name__}: {error}"[:LONGEST_REASON]  # which may quote the file
        raise DamagedFile(f"{path} is damaged or no file of episafe ({why}): delete it and make it again") from error


def read_one(path: Path, name: str) -> NDArray[Any] | None:
    """One small array of a file, whose seal is not checked; None where that cannot be had."""
    try:
        with open_regular(path) as file:
            _check_end(file)
            with zipfile.ZipFile(file) as archive:
                return _array(archive, archive.getinfo(f"{name}.npy"), CHUNK)
    except Exception:  # whatever is wrong, `read` says it
        return None


def unpacked_size(path: Path) -> int:
    """Bytes that the arrays of a file take, as far as it says; 0 where `read` will say what is wrong."""
    try:
        with open_regular(path) as file:
            _check_end(file)
            with zipfile.ZipFile(file) as archive:
                return sum(member.file_size for member in archive.infolist())
    except Exception:
        return 0


def is_archive(path: Path) -> bool:
    """Whether a file looks like one that `write` wrote, at a glance: its seal is not checked."""
    return read_one(path, FORMAT_NAME) is not None


def _read(path: Path, file: IO[bytes], names: set[str] | None) -> dict[str, NDArray[Any]]:
    size = _check_end(file)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        _check_members(members, size)
        if _digest(file, size - SEAL) != archive.comment:
            raise ValueError("its bytes are not those that were sealed")
        version = _array(archive, archive.getinfo(f"{FORMAT_NAME}.npy"), CHUNK)
        if version.dtype != np.int64 or version.shape != () or not 1 <= version:
            raise ValueError("it does not say its format")
        if version > FORMAT:
            says = f"has format {version}, and this episafe reads up to {FORMAT}: update episafe"
            raise DamagedFile(f"{path} {says}")
        found = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name != FORMAT_NAME:
                if names is not None and name not in names:
                    raise ValueError(f"it holds {name!r}, which is not known here")
                found[name] = _array(archive, member, member.file_size)
    return found


def _check_end(file: IO[bytes]) -> int:
    """The size of the file, whose last record must be as `write` leaves it, with a directory that is not too large."""
    size = file.seek(0, 2)
    if size < END.size + SEAL:
        raise ValueError("it is too short")
    file.seek(size - END.size - SEAL)
    mark, disk, start_disk, here, entries, length, place, comment = END.unpack(file.read(END.size))
    if mark != END_MARK or disk or start_disk or comment != SEAL:
        raise ValueError("it does not end with a seal")
    if here != entries or entries > MOST_MEMBERS or length > LARGEST_DIRECTORY:
        raise ValueError(f"it has {entries} members in a directory of {length} bytes")
    if size <= ZIP64_FROM:
        if place + length + END.size + SEAL != size:
            raise ValueError("its directory is not where it should be")
        file.seek(max(size - END.size - SEAL - ZIP64_LOCATOR, 0))
        if file.read(len(ZIP64_MARK)) == ZIP64_MARK:
            raise ValueError("it has a second directory record")
    file.seek(0)
    return size


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise ValueError("a member occurs twice")
    for member in members:
        if not NAME.fullmatch(member.filename):
            raise ValueError(f"a member is called {member.filename[:80]!r}")
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or member.flag_bits & 1:
            raise ValueError(f"{member.filename} is a link, a folder or encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{member.filename} is compressed in another way")
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise ValueError(f"{member.filename} is stored with two sizes")
    if sum(member.compress_size for member in members) > size:
        raise ValueError("its members overlap")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _most_unpacked(size):
        raise ValueError(f"its {size} bytes would unpack to {unpacked}")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> NDArray[Any]:
    """One array, allocated only when its header agrees with the size of its member."""
    with archive.open(member) as stream:
        shape, dtype = _header(stream, member.filename)
        length = math.prod(shape) * dtype.itemsize
        if length != member.file_size - stream.tell() or length > most:
            raise ValueError(f"{member.filename} says shape {shape}, which is not what it holds")
        raw = bytearray(length)
        view, at = memoryview(raw), 0
        while at < length:
            chunk = stream.read(min(CHUNK, length - at))
            if not chunk:
                raise ValueError(f"{member.filename} ends early")
            view[at : at + len(chunk)] = chunk
            at += len(chunk)
        if stream.read(1):  # also has its CRC checked
            raise ValueError(f"{member.filename} goes on after its end")
    array = np.frombuffer(raw, dtype=dtype).reshape(shape)
    if dtype.kind == "U" and length and np.frombuffer(raw, dtype="<u4").max() > LARGEST_CHARACTER:
        raise ValueError(f"{member.filename} holds what is no text")
    if dtype.kind == "b" and length and np.frombuffer(raw, dtype=np.uint8).max() > 1:
        raise ValueError(f"{member.filename} holds what is no truth value")
    return array


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type by an array's header, which numpy reads as a Python literal and never runs."""
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"{name} has a header of version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=LARGEST_HEADER)
    if fortran or not _is_plain(dtype):
        raise ValueError(f"{name} holds {dtype}, and only plain numbers and text are read")
    if len(shape) > 32 or any(type(n) is not int or not 0 <= n <= LARGEST_LENGTH for n in shape):
        raise ValueError(f"{name} says shape {shape}")
    return shape, dtype


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.names is None and dtype.subdtype is None and (dtype.str in TYPES or dtype.str.startswith("<U"))


def _most_unpacked(size: int) -> int:
    return max(UNPACKED_FREELY, UNPACKED_RATIO * size)


def _write_archive(file: IO[bytes], members: Mapping[str, NDArray[Any]], compression: int) -> None:
    """An archive without dates, so that the same arrays make the same bytes; its comment is still to be filled in."""
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in members.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = compression
            with archive.open(entry, "w", force_zip64=array.nbytes >= 2**30) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(array).reshape(array.shape), (1, 0), False)
        archive.comment = b"0" * SEAL
    file.seek(0, 2)


def _digest(file: IO[bytes], length: int) -> bytes:
    """SHA-256 of the first `length` bytes, in hexadecimal."""
    found, left = hashlib.sha256(), length
    file.seek(0)
    while left > 0:
        chunk = file.read(min(CHUNK, left))
        if not chunk:
            raise ValueError("it ends early")
        found.update(chunk)
        left -= len(chunk)
    return found.hexdigest().encode()
