"""eˣ and ln x as straight-line arithmetic, of a number or of eight at once; within two roundings of the exact.

The C library's functions take one number at a time. Both follow the textbook: reduce the argument by powers of 2, whose
exponents are integers added to the bits of a float64, then a polynomial.
"""

from episafe2.kernels.compilation import inlined_kernel
from episafe2.kernels.lanes import exponent, fma, mantissa, times_power

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
LN_2_HIGH, LN_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the sum is ln 2; k·high is exact
INTEGER = 6755399441055744.0  # 1.5·2⁵²: adding it rounds to an integer, which then stands in the last bits


@inlined_kernel
def exp(x):  # type: ignore[no-untyped-def]
    """eˣ for |x| < 700: with k = round(x/ln 2) and |r| ≤ ln √2, e^x = 2^k e^r, and e^r by its Taylor sum. NaN stays."""
    shifted = fma(x, LOG2_E, INTEGER)
    k = shifted - INTEGER
    r = fma(k, -LN_2_LOW, fma(k, -LN_2_HIGH, x))
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
    return times_power(e_r, shifted)


@inlined_kernel
def log(x):  # type: ignore[no-untyped-def]
    """ln x for normal x > 0: x = 2^e m, √½ ≤ m < √2, f = (m−1)/(m+1), ln m = 2f(1 + f²/3 + f⁴/5 + …). NaN stays."""
    m = mantissa(x)
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
    ln_x = fma(exponent(x), LN_2, fma(series * s, f, 2.0 * f))
    return fma(0.0, x, ln_x)  # NaN has a mantissa too
