"""Single GPU instructions that Triton or its interpreter does not offer, each with a substitute for other cases."""

import triton.language as tl

from sbmt.kernels.gpu.toolchain import IS_INTERPRETED, kernel


@kernel
def exp2(x):
    """Computes 2ˣ. In float32, results below 2⁻¹²⁶ become 0, which saves three instructions."""
    if IS_INTERPRETED or x.dtype != tl.float32:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@kernel
def nearest_word(x):
    """Rounds to the nearest whole number from 0 to 2³² − 1."""
    if IS_INTERPRETED or x.dtype != tl.float32:
        return (tl.maximum(tl.minimum(x, 4294967040.0), 0.0) + 0.5).to(tl.uint32)  # the largest float32 below 2³²
    else:
        return tl.inline_asm_elementwise("cvt.rni.u32.f32 $0, $1;", "=r,f", [x], tl.uint32, is_pure=True, pack=1)


@kernel
def wide_product(a, b: tl.constexpr):
    """Returns the lower and the upper half of the product of two uint32, in one instruction instead of two."""
    if IS_INTERPRETED:
        return a * b, tl.umulhi(a, b)
    else:
        asm: tl.constexpr = "{ .reg .u64 ab; mul.wide.u32 ab, $2, $3; mov.b64 {$0, $1}, ab; }"
        other = tl.full(a.shape, b, tl.uint32)
        return tl.inline_asm_elementwise(asm, "=r,=r,r,r", [a, other], (tl.uint32, tl.uint32), is_pure=True, pack=1)


@kernel
def settled(x):
    """Returns the same numbers once the matrix product that computes them has finished."""
    if IS_INTERPRETED or x.dtype != tl.float32:
        return x
    else:
        return tl.inline_asm_elementwise("mov.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@kernel
def narrow(x, dtype: tl.constexpr):
    """Rounds to the nearest number of a type. Triton's interpreter would truncate to bfloat16 instead."""
    if IS_INTERPRETED and dtype == tl.bfloat16 and x.dtype == tl.float32:
        bits = x.to(tl.uint32, bitcast=True)
        bits += ((bits >> 16) & 1) + 0x7FFF
        x = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    return x.to(dtype)
