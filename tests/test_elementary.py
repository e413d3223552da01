"""eˣ and ln x of the kernels against numpy's."""

import numpy as np

from episafe.kernels import exp_log
from episafe.kernels.compilation import kernel


@kernel
def _exp_all(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        out[i] = exp_log.exp(x[i])


@kernel
def _log_all(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        out[i] = exp_log.log(x[i])


def test_exp_is_within_two_roundings() -> None:
    x = np.concatenate([-np.logspace(-300, 2.8, 5_000), np.linspace(-690, 690, 50_001), [0.0]])
    out = np.empty_like(x)
    _exp_all(x, out)
    assert np.max(np.abs(out - np.exp(x)) / np.spacing(np.exp(x))) <= 2.0
    assert out[-1] == 1.0


def test_log_is_within_two_roundings() -> None:
    x = np.concatenate([1.0 + np.logspace(-15, 3, 5_000), np.logspace(-300, 300, 50_001)])
    out = np.empty_like(x)
    _log_all(x, out)
    assert np.max(np.abs(out - np.log(x)) / np.spacing(np.abs(np.log(x)))) <= 2.0
    _log_all(np.ones(1), out)
    assert out[0] == 0.0


def test_nan_stays() -> None:
    for function in (_exp_all, _log_all):
        out = np.zeros(1)
        function(np.array([np.nan]), out)
        assert np.isnan(out[0])
