"""How kernels are compiled and cached, and how Python calls them.

numba caches machine code by the file of the function alone. A kernel that calls one in another file would keep running
the old code of that file after a change to it, silently. So each kernel's cache is
tied to a hash of its file and of all kernel files that it imports.
"""

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile
from numba.extending import overload, register_jitable

Function = Callable[..., Any]
INLINED: Any = {"_nrt": False, "forceinline": True, "error_model": "numpy"}


def kernel(function: Function) -> Function:
    """A compiled function on plain arrays. Slices inside kernels are avoided: they triple the time to compile."""
    return _compiled(function)


def lean_kernel(function: Function) -> Function:
    """A kernel that makes no arrays: references to them need not be counted, which costs as much as small loops do."""
    return _compiled(function, _nrt=False)


def inlined_kernel(function: Function) -> Any:
    """A lean kernel that becomes part of the kernels that call it, and that Python cannot call.

    Machine code without an entry for Python takes an eighth less time to compile.
    """
    return _compiled(function, no_cpython_wrapper=True, **INLINED)


def plain_kernel(function: Function) -> Function:
    """A formula on a few numbers that becomes part of kernels, and that Python runs as it is written."""
    compiled: Function = register_jitable(**INLINED)(function)
    return compiled


def by_model(forms: dict[type, Function]) -> Callable[[Function], Function]:
    """A function for kernels with one form for each kind of model, its first argument; all have the same arguments.

    What is decorated says what they have in common: a name and a docstring.
    """

    def register(function: Function) -> Function:
        overload(function, INLINED, strict=False)(lambda model, *_: forms[model.instance_class])
        return function

    return register


class CacheFile(IndexDataCacheFile):
    """A cache that is left as it is where it cannot be written: a full disk costs the time to compile, no plan."""

    def save(self, key: object, data: object) -> None:
        """Keep the machine code, if that can be done."""
        with suppress(OSError):
            super().save(key, data)


def _compiled(function: Function, **options: Any) -> Any:
    """`function` with a cache that belongs to the version of its file."""
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True}  # they are never called from C
    try:
        made = njit(cache=True, **options)(function)
        # Files of another version are not even opened: their index may name classes that are gone.
        store = made._cache
        stamp = source_stamp(Path(function.__code__.co_filename))
        store._cache_file = CacheFile(store._cache_path, f"{store._impl.filename_base}.{stamp[:16]}", stamp)
    except (RuntimeError, AttributeError, TypeError):
        # no folder to write a cache to, or a numba that keeps its cache otherwise: better none than a stale one
        return njit(**options)(function)
    return made


@cache
def source_stamp(path: Path) -> str:
    """Return a hash of a kernel file and of the kernel files that it imports."""
    text = path.read_text()
    digest = hashlib.sha256(text.encode())
    for name in sorted(set(re.findall(r"from episafe\.kernels\.(\w+) import", text))):
        digest.update(source_stamp(path.with_name(f"{name}.py")).encode())
    return digest.hexdigest()
