// Code shared by all files that draw edges, row by row and in time proportional to the number of edges.
//
// Each row draws points of a Poisson process, and each point lands on a key in proportion to the key's rate. So a key
// is hit at least once with probability 1 − exp(−rate), independently of all other keys. Every random number has its
// own address (sbmt.counter_rng), so the edges do not depend on threads or batches.
#pragma once
#include "crossed.h"

const double MAX_BOOST = 32;       // expected candidates for a pair of probability 1; it is off by less than 2e-14
const int64_t LANES = 16;          // number of 32-bit numbers in the widest vector
const double MOST_INVERTED = 500;  // exp(−500) is far from underflow
const double DENSE_SHARE = 0.3;    // a row that expects more candidates than this share of its keys visits all keys

struct Address {
    int64_t seed, row, head, example;

    Words words(int64_t purpose, int64_t block) const { return philox(seed, block, row, head + purpose, example); }
    double of_cell(int64_t purpose, int64_t key) const {
        return cell_uniform(seed, key, row, head + purpose, example);
    }
};

// Returns whether a uniform number u is below 1 − exp(−rate), which lies between rate − rate² / 2 and rate.
inline bool is_hit(double rate, double u) {
    return u < rate && (u < rate - rate * rate / 2 || u < -std::expm1(-rate));
}

// A set of keys, with one bit per key, and one bit per 64 keys that tells whether the set contains any of them.
class Keys {
    std::vector<uint64_t> bits, used;

  public:
    explicit Keys(int64_t n_keys) : bits((n_keys + 63) / 64), used((bits.size() + 63) / 64) {}

    void add(int64_t key) {
        bits[key / 64] |= uint64_t(1) << key % 64;
        used[key / 4096] |= uint64_t(1) << key / 64 % 64;
    }

    // Calls `take` with each key, in ascending order, and empties the set.
    template <class Take>
    void take_all(Take take) {
        for (size_t i = 0; i < used.size(); i++)
            for (; used[i]; used[i] &= used[i] - 1) {
                const int64_t j = i * 64 + __builtin_ctzll(used[i]);
                for (; bits[j]; bits[j] &= bits[j] - 1) take(j * 64 + __builtin_ctzll(bits[j]));
            }
    }
};

// Draws a Poisson number by inversion, from as many uniform numbers as its mean requires; `half` selects the words.
inline int64_t poisson(double mean, const Address &address, int64_t half) {
    int64_t number = 0;
    for (int64_t block = 0; mean > 0; block++, mean -= MOST_INVERTED) {
        const double some = std::min(mean, MOST_INVERTED);
        const Words words = address.words(COUNT, block);
        const double u = half ? fine_uniform(words.w2, words.w3) : fine_uniform(words.w0, words.w1);
        double term = std::exp(-some), below = term;
        for (int64_t k = 1; below < u && term > 0; k++, number++) below += term *= some / k;
    }
    return number;
}

// Computes the uniform numbers of a row's first n keys in vectors, four keys from each block of words.
inline void fill_uniforms(const Address &address, int64_t n, std::vector<double> &out) {
    out.resize((n + 3) / 4 * 4);
    double *u = out.data();
#pragma omp simd
    for (int64_t b = 0; b < (n + 3) / 4; b++) {
        const Words some = address.words(CELL, b);
        u[4 * b] = uniform(some.w0), u[4 * b + 1] = uniform(some.w1);
        u[4 * b + 2] = uniform(some.w2), u[4 * b + 3] = uniform(some.w3);
    }
}

// Random words of points, drawn in vectors.
class Points {
    std::vector<uint32_t> words[4], row, place;
    int64_t n = 0;

  public:
    void clear() { n = 0; }
    // Adds points of a row and returns the index of the first.
    int64_t add(int64_t n_more, int64_t of_row) {
        const int64_t first = n;
        n += n_more;
        if (size_t(n) > row.size()) row.resize(2 * n), place.resize(2 * n);
        std::fill_n(row.begin() + first, n_more, of_row);
        std::iota(place.begin() + first, place.begin() + n, 0);
        return first;
    }
    // Draws the words of all points; returns their number, padded to a multiple of the vector width, so that loops over
    // them have no remainder.
    int64_t draw(const Address &address) {
        const int64_t n_drawn = (n + LANES - 1) / LANES * LANES;
        add(n_drawn - n, 0);
        for (auto &some : words) some.resize(std::max(some.size(), size_t(n_drawn)));
        uint32_t *w0 = words[0].data(), *w1 = words[1].data(), *w2 = words[2].data(), *w3 = words[3].data();
        const uint32_t *rows = row.data(), *places = place.data(), stream = address.head + CANDIDATE;
#pragma omp simd
        for (int64_t t = 0; t < n_drawn; t++) {
            const Words some = philox(address.seed, places[t], rows[t], stream, address.example);
            w0[t] = some.w0, w1[t] = some.w1, w2[t] = some.w2, w3[t] = some.w3;
        }
        return n_drawn;
    }
    uint32_t operator()(int64_t word, int64_t t) const { return words[word][t]; }
    const uint32_t *of(int64_t word) const { return words[word].data(); }
};

// Returns the index of the first of n ascending ends above x, or of the last; no branch depends on x.
inline int64_t first_above(const double *ends, int64_t n, double x) {
    const double *low = ends;
    for (; n > 1; n -= n / 2) low += n / 2 * (low[n / 2 - 1] <= x);
    return low - ends;
}

// Draws the keys of rows start … stop and adds real keys at most `reach` positions away; returns NULL if out of memory.
template <class MakeDraw>
int64_t *draw_rows(int64_t start, int64_t stop, const Drawing &drawing, int64_t *degrees, MakeDraw make) try {
    auto model = make();
    int64_t n = 0, capacity = 1;
    std::unique_ptr<int64_t, decltype(&std::free)> keys(static_cast<int64_t *>(std::malloc(sizeof(int64_t))), std::free);
    std::vector<double> kept;  // a uniform number for each of a row's keys
    Keys found(drawing.n_keys);
    int64_t last_graph = -1;
    for (int64_t at = start; at < stop; at++) {
        const int64_t graph = at / drawing.n_queries, row = at % drawing.n_queries, example = graph / drawing.n_heads;
        const bool *is_real = drawing.key_mask + example * drawing.n_keys;
        if (graph != last_graph) {
            int64_t n_used = drawing.n_keys;  // trailing padding must have no effect
            while (n_used > 1 && !is_real[n_used - 1]) n_used--;
            model.enter(drawing, graph, n_used);
            last_graph = graph;
        }
        if (n + drawing.n_keys > capacity) {  // realloc moves large blocks without copying them
            capacity = 2 * (n + drawing.n_keys);
            void *moved = std::realloc(keys.get(), capacity * sizeof(int64_t));
            if (!moved) throw std::bad_alloc();
            keys.release();
            keys.reset(static_cast<int64_t *>(moved));
        }
        int64_t *of_row = keys.get() + n, degree = 0;
        if (drawing.query_mask[example * drawing.n_queries + row]) {
            const Address address = {drawing.seed, row, graph % drawing.n_heads, example + drawing.first_example};
            const int64_t place = row + std::max(drawing.offset, int64_t(0));
            const int64_t low = std::max(place - drawing.reach, int64_t(0));
            const int64_t high = std::min(place + (drawing.offset >= 0 ? 0 : drawing.reach), drawing.n_keys - 1);
            if (drawing.offset >= 0) model.see(place + 1);
            model.draw(at, address, found);
            for (int64_t j = low; j <= high; j++)
                if (is_real[j]) found.add(j);
            found.take_all([&](int64_t j) { of_row[degree++] = j; });
            if (!model.is_law_met()) {
                kept.resize(degree);
#pragma omp simd
                for (size_t e = 0; e < kept.size(); e++) kept[e] = address.of_cell(KEEP, of_row[e]);
                degree = 0;
                for (size_t e = 0; e < kept.size(); e++) {
                    const int64_t j = of_row[e];
                    if ((low <= j && j <= high) || model.keeps(at, j, kept[e])) of_row[degree++] = j;
                }
            }
        }
        degrees[at] = degree;
        n += degree;
    }
    return keys.release();
} catch (const std::bad_alloc &) {
    return nullptr;
}
