"""How kernels are compiled and cached, and how Python calls them.

numba caches machine code by the file of the function alone. A kernel that calls one in another file would keep running
the old code of that file after a change to it, silently. So each kernel's cache is
tied to a hash of its file and of all kernel files that it imports.
"""

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any

from numba import njit, types
from numba.core.caching import IndexDataCacheFile
from numba.extending import overload

Function = Callable[..., Any]


def kernel(function: Function) -> Function:
    """A compiled function on plain arrays. Slices inside kernels are avoided: they triple the time to compile."""
    return _compiled(function)


def lean_kernel(function: Function) -> Function:
    """A kernel that makes no arrays: references to them need not be counted, which costs as much as small loops do."""
    return _compiled(function, _nrt=False)


def inlined_kernel(function: Function) -> Function:
    """A lean kernel that becomes part of the kernels that call it.

    For Python it is compiled when Python calls it, with checks that arrays are large enough.
    """
    return Formula(function, lambda: _compiled(function, "python", _nrt=False, boundscheck=True))


def plain_kernel(function: Function) -> Function:
    """An inlined kernel on a few numbers, which Python runs as it is written, on floats."""
    return Formula(function, lambda: lambda *numbers: function(*map(float, numbers)))


class Formula:
    """What kernels take into themselves and Python can call.

    Kernels see machine code without an entry for Python, which saves an eighth of the time to compile.
    """

    def __init__(self, function: Function, make_entry: Callable[[], Function]) -> None:
        update_wrapper(self, function)
        self.py_func, self._make_entry = function, cache(make_entry)
        self.in_kernels = _compiled(function, _nrt=False, forceinline=True, no_cpython_wrapper=True)
        self._numba_type_ = types.Dispatcher(self.in_kernels)  # what numba takes it for

    def __call__(self, *arguments: object) -> Any:
        """The formula, from Python."""
        return self._make_entry()(*arguments)


def by_model(compiled: Callable[[Function], Function], forms: dict[type, Function]) -> Callable[[Function], Function]:
    """A kernel with one form for each kind of model, its first argument. A caller is compiled with the form it needs.

    Args:
        compiled: how a form is compiled for Python, e.g. `kernel`.
        forms: by the kind of model; functions of the same arguments, written for kernels.
    """
    return lambda said: ByModel(said, compiled, forms)


class ByModel:
    """The forms of a kernel, for kernels and for Python; `said` is what they have in common: a name and a docstring."""

    def __init__(self, said: Function, compiled: Callable[[Function], Function], forms: dict[type, Function]) -> None:
        update_wrapper(self, said)
        self._entries = {kind: cache(lambda form=form: compiled(form)) for kind, form in forms.items()}
        overload(self, strict=False)(lambda model, *_: forms[model.instance_class])

    def __call__(self, *arguments: object) -> Any:
        """The form for this model, from Python."""
        return self._entries[type(arguments[0])]()(*arguments)


class CacheFile(IndexDataCacheFile):
    """A cache that is left as it is where it cannot be written: a full disk costs the time to compile, no plan."""

    def save(self, key: object, data: object) -> None:
        """Keep the machine code, if that can be done."""
        with suppress(OSError):
            super().save(key, data)


def _compiled(function: Function, entry: str = "", **options: Any) -> Any:
    """`function` with a cache of its own by the name of the entry, since numba does not tell options apart."""
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True}  # they are never called from C
    try:
        made = njit(cache=True, **options)(function)
        # Files of another version are not even opened: their index may name classes that are gone.
        store = made._cache
        base = f"{store._impl.filename_base}{entry}.{source_stamp(Path(function.__code__.co_filename))[:16]}"
        store._cache_file = CacheFile(store._cache_path, base, source_stamp(Path(function.__code__.co_filename)))
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
