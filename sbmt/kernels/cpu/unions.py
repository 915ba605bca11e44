"""Merging the sorted rows of two CSR masks."""

from sbmt.kernels.cpu.toolchain import kernel


@kernel
def count_union(start, stop, first_ptr, first_keys, second_ptr, second_keys, counts):
    """How many keys rows start … stop have in either mask."""
    for row in range(start, stop):
        a, a_end, b, b_end = first_ptr[row], first_ptr[row + 1], second_ptr[row], second_ptr[row + 1]
        count = a_end - a + b_end - b
        while a < a_end and b < b_end:
            x, y = first_keys[a], second_keys[b]
            a += x <= y
            b += y <= x
            count -= x == y
        counts[row] = count


@kernel
def fill_union(start, stop, first_ptr, first_keys, second_ptr, second_keys, row_ptr, keys):
    """The keys that rows start … stop have in either mask, ascending."""
    for row in range(start, stop):
        a, a_end, b, b_end = first_ptr[row], first_ptr[row + 1], second_ptr[row], second_ptr[row + 1]
        for to in range(row_ptr[row], row_ptr[row + 1]):
            if b == b_end or (a < a_end and first_keys[a] <= second_keys[b]):
                keys[to] = first_keys[a]
                b += b < b_end and second_keys[b] == first_keys[a]
                a += 1
            else:
                keys[to] = second_keys[b]
                b += 1
