"""Eight float64 side by side in a kernel, as the vectors of the machine have them: eight at the price of one.

Loops that the compiler is left to vectorise take long to compile, and it may decline. A kernel that says itself what
goes side by side (states, λ, actions) does not. `load` and `store` move eight neighbours along the last axis of an
array. + − · / and the functions below act on each lane by itself, so that a lane comes out as a number alone would, bit
for bit, on every machine. A number among lanes stands for eight of itself; functions of numbers alone give a number.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typeconv.castgraph import Conversion
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, lower_builtin, lower_cast, models, register_model, type_callable

from episafe.kernels.compilation import inlined_kernel

LANES = 8
VECTOR = ir.VectorType(ir.DoubleType(), LANES)
BIAS, MANTISSA = 1023, 52  # of a float64
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  # of √½
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
LN_2_HIGH, LN_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the sum is ln 2; k·high is exact
INTEGER = 6755399441055744.0  # 1.5·2⁵²: adding it rounds to an integer, which then stands in the last bits
TAYLOR = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))  # of eˣ
ODD = tuple(2.0 / n for n in range(21, 1, -2))  # of ln m
OPERATIONS = {
    operator.add: "fadd",
    operator.iadd: "fadd",
    operator.sub: "fsub",
    operator.mul: "fmul",
    operator.truediv: "fdiv",
}

Generate = Callable[..., ir.Value]  # writes the instructions
Values = Sequence[ir.Value]
function: Any = intrinsic


def padded(n: int) -> int:
    """n up to a multiple of eight."""
    return (n + LANES - 1) // LANES * LANES


class Lanes(types.Type):
    """The type of eight float64 in a kernel."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")

    def can_convert_from(self, typing_context: object, other: object) -> Conversion | None:
        """A number stands for eight of itself."""
        return Conversion.safe if isinstance(other, types.Number) else None


lanes = Lanes()


register_model(Lanes)(lambda manager, lanes_type: models.PrimitiveModel(manager, lanes_type, VECTOR))


@lower_cast(types.Number, Lanes)
def _eight_times(
    context: BaseContext, builder: ir.IRBuilder, number_type: types.Type, lanes_type: types.Type, number: ir.Value
) -> ir.Value:
    number = context.cast(builder, number, number_type, types.float64)
    nothing, first_everywhere = ir.Constant(VECTOR, ir.Undefined), ir.VectorType(ir.IntType(32), LANES)([0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, number, ir.IntType(32)(0)), nothing, first_everywhere)


def _together(*given: object) -> types.Type | None:
    """The type that numbers and lanes have together."""
    if not all(isinstance(one, types.Number | Lanes) for one in given):
        return None
    return lanes if any(isinstance(one, Lanes) for one in given) else types.float64


def _each(generate: Generate, *given: object) -> tuple[Signature, Generate] | None:
    """An instruction on each lane, or on numbers alone."""
    kind = _together(*given)
    if kind is None:
        return None
    return kind(*[kind] * len(given)), lambda context, builder, _, values: generate(builder, *values)


for _sign, _instruction in OPERATIONS.items():

    @type_callable(_sign)
    def _type(context: Any) -> Callable[..., Signature | None]:
        return lambda x, y: lanes(lanes, lanes) if _together(x, y) is lanes else None

    @lower_builtin(_sign, lanes, lanes)
    def _lower(
        context: BaseContext, builder: ir.IRBuilder, _: Signature, values: Values, instruction: str = _instruction
    ) -> ir.Value:
        return getattr(builder, instruction)(*values)


def _call(builder: ir.IRBuilder, name: str, *values: ir.Value) -> ir.Value:
    """A function of the compiler's, e.g. llvm.fma, which is an instruction where the machine has it."""
    kind = values[0].type
    full_name = f"{name}.{'v8f64' if kind == VECTOR else 'f64'}"
    made = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * len(values)), full_name)
    return builder.call(made, values)


def _bits(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.bitcast(x, ir.VectorType(ir.IntType(64), LANES) if x.type == VECTOR else ir.IntType(64))


def _constant(kind: ir.Type, value: float) -> ir.Value:
    return ir.Constant(kind, [value] * LANES if isinstance(kind, ir.VectorType) else value)


@function
def fma(typing_context, x, y, z):  # type: ignore[no-untyped-def]
    """x·y + z with one rounding, on every machine, however it is compiled."""
    return _each(lambda builder, x, y, z: _call(builder, "llvm.fma", x, y, z), x, y, z)


@function
def root(typing_context, x):  # type: ignore[no-untyped-def]
    """√x."""
    return _each(lambda builder, x: _call(builder, "llvm.sqrt", x), x)


@function
def largest(typing_context, x, y):  # type: ignore[no-untyped-def]
    """The larger of x and y; x where either is NaN."""
    return _each(lambda builder, x, y: builder.select(builder.fcmp_ordered("<", x, y), y, x), x, y)


@function
def smallest(typing_context, x, y):  # type: ignore[no-untyped-def]
    """The smaller of x and y; x where either is NaN."""
    return _each(lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), y, x), x, y)


@function
def unless_below(typing_context, x, limit, y):  # type: ignore[no-untyped-def]
    """y, but 0 where x < limit."""
    return _each(lambda b, x, limit, y: b.select(b.fcmp_ordered("<", x, limit), _constant(y.type, 0.0), y), x, limit, y)


@function
def times_power(typing_context, x, shifted):  # type: ignore[no-untyped-def]
    """x·2ᵏ for a whole k that stands in the last bits of `shifted`."""

    def generate(builder: ir.IRBuilder, x: ir.Value, shifted: ir.Value) -> ir.Value:
        k = _bits(builder, shifted)
        power = builder.shl(builder.add(k, _constant(k.type, BIAS)), _constant(k.type, MANTISSA))
        return builder.fmul(x, builder.bitcast(power, x.type))

    return _each(generate, x, shifted)


@function
def exponent(typing_context, x):  # type: ignore[no-untyped-def]
    """e of x = 2ᵉ m with √½ ≤ m < √2, for normal x > 0."""

    def generate(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
        bits = _bits(builder, x)
        e = builder.ashr(builder.sub(bits, _constant(bits.type, ROOT_HALF_BITS)), _constant(bits.type, MANTISSA))
        return builder.sitofp(e, x.type)

    return _each(generate, x)


@function
def spread(typing_context, number):  # type: ignore[no-untyped-def]
    """Eight times the same number."""
    return lanes(lanes), lambda context, builder, _, values: values[0]


@function
def total(typing_context, x):  # type: ignore[no-untyped-def]
    """The sum of the eight: ((x₀+x₄) + (x₂+x₆)) + ((x₁+x₅) + (x₃+x₇))."""

    def generate(context: BaseContext, builder: ir.IRBuilder, _: Signature, values: Values) -> ir.Value:
        parts = [builder.extract_element(values[0], ir.IntType(32)(i)) for i in range(LANES)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
        return parts[0]

    return types.float64(lanes), generate


def _place(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: Values) -> ir.Value:
    array_type, index_type = signature.args[:2]
    array = context.make_array(array_type)(context, builder, values[0])
    index = zip(cgutils.unpack_tuple(builder, values[1], len(index_type)), index_type, strict=True)
    whole = [context.cast(builder, i, i_type, types.intp) for i, i_type in index]
    pointer = cgutils.get_item_pointer(context, builder, array_type, array, whole, wraparound=False)
    return builder.bitcast(pointer, VECTOR.as_pointer())


@function
def load(typing_context, array, index):  # type: ignore[no-untyped-def]
    """array[index] and the seven after it along the last axis, which must be there."""
    return lanes(array, index), lambda context, b, *given: b.load(_place(context, b, *given), align=8)


@function
def store(typing_context, array, index, x):  # type: ignore[no-untyped-def]
    """Write eight numbers to array[index] and the seven places after it along the last axis, which must be there."""

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: Values) -> ir.Value:
        builder.store(values[2], _place(context, builder, signature, values), align=8)
        return context.get_dummy_value()

    return types.void(array, index, lanes), generate


# eˣ and ln x as straight-line arithmetic, within two roundings of the exact, since the C library takes one number at a
# time: the argument is reduced by powers of 2, whose exponents are added to the bits of a float64; then a polynomial.


@inlined_kernel
def polynomial(x, coefficients):  # type: ignore[no-untyped-def]
    """The polynomial in x by Horner's rule, highest power first."""
    value = fma(0.0, x, coefficients[0])  # so that it has the type of x
    for c in coefficients[1:]:
        value = fma(value, x, c)
    return value


@inlined_kernel
def exp(x):  # type: ignore[no-untyped-def]
    """eˣ for |x| < 700: with k = round(x/ln 2) and |r| ≤ ln √2, e^x = 2^k e^r, and e^r by its Taylor sum. NaN stays."""
    shifted = fma(x, LOG2_E, INTEGER)
    k = shifted - INTEGER
    return times_power(polynomial(fma(k, -LN_2_LOW, fma(k, -LN_2_HIGH, x)), TAYLOR), shifted)


@inlined_kernel
def log(x):  # type: ignore[no-untyped-def]
    """ln x for normal x > 0: x = 2^e m, √½ ≤ m < √2, f = (m−1)/(m+1), ln m = 2f(1 + f²/3 + f⁴/5 + …). NaN stays."""
    e = exponent(x)
    m = times_power(x, INTEGER - e)
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    ln_x = fma(e, LN_2, fma(polynomial(s, ODD) * s, f, 2.0 * f))
    return fma(0.0, x, ln_x)  # NaN has a mantissa too
