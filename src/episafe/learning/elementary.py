"""eˣ and ln x as straight-line arithmetic, so that loops over arrays vectorise; within two roundings of the exact.

A call of the C library's functions in a loop keeps the compiler from vectorising it. Both follow the textbook: reduce
the argument by powers of 2, whose exponents are integers added to the bits of a float64, then a polynomial.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

from episafe.compiling import kernel

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
LN_2_HIGH, LN_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the sum is ln 2; k·high is exact
INTEGER = 6755399441055744.0  # 1.5·2⁵²: adding it rounds to an integer, which then stands in the last bits
BIAS, MANTISSA = 1023, 52  # of a float64
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  # of √½


def _float_of(typing_context, bits):  # type: ignore[no-untyped-def]
    """The float64 that has these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


def _bits_of(typing_context, value):  # type: ignore[no-untyped-def]
    """The bits of a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


def _fma(typing_context, x, y, z):  # type: ignore[no-untyped-def]
    """x·y + z with one rounding, on every machine, however it is compiled."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


float_of: Any = intrinsic(_float_of)
bits_of: Any = intrinsic(_bits_of)
fma: Any = intrinsic(_fma)


@kernel
def exp(x):  # type: ignore[no-untyped-def]
    """eˣ for |x| < 700: with k = round(x/ln 2) and |r| ≤ ln √2, e^x = 2^k e^r, and e^r by its Taylor sum. NaN stays."""
    shifted = fma(x, LOG2_E, INTEGER)
    k = shifted - INTEGER
    r = fma(-k, LN_2_LOW, fma(-k, LN_2_HIGH, x))
    e_r = 1.0 / 6227020800.0
    e_r = fma(e_r, r, 1.0 / 479001600.0)
    e_r = fma(e_r, r, 1.0 / 39916800.0)
    e_r = fma(e_r, r, 1.0 / 3628800.0)
    e_r = fma(e_r, r, 1.0 / 362880.0)
    e_r = fma(e_r, r, 1.0 / 40320.0)
    e_r = fma(e_r, r, 1.0 / 5040.0)
    e_r = fma(e_r, r, 1.0 / 720.0)
    e_r = fma(e_r, r, 1.0 / 120.0)
    e_r = fma(e_r, r, 1.0 / 24.0)
    e_r = fma(e_r, r, 1.0 / 6.0)
    e_r = fma(e_r, r, 0.5)
    e_r = fma(e_r, r, 1.0)
    e_r = fma(e_r, r, 1.0)
    return e_r * float_of((bits_of(shifted) + BIAS) << MANTISSA)


@kernel
def log(x):  # type: ignore[no-untyped-def]
    """ln x for normal x > 0: x = 2^e m, √½ ≤ m < √2, f = (m−1)/(m+1), ln m = 2f(1 + f²/3 + f⁴/5 + …). NaN stays."""
    e = (bits_of(x) - ROOT_HALF_BITS) >> MANTISSA
    m = float_of(bits_of(x) - (e << MANTISSA))
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    series = 2.0 / 21.0
    series = fma(series, s, 2.0 / 19.0)
    series = fma(series, s, 2.0 / 17.0)
    series = fma(series, s, 2.0 / 15.0)
    series = fma(series, s, 2.0 / 13.0)
    series = fma(series, s, 2.0 / 11.0)
    series = fma(series, s, 2.0 / 9.0)
    series = fma(series, s, 2.0 / 7.0)
    series = fma(series, s, 2.0 / 5.0)
    series = fma(series, s, 2.0 / 3.0)
    ln_x = fma(float(e), LN_2, fma(series * s, f, 2.0 * f))
    return fma(0.0, x, ln_x)  # NaN has a mantissa too
