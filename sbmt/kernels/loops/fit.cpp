// Code for fitted masks other than drawing: memberships in parts, rates of edges, and sums of memberships.
//
// A token belongs to two parts of each partition; `part` and `weight` list both, partition by partition. Part a of
// partition f has number f · size + a. Crossing partitions 2g and 2g + 1 gives group g. The plain PyTorch versions are
// in sbmt.block_model.crossed.
#include "crossed.h"
#include "vector_math.h"

namespace {

constexpr int64_t MOST = 256 / sizeof(real);  // tokens at once: four of the widest vectors

// Computes the products of two clusters with MOST tokens, given as columns. Sums stay in registers; if this function
// is inlined, GCC stores them in memory, which is slower.
[[gnu::noinline]] void multiply(const real *one, const real *other, const real *columns, int64_t d, real *of_one,
                                real *of_other) {
    real sums[MOST] = {}, other_sums[MOST] = {};
    for (int64_t c = 0; c < d; c++)
#pragma omp simd
        for (int64_t t = 0; t < MOST; t++) {
            sums[t] = std::fma(one[c], columns[c * MOST + t], sums[t]);
            other_sums[t] = std::fma(other[c], columns[c * MOST + t], other_sums[t]);
        }
    std::copy_n(sums, MOST, of_one);
    std::copy_n(other_sums, MOST, of_other);
}

}  // namespace

// Finds the two parts of each partition with the largest logits ⟨token, cluster⟩, in ascending order, and the softmax
// of the two logits. Logits of several tokens with two parts are computed at once, in vectors.
void choose_parts(const Ranges *ranges, const real *tokens, const real *clusters, const Choice *sizes, int16_t *part,
                  real *weight) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        const int64_t n_tokens = sizes->n_tokens, n_partitions = sizes->n_partitions, size = sizes->size, d = sizes->d;
        std::vector<real> columns(d * MOST), of_lower(n_partitions * MOST), of_upper(of_lower.size());
        std::vector<int16_t> lower(of_lower.size()), upper(of_lower.size());
        int64_t n = 0;
        for (int64_t done = start; done < stop; done += n) {
            const int64_t graph = done / n_tokens;
            n = std::min({MOST, n_tokens - done % n_tokens, stop - done});
            for (int64_t t = 0; t < n; t++)
                for (int64_t c = 0; c < d; c++) columns[c * MOST + t] = tokens[(done + t) * d + c];
            for (int64_t f = 0; f < n_partitions; f++) {
                const real *cluster = clusters + (graph % sizes->n_heads * n_partitions + f) * size * d;
                int32_t first[MOST] = {}, second[MOST] = {};
                real largest[MOST], next_largest[MOST];
                std::fill_n(largest, MOST, -std::numeric_limits<real>::infinity());
                std::fill_n(next_largest, MOST, -std::numeric_limits<real>::infinity());
                for (int32_t a = 0; a < size; a += 2) {
                    const real *one = cluster + a * d, *other = a + 1 < size ? one + d : one;
                    real logits[2][MOST];
                    multiply(one, other, columns.data(), d, logits[0], logits[1]);
                    for (int32_t b = 0; b < 2 && a + b < size; b++)
#pragma omp simd
                        for (int64_t t = 0; t < MOST; t++) {
                            const real x = logits[b][t];
                            const bool is_first = x > largest[t], is_second = x > next_largest[t];
                            const int32_t loser = is_first ? first[t] : a + b;
                            next_largest[t] = std::max(next_largest[t], std::min(x, largest[t]));
                            largest[t] = std::max(x, largest[t]);
                            second[t] = is_second ? loser : second[t];
                            first[t] = is_first ? a + b : first[t];
                        }
                }
#pragma omp simd
                for (int64_t t = 0; t < MOST; t++) {
                    const real odds = size > 1 ? std::exp(next_largest[t] - largest[t]) : 1;
                    const real larger = 1 / (1 + odds), smaller = odds * larger;
                    lower[f * MOST + t] = f * size + std::min(first[t], second[t]);
                    upper[f * MOST + t] = f * size + std::max(first[t], second[t]);
                    of_lower[f * MOST + t] = first[t] <= second[t] ? larger : smaller;
                    of_upper[f * MOST + t] = first[t] <= second[t] ? smaller : larger;
                }
            }
            for (int64_t t = 0; t < n; t++)
                for (int64_t f = 0; f < n_partitions; f++) {
                    const int64_t at = ((done + t) * n_partitions + f) * 2;
                    part[at] = lower[f * MOST + t];
                    part[at + 1] = upper[f * MOST + t];
                    weight[at] = of_lower[f * MOST + t];
                    weight[at + 1] = of_upper[f * MOST + t];
                }
        }
    });
}

// Computes gradients for graphs start … stop; each graph has its own gradients of the clusters.
void choose_parts_backward(const Ranges *ranges, const real *grad, const real *tokens, const real *clusters,
                           const Choice *sizes, const int16_t *part, const real *weight, real *grad_tokens,
                           real *grad_clusters) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        const int64_t n_chosen = 2 * sizes->n_partitions, d = sizes->d;
        for (int64_t token = start * sizes->n_tokens; token < stop * sizes->n_tokens; token++) {
            const int64_t graph = token / sizes->n_tokens, n = sizes->n_partitions * sizes->size * d;
            const real *cluster = clusters + graph % sizes->n_heads * n;
            for (int64_t c = token * n_chosen; c < (token + 1) * n_chosen; c++) {
                const int64_t other = c ^ 1, row = part[c] * d;  // of the same partition
                const real slope = weight[c] * weight[other] * (grad[c] - grad[other]);
                add<0>(grad_tokens + token * d, slope, cluster + row, d);
                add<0>(grad_clusters + graph * n + row, slope, tokens + token * d, d);
            }
        }
    });
}

// Sums the memberships of the tokens of each graph in every pair of parts: out[graph, group, part, part].
void pair_totals(const Ranges *ranges, const int16_t *part, const real *weight, int64_t n_tokens,
                 int64_t n_partitions, int64_t size, real *out) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        for (int64_t token = start * n_tokens; token < stop * n_tokens; token++) {
            real *totals = out + token / n_tokens * n_partitions / 2 * size * size;
            const int64_t at = token * n_partitions * 2;
            for (int64_t e = 0; e < n_partitions * 2; e++) {
                const Pair pair(e);
                totals[pair.of(part + at, size)] += weight[at + pair.first] * weight[at + pair.second];
            }
        }
    });
}

void pair_totals_backward(const Ranges *ranges, const real *grad, const int16_t *part, const real *weight,
                          int64_t n_tokens, int64_t n_partitions, int64_t size, real *grad_weight) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        for (int64_t token = start * n_tokens; token < stop * n_tokens; token++) {
            const real *slopes = grad + token / n_tokens * n_partitions / 2 * size * size;
            const int64_t at = token * n_partitions * 2;
            for (int64_t e = 0; e < n_partitions * 2; e++) {
                const Pair pair(e);
                const real slope = slopes[pair.of(part + at, size)];
                grad_weight[at + pair.first] += slope * weight[at + pair.second];
                grad_weight[at + pair.second] += slope * weight[at + pair.first];
            }
        }
    });
}

void edge_rate(const Ranges *ranges, const Crossed *model, const Mask *mask, real *out) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        std::vector<real> rates(model->n_partitions * model->size);
        for (int64_t row = start; row < stop; row++) {
            const int64_t graph = row / mask->n_queries;
            fill_rates(*model, row, graph % mask->n_heads, rates.data());
            const int64_t first_key = graph * mask->n_keys, end = mask->row_ptr[row + 1];
            for (int64_t e = mask->row_ptr[row]; e < end; e++) {
                prefetch(*model, first_key + mask->keys[std::min(e + 8, end - 1)]);
                out[e] = pair_rate(*model, rates.data(), first_key + mask->keys[e]);
            }
        }
    });
}

// Computes gradients for ranges of graphs; each graph has its own gradients of the blocks.
void edge_rate_backward(const Ranges *ranges, const Crossed *model, const Mask *mask, const real *grad,
                        real *grad_query, real *grad_blocks, real *grad_key) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t) {
        const int64_t size = model->size, n_parts = model->n_partitions * size, n_chosen = 2 * model->n_partitions;
        std::vector<real> rates(n_parts), to_rates(n_parts);
        for (int64_t row = start * mask->n_queries; row < stop * mask->n_queries; row++) {
            const int64_t graph = row / mask->n_queries, head = graph % mask->n_heads;
            fill_rates(*model, row, head, rates.data());
            std::fill(to_rates.begin(), to_rates.end(), real(0));
            for (int64_t e = mask->row_ptr[row]; e < mask->row_ptr[row + 1]; e++) {
                const int64_t at = (graph * mask->n_keys + mask->keys[e]) * n_chosen;
                for (int64_t c = at; c < at + n_chosen; c += 4) {
                    const int16_t *p = model->key_part + c;
                    const real *w = model->key_weight + c;
                    const real to_first = grad[e] * (rates[p[2]] * w[2] + rates[p[3]] * w[3]);
                    const real to_second = grad[e] * (rates[p[0]] * w[0] + rates[p[1]] * w[1]);
                    for (int i = 0; i < 4; i++) {
                        const real slope = i < 2 ? to_first : to_second;
                        grad_key[c + i] += slope * rates[p[i]];
                        to_rates[p[i]] += slope * w[i];
                    }
                }
            }
            for (int64_t c = 0; c < n_chosen; c++) {  // back through fill_rates
                const int64_t f = c / 2, at = row * n_chosen + c;
                const int64_t block = model->query_part[at] * size;  // position in the head's blocks
                const real *blocks = model->blocks + head * n_parts * size + block;
                grad_query[at] = dot<0>(to_rates.data() + f * size, blocks, size);
                real *to_block = grad_blocks + graph * n_parts * size + block;
                add<0>(to_block, model->query_weight[at], to_rates.data() + f * size, size);
            }
        }
    });
}
