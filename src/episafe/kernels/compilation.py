"""How kernels are compiled and cached.

numba caches machine code by the file of the function alone. A kernel that calls one in another file would go on running
the old code of that file after a change to it, silently. So each kernel's cache is tied to a hash of all their sources.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile


def kernel(function: Callable[..., Any]) -> Any:
    """A compiled function on plain arrays. Slices inside kernels are avoided: they triple the time to compile."""
    return _compiled(function)


def lean_kernel(function: Callable[..., Any]) -> Any:
    """A kernel that makes no arrays: references to them need not be counted, which costs as much as small loops do."""
    return _compiled(function, _nrt=False)


def inlined_kernel(function: Callable[..., Any]) -> Any:
    """A lean kernel that becomes part of the kernels that call it. Python cannot call it: that saves an eighth of the
    time to compile."""
    return _compiled(function, _nrt=False, forceinline=True, no_cpython_wrapper=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True}  # nobody calls them from C
    try:
        made = njit(cache=True, **options)(function)
        # Files of another version are not even opened: their index may name classes that are gone.
        store = made._cache
        base = f"{store._impl.filename_base}.{source_stamp()[:16]}"
        store._cache_file = IndexDataCacheFile(store._cache_path, base, source_stamp())  # type: ignore[no-untyped-call]
    except (RuntimeError, AttributeError, TypeError):
        # no folder to write a cache to, or a numba that keeps its cache otherwise: better none than a stale one
        return njit(**options)(function)
    return made


@cache
def source_stamp() -> str:
    """A hash of all source files of the package that have to do with kernels: that so much as name them."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        text = path.read_bytes()
        if b"kernel" in text:
            digest.update(text)
    return digest.hexdigest()
