"""The two inner loops of everything that follows edges: products with neighbours, and weighted sums of neighbours.

Four neighbours at a time: the loads of one hide behind the arithmetic of the others.
"""

from sbmt.kernels.cpu.toolchain import kernel


@kernel
def dots(vector, matrix, offset, index, start, stop, out):
    """Makes out[e − start] = ⟨vector, matrix[offset + index[e]]⟩ for start ≤ e < stop."""
    width = vector.shape[0]
    zero = vector.dtype.type(0)
    e = start
    while e + 4 <= stop:
        a, b = matrix[offset + index[e]], matrix[offset + index[e + 1]]
        c, d = matrix[offset + index[e + 2]], matrix[offset + index[e + 3]]
        sum_a = sum_b = sum_c = sum_d = zero
        for i in range(width):
            x = vector[i]
            sum_a += x * a[i]
            sum_b += x * b[i]
            sum_c += x * c[i]
            sum_d += x * d[i]
        to = e - start
        out[to], out[to + 1], out[to + 2], out[to + 3] = sum_a, sum_b, sum_c, sum_d
        e += 4
    while e < stop:
        a = matrix[offset + index[e]]
        sum_a = zero
        for i in range(width):
            sum_a += vector[i] * a[i]
        out[e - start] = sum_a
        e += 1


@kernel
def weighted_sum(weights, matrix, offset, index, start, stop, out):
    """Makes out = Σ_e weights[e − start] · matrix[offset + index[e]] over start ≤ e < stop."""
    width = out.shape[0]
    for i in range(width):
        out[i] = 0
    e = start
    while e + 4 <= stop:
        a, b = matrix[offset + index[e]], matrix[offset + index[e + 1]]
        c, d = matrix[offset + index[e + 2]], matrix[offset + index[e + 3]]
        to = e - start
        w_a, w_b, w_c, w_d = weights[to], weights[to + 1], weights[to + 2], weights[to + 3]
        for i in range(width):
            out[i] += (w_a * a[i] + w_b * b[i]) + (w_c * c[i] + w_d * d[i])
        e += 4
    while e < stop:
        a = matrix[offset + index[e]]
        w_a = weights[e - start]
        for i in range(width):
            out[i] += w_a * a[i]
        e += 1
