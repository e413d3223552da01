"""What environments share: checked options, and problems with one kernel for all steps."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from episafe.core.checks import as_count, as_scale, is_number
from episafe.core.errors import Infeasible
from episafe.core.types import Array
from episafe.problems import exact
from episafe.problems.linear import LinearCMDP

SIZES = ("horizon", "dim", "buffer_length")


def defaults_of(constructor: Callable[..., object]) -> dict[str, object]:
    """Return the options of an environment with their defaults: all but the random stream and the variant."""
    parameters = inspect.signature(constructor).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in ("rng", "variant")}


def described_options(
    kind: str, environments: Mapping[str, Callable[..., object]], name: str, options: Mapping[str, object]
) -> dict[str, str]:
    """Return {"options": …} with what differs from the defaults, for an origin; {} if nothing does.

    Raise if there is no environment `name`, if it does not have an option, or if a size is not a whole number ≥ 1.
    """
    if name not in environments:
        raise ValueError(
            f"no {kind} {name!r}; there are {', '.join(environments)}; a problem of your own is passed as an object"
        )
    defaults = defaults_of(environments[name])
    for option, value in options.items():
        if option not in defaults:
            raise ValueError(f"{name} has no option {option!r}; it has {', '.join(defaults)}")
        if option.startswith("num_") or option in SIZES:
            as_count(option, value)
    given = {option: _plain(options.get(option, default)) for option, default in defaults.items()}
    text = ", ".join(f"{option}={value!r}" for option, value in given.items() if value != _plain(defaults[option]))
    return {"options": text} if text else {}


def _plain(value: object) -> object:
    """Return a value without NumPy types; lists as tuples."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def check_range(name: str, value: object, low: float, high: float) -> None:
    """Raise if a value is not a number in [low, high]; 0 is refused if low is 0 and high is infinite."""
    if not is_number(value) or not low <= value <= high or (value == 0 and math.isinf(high)):
        wanted = "a number > 0" if math.isinf(high) else f"a number in [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_interval(name: str, value: object) -> None:
    """Raise if a value is not a pair low ≤ high of probabilities."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name} must be a pair (low, high) of probabilities, got {value!r}")
    check_range(name, value[0], 0, 1)
    check_range(name, value[1], value[0], 1)


def baseline(
    P: Array, reward: Array, utilities: Array, initial_state: int, threshold: ArrayLike, slack: ArrayLike
) -> Array:
    """Return the policy (H, S, A) of largest V^r(s₁) with V^u(s₁) ≥ b + slack for every limit, as in Bura et al. 2022.

    Utilities are (m, H, S, A); threshold and slack a number or m of them.
    """
    slacks = [as_scale("slack", one, positive=True) for one in np.atleast_1d(slack).tolist()]
    try:
        return exact.optimum(P, reward, utilities, np.atleast_1d(threshold) + slacks, initial_state)[1]
    except Infeasible as error:
        raise Infeasible(
            f"no policy has slack {slack!r} above the threshold {threshold!r}: {error}, or the slack"
        ) from error


def stationary(
    kernel: Array,
    reward: Array,
    utility: Array | Sequence[Array],
    *,
    horizon: int,
    threshold: float | Sequence[float],
    slack: ArrayLike,
    initial_state: int = 0,
    names: Sequence[str] = (),
) -> LinearCMDP:
    """Return a problem with one kernel (S, A, S) for all steps and a `baseline` as incumbent.

    Reward and utility are (S, A), or (H, S, A) if they change; utility, threshold and slack may be lists of m.
    """
    P, several = np.broadcast_to(kernel, (horizon, *kernel.shape)), np.ndim(threshold) > 0
    signals = (reward, *(utility if several else [utility]))
    reward, *each = (np.ascontiguousarray(np.broadcast_to(signal, P.shape[:3])) for signal in signals)
    incumbent = baseline(P, reward, np.stack(each), initial_state, threshold, slack)
    told = None, initial_state, threshold, incumbent
    return LinearCMDP(P, reward, each if several else each[0], *told, names=names)


def cost_limited(
    arrays: tuple[Array, Array, Array],
    horizon: int,
    limit: float | None,
    slack: float | None,
    share: float = 0.4,
    initial_state: int = 0,
) -> LinearCMDP:
    """Return the same of kernel, reward and utility 1 − cost, where an episode may cost `limit` on average, or H/2.

    b = H − limit. The incumbent has the slack, or a share of H.
    """
    limit, slack = horizon / 2 if limit is None else limit, share * horizon if slack is None else slack
    check_range("limit", limit, 0, horizon)
    return stationary(*arrays, horizon=horizon, threshold=horizon - limit, slack=slack, initial_state=initial_state)
