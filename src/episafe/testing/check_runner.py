"""Running many checks: all of them, then one error that lists what failed."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Check = Callable[..., Any]


def checks_of(module: str, *runners: Check) -> list[Check]:
    """The functions of a module that are called check_…, in the order they stand there, but for those that run them."""
    named = (value for name, value in vars(sys.modules[module]).items() if name.startswith("check_"))
    return [check for check in named if check not in runners]


def selected(checks: Sequence[Check], skip: Iterable[str | Check]) -> list[Check]:
    """The checks without those to skip, given by name or as functions; a name that is none is refused."""
    names = {getattr(one, "__name__", one) for one in skip}
    unknown = names - {check.__name__ for check in checks}
    if unknown:
        known = ", ".join(check.__name__ for check in checks)
        raise ValueError(f"skip: no check {', '.join(sorted(map(str, unknown)))}; there are {known}")
    return [check for check in checks if check.__name__ not in names]


def run_all(checks: Sequence[Check], cases: Iterable[tuple[str, tuple[Any, ...]]]) -> list[str]:
    """Every check on every case (name, arguments); the names of what passed, or an AssertionError with all failures."""
    passed: list[str] = []
    failed: list[str] = []
    first: Exception | None = None
    for name, arguments in cases:
        for check in checks:
            label = f"{check.__name__}[{name}]"
            try:
                check(*arguments)
                passed.append(label)
            except Exception as error:  # whatever goes wrong, the other checks are made
                first = first or error
                said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                failed.append(f"{label}: {said}")
    if failed:
        raise AssertionError(
            f"{len(failed)} of {len(failed) + len(passed)} checks failed\n" + "\n".join(failed)
        ) from first
    return passed
