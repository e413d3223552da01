"""A regression as named arrays, and back, bit for bit.

What the task tells is not stored: for listed states that is all but the visits. Slots beyond those in use are left out,
and so are all rows of a model but the first where steps share it (see shared_steps.py): they are its copies.
Everything that compiled loops use as an index, or follow as a chain, is checked before it is put to use.
"""

from collections.abc import Hashable

import numpy as np

from episafe.kernels.model_arrays import FIRST_SLOTS, FIRST_TRANSITIONS, CountModel, DenseModel
from episafe.learning.regression import AnyRegression, FiniteRegression, Regression, SampledRegression
from episafe.storage.json_values import keys_as_bytes, keys_from_bytes
from episafe.storage.state_reader import Saved, State, under
from episafe.types import IntArray


def stored(regression: AnyRegression) -> State:
    """All that `regression` has learned."""
    support, used = regression.support, int(regression.support.size.max())
    arrays: dict[str, object] = {
        "num_episodes": regression.num_episodes,
        "size": support.size,
        "room": regression.phi.shape[3],
        "found": regression.work.found,
    }
    model, rows = regression.model, _rows(regression)
    arrays |= _moments(model, rows, used) if model.is_dense else _counts(model, rows, used)
    arrays |= {"state_of": regression.state_of[:, :used]} if regression.is_listed else _sampled(regression, used)
    return under("regression", arrays)


def _rows(regression: Regression) -> int:
    """How many rows of the model are learned: one where steps share it, else H."""
    return 1 if regression.shared else len(regression.support.size)


def fill(regression: AnyRegression, saved: Saved) -> None:
    """Write into a new `regression` what `stored` said of another; half of it where an entry is refused."""
    H = len(regression.support.size)
    saved = saved.under("regression")
    regression.num_episodes = saved.whole("num_episodes")
    size = saved.wholes("size", (H,), 0, 2**40)
    used = int(size.max())
    if regression.shared and (size != used).any():
        saved.refuse("size", "differs from step to step")
    is_dense = regression.model.is_dense
    transitions = np.zeros(H, dtype=np.int64) if is_dense else saved.wholes("num_transitions", (H,), 0, 2**40)
    lengths = {"state_of" if regression.is_listed else "reward": used}
    lengths |= {} if is_dense else {"times": int(transitions.max())}
    for name, length in lengths.items():
        if saved.width(name) != length:
            saved.refuse(name, f"has {saved.width(name)} entries a row, not {length}")
    _make_room(regression, saved, used, int(transitions.max()))
    regression.support.size[:] = size
    regression.work.found[:] = saved.numbers("found", (1,), nan=True)
    if regression.is_listed:
        _describe(regression, saved, used)
    else:
        _describe_sampled(regression, saved, used)
    model = regression.model
    if model.is_dense:
        _fill_moments(model, saved, _rows(regression), size)
    else:
        _fill_counts(model, saved, _rows(regression), size, transitions)


def _make_room(regression: Regression, saved: Saved, used: int, transitions: int) -> None:
    """As much room as there was: it doubles when it is used up, so it is never many times what is used."""
    room = saved.whole("room", FIRST_SLOTS)
    per_slot = FIRST_TRANSITIONS // FIRST_SLOTS
    if room % FIRST_SLOTS or (room // FIRST_SLOTS).bit_count() != 1:
        saved.refuse("room", f"is {room}, not {FIRST_SLOTS} doubled so many times")
    needed = max(used, transitions // per_slot) + len(regression.support.size) + 1
    if used > room or transitions > per_slot * room or room > max(FIRST_SLOTS, 4 * needed):
        saved.refuse("room", f"is {room} for {used} slots and {transitions} transitions")
    while regression.phi.shape[3] < room:
        regression.enlarge()


def _counts(model: CountModel, rows: int, used: int) -> dict[str, object]:
    m = int(model.num_transitions.max())
    return {
        "visits": model.visits[:rows, :, :used],
        "log_det": model.log_det,
        "num_transitions": model.num_transitions,
        "first": model.first[:rows, :, :used],
        "following": model.following[:rows, :m],
        "target": model.target[:rows, :m],
        "times": model.times[:rows, :m],
    }


def _fill_counts(model: CountModel, saved: Saved, rows: int, size: IntArray, transitions: IntArray) -> None:
    (H, A, _), used, m = model.visits.shape, int(size.max()), int(transitions.max())
    model.num_transitions[:] = transitions
    model.log_det[:] = saved.numbers("log_det", (H,), least=0)
    model.visits[:rows, :, :used] = saved.numbers("visits", (rows, A, used), least=0)
    model.times[:rows, :m] = saved.numbers("times", (rows, m), least=0)
    model.first[:rows, :, :used] = saved.wholes("first", (rows, A, used), -1, max(m, 1))
    model.following[:rows, :m] = saved.wholes("following", (rows, m), -1, max(m, 1))
    model.target[:rows, :m] = saved.wholes("target", (rows, m), 0, max(used, 1))
    for h in range(rows):
        n = transitions[h]
        if (model.target[h, :n] >= size[min(h + 1, H - 1)]).any():
            saved.refuse("target", f"leads from step {h} to a slot that is not there")
        _check_chains(saved, model.first[h].ravel(), model.following[h, :n], int(n))


def _check_chains(saved: Saved, first: IntArray, following: IntArray, n: int) -> None:
    """Every transition lies in one chain, and chains lead to older transitions: so each ends."""
    reached = np.concatenate([first[first >= 0], following[following >= 0]])
    if not np.array_equal(np.sort(reached), np.arange(n)) or (following >= np.arange(n)).any():
        saved.refuse("following", "is no set of chains")


def _moments(model: DenseModel, rows: int, used: int) -> dict[str, object]:
    return {
        "gram": model.gram[:rows],
        "gram_inv": model.gram_inv[:rows],
        "log_det": model.log_det,
        "moments": model.moments[:rows, :, :used],
    }


def _fill_moments(model: DenseModel, saved: Saved, rows: int, size: IntArray) -> None:
    (H, d, _), used = model.gram.shape, int(size.max())
    for name, array in (("gram", model.gram), ("gram_inv", model.gram_inv)):
        array[:rows] = saved.numbers(name, (rows, d, d))
        if not (np.diagonal(array[:rows], axis1=1, axis2=2) > 0).all():
            saved.refuse(name, "has a diagonal that is not positive")
    model.log_det[:] = saved.numbers("log_det", (H,))
    model.moments[:rows, :, :used] = saved.numbers("moments", (rows, d, used))


def _describe(regression: FiniteRegression, saved: Saved, used: int) -> None:
    """The names of the slots, and what the task tells of them."""
    task, known, support = regression.task, regression.known, regression.support
    H, S = regression.slot_of.shape
    regression.state_of[:, :used] = saved.wholes("state_of", (H, used), 0, S)
    regression.slot_of[:] = -1
    for h, n in enumerate(support.size.tolist()):
        states = regression.state_of[h, :n]
        regression.slot_of[h, states] = np.arange(n)
        if not np.array_equal(regression.slot_of[h, states], np.arange(n)):
            saved.refuse("state_of", f"has one state twice at step {h}")
        support.reward[h, :, :n], support.utility[h, :, :n] = known.reward[h][:, states], known.utility[h][:, states]
        regression.phi[h, :, :, :n] = known.phi[0][:, :, states]
    if support.size[0] < 1 or regression.state_of[0, 0] != task.initial_state:
        saved.refuse("state_of", "does not begin with the initial state")


def _sampled(regression: SampledRegression, used: int) -> dict[str, object]:
    support = regression.support
    names = [keys_as_bytes(known) for known in regression.names()]
    arrays: dict[str, object] = {
        "keys": np.concatenate(names),
        "key_lengths": np.array([len(name) for name in names], dtype=np.int64),
        "reward": support.reward[:, :, :used],
        "utility": support.utility[:, :, :used],
    }
    if not regression.task.one_hot:
        arrays["phi"] = regression.phi[:, :, :, :used]
    if regression.signals is not None:
        sums = regression.signals.sums
        arrays["signals"] = sums[..., :used] if regression.task.one_hot else sums
    return arrays


def _describe_sampled(regression: SampledRegression, saved: Saved, used: int) -> None:
    task, support, unknown = regression.task, regression.support, regression.task.unknown
    H, A = task.horizon, task.num_actions
    names = _names(saved, support.size)
    if task.cell_function is None and any(task.key(name) != name for known in names for name in known):
        saved.refuse("keys", "have lists for observations that are arrays, as an earlier version had them over HTTP")
    regression.rename(names)
    if regression.slot(0, task.initial_state) != 0:
        saved.refuse("keys", "do not begin with the initial state")
    support.reward[:, :, :used] = saved.numbers("reward", (H, A, used), nan="reward" in unknown)
    support.utility[:, :, :used] = saved.numbers("utility", (H, A, used), nan="utility" in unknown)
    if not task.one_hot:
        regression.phi[:, :, :, :used] = saved.numbers("phi", (H, A, task.dim, used))
    if regression.signals is not None:
        sums = regression.signals.sums
        n = used if task.one_hot else sums.shape[-1]
        sums[..., :n] = saved.numbers("signals", (*sums.shape[:-1], n))


def _names(saved: Saved, size: IntArray) -> list[list[Hashable]]:
    """The keys of each step, in the order of their slots."""
    text, start = saved.octets("keys"), 0
    keys: list[list[Hashable]] = []
    for h, length in enumerate(saved.wholes("key_lengths", (len(size),), 0, len(text) + 1).tolist()):
        keys.append(keys_from_bytes(text[start : start + length]))
        if not len(set(keys[h])) == len(keys[h]) == size[h]:
            saved.refuse("keys", f"of step {h} are {len(set(keys[h]))} different ones for {size[h]} slots")
        start += length
    if start != len(text):
        saved.refuse("keys", "are more than the slots")
    return keys
