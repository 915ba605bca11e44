"""Loads and stores rows of matrices, finds rows of masks, and computes numbers that are known at compile time."""

import triton.language as tl

from sbmt.kernels.gpu.toolchain import IS_INTERPRETED, constant, kernel


@constant
def power_of_two(width):
    """The least power of two that is not below ``width``, nor below 2."""
    return max(2, 1 << (width - 1).bit_length())


@constant
def block_of(width):
    """The columns of a block that holds ``width`` of them: a power of two, and enough for a matrix product."""
    return max(16, 1 << (width - 1).bit_length())


@constant
def scale_of(width):
    """The factor 1 / √d of scores."""
    return width**-0.5


@kernel
def narrow(x, dtype: tl.constexpr):
    """Rounds to the nearest number of a type. Triton's interpreter would truncate to bfloat16 instead."""
    if IS_INTERPRETED and dtype == tl.bfloat16 and x.dtype == tl.float32:
        bits = x.to(tl.uint32, bitcast=True)
        bits += ((bits >> 16) & 1) + 0x7FFF
        x = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    return x.to(dtype)


@kernel
def load_rows(pointer, rows, is_there, WIDTH: tl.constexpr):
    """Loads rows of a matrix that is ``WIDTH`` wide, in a block of at least as many columns, with zeros elsewhere.

    ``is_there`` is None if all rows exist: masks of rows and columns cost registers.
    """
    columns = tl.arange(0, block_of(WIDTH))
    places = rows[:, None] * WIDTH + columns[None, :]
    if is_there is None:
        if block_of(WIDTH) == WIDTH:
            return tl.load(pointer + places)
        else:
            return tl.load(pointer + places, (columns < WIDTH)[None, :], other=0.0)
    elif block_of(WIDTH) == WIDTH:
        return tl.load(pointer + places, is_there[:, None], other=0.0)
    else:
        return tl.load(pointer + places, is_there[:, None] & (columns < WIDTH)[None, :], other=0.0)


@kernel
def store_rows(pointer, rows, is_there, numbers, WIDTH: tl.constexpr):
    """Stores rows of such a matrix."""
    columns = tl.arange(0, block_of(WIDTH))
    places = rows[:, None] * WIDTH + columns[None, :]
    numbers = narrow(numbers, pointer.dtype.element_ty)
    tl.store(pointer + places, numbers, is_there[:, None] & (columns < WIDTH)[None, :])


@kernel
def load_row(pointer, row, WIDTH: tl.constexpr):
    """Loads one row of such a matrix."""
    columns = tl.arange(0, block_of(WIDTH))
    return tl.load(pointer + row * WIDTH + columns, columns < WIDTH, other=0.0)


@kernel
def store_row(pointer, row, numbers, WIDTH: tl.constexpr):
    """Stores one row of such a matrix."""
    columns = tl.arange(0, block_of(WIDTH))
    tl.store(pointer + row * WIDTH + columns, narrow(numbers, pointer.dtype.element_ty), columns < WIDTH)


@kernel
def edges_of(row_ptr, row):
    """Finds the first edge of a row of a mask, and says how many there are, int32."""
    first = tl.load(row_ptr + row)
    return first, (tl.load(row_ptr + row + 1) - first).to(tl.int32)
