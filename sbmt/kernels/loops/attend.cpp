// Attention along the edges of a mask, products along edges, and random numbers for dropout.
//
// The equations are those of sbmt.edge_attention; the plain PyTorch version is sbmt.attention.dense.attend_dense.
#include "common.h"
#include "vector_math.h"

namespace {

const real LOWEST = -std::numeric_limits<real>::infinity();

int64_t longest_row(const Mask &mask, int64_t start, int64_t stop) {
    int64_t longest = 0;
    for (int64_t row = start; row < stop; row++) longest = std::max(longest, mask.row_ptr[row + 1] - mask.row_ptr[row]);
    return longest;
}

// Writes a row's scores before gating to `logit` and its softmax to `weight`; returns the sink's share.
template <int D>
real softmax_of_row(const Inputs &in, const Mask &mask, int64_t row, real *logit, real *weight) {
    const int64_t graph = row / mask.n_queries, first = mask.row_ptr[row], n = mask.row_ptr[row + 1] - first;
    const real *query = in.query + row * in.d, *key = in.key + graph * mask.n_keys * in.d;
    const real sink = in.sink ? in.sink[graph % mask.n_heads] : LOWEST, scale = 1 / std::sqrt(real(in.d));
    real largest = sink;
    for (int64_t e = 0; e < n; e++) weight[e] = logit[e] = dot<D>(query, key + mask.keys[first + e] * in.d, in.d) * scale;
    if (in.gate && in.is_score_rule)
        for (int64_t e = 0; e < n; e++) weight[e] *= in.gate[first + e];
    else if (in.gate)
        for (int64_t e = 0; e < n; e++) weight[e] += std::log(in.gate[first + e]);
    if (in.bias)
        for (int64_t e = 0; e < n; e++) weight[e] += in.bias[first + e];
    for (int64_t e = 0; e < n; e++)
        if (!(weight[e] <= largest)) largest = weight[e];
    if (largest == LOWEST) {  // no edges, or none with positive weight
        std::fill(weight, weight + n, real(0));
        return 0;
    }
    const real sink_weight = std::exp(sink - largest);
    real total = sink_weight;
#pragma omp simd reduction(+ : total)
    for (int64_t e = 0; e < n; e++) {
        weight[e] = std::exp(weight[e] - largest);
        total += weight[e];
    }
    for (int64_t e = 0; e < n; e++) weight[e] /= total;
    return sink_weight / total;
}

template <int D>
void attend_rows(int64_t start, int64_t stop, const Inputs &in, const Mask &mask, real *out, real *weights) {
    std::vector<real> logit(longest_row(mask, start, stop)), weight(logit.size());
    for (int64_t row = start; row < stop; row++) {
        const int64_t first = mask.row_ptr[row], n = mask.row_ptr[row + 1] - first;
        const real *value = in.value + row / mask.n_queries * mask.n_keys * in.d_value;
        softmax_of_row<D>(in, mask, row, logit.data(), weight.data());
        if (weights) std::copy_n(weight.data(), n, weights + first);
        real *of_row = out + row * in.d_value;
        std::fill(of_row, of_row + in.d_value, real(0));
        for (int64_t e = 0; e < n; e++) {
            const real factor = in.scale ? weight[e] * in.scale[first + e] : weight[e];
            add<D>(of_row, factor, value + mask.keys[first + e] * in.d_value, in.d_value);
        }
    }
}

template <int D>
void attend_backward_graphs(int64_t start, int64_t stop, const Inputs &in, const Mask &mask, const real *grad_out,
                            const real *grad_weights, real *grad_query, real *grad_key, real *grad_value,
                            real *grad_bias, real *grad_gate, real *grad_sink) {
    const int64_t n_queries = mask.n_queries, d = in.d, d_value = in.d_value;
    const real root = 1 / std::sqrt(real(d));
    std::vector<real> logit(longest_row(mask, start * n_queries, stop * n_queries)), weight(logit.size());
    std::vector<real> slope(logit.size());  // derivative of the loss with respect to each weight
    for (int64_t row = start * n_queries; row < stop * n_queries; row++) {
        const int64_t graph = row / n_queries, first = mask.row_ptr[row], n = mask.row_ptr[row + 1] - first;
        const int64_t *keys = mask.keys + first;
        const real *key = in.key + graph * mask.n_keys * d, *value = in.value + graph * mask.n_keys * d_value;
        real *to_key = grad_key + graph * mask.n_keys * d, *to_value = grad_value + graph * mask.n_keys * d_value;
        const real sink_weight = softmax_of_row<D>(in, mask, row, logit.data(), weight.data());
        real mean = 0;
        for (int64_t e = 0; e < n; e++) {
            const real factor = in.scale ? in.scale[first + e] : 1;
            slope[e] = dot<D>(grad_out + row * d_value, value + keys[e] * d_value, d_value) * factor;
            if (grad_weights) slope[e] += grad_weights[first + e];
            mean += weight[e] * slope[e];
            add<D>(to_value + keys[e] * d_value, weight[e] * factor, grad_out + row * d_value, d_value);
        }
        if (in.sink) grad_sink[graph] -= sink_weight * mean;
        for (int64_t e = 0; e < n; e++) {
            real to_score = weight[e] * (slope[e] - mean);
            if (in.bias) grad_bias[first + e] = to_score;
            if (in.gate) {
                const real gate = in.gate[first + e];
                grad_gate[first + e] = in.is_score_rule ? to_score * logit[e] : to_score / gate;
                if (in.is_score_rule) to_score *= gate;
            }
            add<D>(grad_query + row * d, to_score * root, key + keys[e] * d, d);
            add<D>(to_key + keys[e] * d, to_score * root, in.query + row * d, d);
        }
    }
}

template <int D>
void edge_dot_rows(int64_t start, int64_t stop, const real *query, const real *key, int64_t d, const Mask &mask,
                   real *out) {
    for (int64_t row = start; row < stop; row++) {
        const real *keys = key + row / mask.n_queries * mask.n_keys * d;
        for (int64_t e = mask.row_ptr[row]; e < mask.row_ptr[row + 1]; e++)
            out[e] = dot<D>(query + row * d, keys + mask.keys[e] * d, d);
    }
}

template <int D>
void edge_dot_backward_graphs(int64_t start, int64_t stop, const real *grad, const real *query, const real *key,
                              int64_t d, const Mask &mask, real *grad_query, real *grad_key) {
    for (int64_t row = start * mask.n_queries; row < stop * mask.n_queries; row++) {
        const int64_t first_key = row / mask.n_queries * mask.n_keys;
        for (int64_t e = mask.row_ptr[row]; e < mask.row_ptr[row + 1]; e++) {
            const int64_t at = (first_key + mask.keys[e]) * d;
            add<D>(grad_query + row * d, grad[e], key + at, d);
            add<D>(grad_key + at, grad[e], query + row * d, d);
        }
    }
}

}  // namespace

// Most heads have one of the first two widths; 128 is the default number of clusters.
#define FOR_WIDTH(d, call) \
    if ((d) == 32) { constexpr int D = 32; call; } \
    else if ((d) == 64) { constexpr int D = 64; call; } \
    else if ((d) == 128) { constexpr int D = 128; call; } \
    else { constexpr int D = 0; call; }

void attend(const Ranges *ranges, const Inputs *in, const Mask *mask, real *out, real *weights) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        FOR_WIDTH(in->d == in->d_value ? in->d : 0, attend_rows<D>(start, stop, *in, *mask, out, weights))
    });
}

// Each thread processes whole graphs, since graphs share no keys.
void attend_backward(const Ranges *ranges, const Inputs *in, const Mask *mask, const real *grad_out,
                     const real *grad_weights, real *grad_query, real *grad_key, real *grad_value, real *grad_bias,
                     real *grad_gate, real *grad_sink) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        FOR_WIDTH(in->d == in->d_value ? in->d : 0,
                  attend_backward_graphs<D>(start, stop, *in, *mask, grad_out, grad_weights, grad_query, grad_key,
                                            grad_value, grad_bias, grad_gate, grad_sink))
    });
}

void edge_dot(const Ranges *ranges, const real *query, const real *key, int64_t d, const Mask *mask, real *out) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        FOR_WIDTH(d, edge_dot_rows<D>(start, stop, query, key, d, *mask, out))
    });
}

// Each thread processes whole graphs here, too.
void edge_dot_backward(const Ranges *ranges, const real *grad, const real *query, const real *key, int64_t d,
                       const Mask *mask, real *grad_query, real *grad_key) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        FOR_WIDTH(d, edge_dot_backward_graphs<D>(start, stop, grad, query, key, d, *mask, grad_query, grad_key))
    });
}

// Writes a uniform number for each edge, which depends only on the edge's address.
void cell_uniforms(const Ranges *ranges, const Mask *mask, int64_t seed, int64_t first_example, double *out) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        for (int64_t row = start; row < stop; row++) {
            const int64_t graph = row / mask->n_queries;
            for (int64_t e = mask->row_ptr[row]; e < mask->row_ptr[row + 1]; e++)
                out[e] = cell_uniform(seed, mask->keys[e], row % mask->n_queries, graph % mask->n_heads,
                                      graph / mask->n_heads + first_example);
        }
    });
}

// Weighs edges that were drawn with probability p = 1 − exp(−rate − extra), or 1 for keys at most `reach` positions away:
// writes −ln max(p, smallest) of each edge, and the sum of (1 − exp(−rate)) / p over each row.
void weigh_edges(const Ranges *ranges, const real *rate, const Mask *mask, int64_t offset, int64_t reach, double extra,
                 double smallest, real *bias, real *totals) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        const int64_t *row_ptr = mask->row_ptr, *keys = mask->keys, AT_ONCE = 64;  // rows
        const real more = extra, least = smallest, tiny = std::numeric_limits<real>::min();
        std::vector<real> expected, drawn_with;
        for (int64_t begin = start; begin < stop; begin += AT_ONCE) {
            const int64_t end = std::min(begin + AT_ONCE, stop), first = row_ptr[begin], n = row_ptr[end] - first;
            const int64_t padded = (n + 15) / 16 * 16;  // whole vectors, so that no result depends on an edge's place
            expected.assign(padded, 1);
            drawn_with.resize(padded);
            real *share = expected.data(), *p = drawn_with.data();
            std::copy_n(rate + first, n, share);
#pragma omp simd
            for (int64_t e = 0; e < padded; e++) {
                p[e] = -std::expm1(-share[e] - more);
                share[e] = -std::expm1(-share[e]);
            }
            for (int64_t row = begin; row < end; row++) {
                const int64_t place = row % mask->n_queries + offset, last = row_ptr[row + 1];
                int64_t e = std::lower_bound(keys + row_ptr[row], keys + last, place - reach) - keys;
                for (; e < last && keys[e] <= place + reach; e++) p[e - first] = 1;
            }
#pragma omp simd
            for (int64_t e = 0; e < padded; e++) share[e] /= p[e] < tiny ? tiny : p[e];
#pragma omp simd
            for (int64_t e = 0; e < padded; e++) p[e] = -std::log(p[e] < least ? least : p[e]);
            std::copy_n(p, n, bias + first);
            for (int64_t row = begin; row < end; row++)
                totals[row] = std::accumulate(share + row_ptr[row] - first, share + row_ptr[row + 1] - first, real(0));
        }
    });
}

// Marks the edges that join tokens at most `reach` positions apart; the first query is at position `offset`.
void near_edges(const Ranges *ranges, const Mask *mask, int64_t offset, int64_t reach, bool *out) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        for (int64_t row = start; row < stop; row++) {
            const int64_t place = row % mask->n_queries + offset, low = place - reach, high = place + reach;
            for (int64_t e = mask->row_ptr[row]; e < mask->row_ptr[row + 1]; e++)
                out[e] = low <= mask->keys[e] && mask->keys[e] <= high;
        }
    });
}
