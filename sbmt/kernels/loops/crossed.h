// Block models whose clusters are pairs of parts; fit.cpp explains the layout.
#pragma once
#include "common.h"

// In each group a token belongs to two parts of each of two partitions, and so to four pairs of parts. This struct
// contains the group of a token's pair e, and the positions of the pair's parts among the token's chosen parts.
struct Pair {
    int64_t group, first, second;
    explicit Pair(int64_t e) : group(e >> 2), first(4 * group + (e >> 1 & 1)), second(4 * group + 2 + (e & 1)) {}

    // Returns the number of the cluster, (group · size + part) · size + part.
    int64_t of(const int16_t *part, int64_t size) const {
        return (part[first] - group * size) * size + part[second] - (2 * group + 1) * size;
    }
};

// Computes a query's rates to every part from its memberships in two parts of each partition.
inline void fill_rates(const Crossed &model, int64_t row, int64_t head, real *rates) {
    const int64_t size = model.size, n_parts = model.n_partitions * size;
    const real *blocks = model.blocks + head * n_parts * size;
    for (int64_t f = 0; f < model.n_partitions; f++) {
        const int64_t at = (row * model.n_partitions + f) * 2;
        const real *x = blocks + model.query_part[at] * size, *y = blocks + model.query_part[at + 1] * size;
        const real u = model.query_weight[at], v = model.query_weight[at + 1];
        for (int64_t a = 0; a < size; a++) rates[f * size + a] = u * x[a] + v * y[a];
    }
}

inline void prefetch(const Crossed &model, int64_t key) {
    __builtin_prefetch(model.key_part + key * model.n_partitions * 2);
    __builtin_prefetch(model.key_weight + key * model.n_partitions * 2);
}

// Returns the rate of a query-key pair. Each group adds the product of two sums, one over the two parts per partition.
inline real pair_rate(const Crossed &model, const real *rates, int64_t key) {
    const int16_t *part = model.key_part + key * model.n_partitions * 2;
    const real *weight = model.key_weight + key * model.n_partitions * 2;
    real rate = 0;
    for (int64_t c = 0; c < model.n_partitions * 2; c += 4)
        rate += (rates[part[c]] * weight[c] + rates[part[c + 1]] * weight[c + 1]) *
                (rates[part[c + 2]] * weight[c + 2] + rates[part[c + 3]] * weight[c + 3]);
    return rate;
}
