// Code shared by all loops.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include <torch/csrc/stable/c/shim.h>

typedef SBMT_REAL real;
extern "C" {
#include "loops.h"
}

// Calls loop(start, stop, index of the range) for each range, in torch's own threads.
template <class Loop>
void in_parallel(const Ranges &ranges, const Loop &loop) {
    struct Work {
        const Ranges &ranges;
        const Loop &loop;
    } work = {ranges, loop};
    const auto error = torch_parallel_for(
        0, ranges.number, 1,
        [](int64_t begin, int64_t end, void *of) {
            const Work &work = *static_cast<Work *>(of);
            for (int64_t i = begin; i < end; i++) work.loop(work.ranges.ends[i], work.ranges.ends[i + 1], i);
        },
        &work);
    if (error) std::abort();  // not enough memory for the numbers of a row
}

// Philox4x32-10, as in sbmt.counter_rng.philox, where the purposes of streams are also defined.
struct Words {
    uint32_t w0, w1, w2, w3;
};

inline Words philox(uint64_t seed, uint32_t block, uint32_t row, uint32_t head_and_purpose, uint32_t example) {
    const uint64_t LOW = 0xFFFFFFFF;  // 64 bits per word, since vectors multiply numbers of 32 bits in 64 bits each
    uint64_t w0 = block, w1 = row, w2 = head_and_purpose, w3 = example, k0 = seed & LOW, k1 = seed >> 32;
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (w0 & LOW) * 0xD2511F53u, p1 = (w2 & LOW) * 0xCD9E8D57u;
        w0 = (p1 >> 32) ^ w1 ^ k0;
        w1 = p1 & LOW;
        w2 = (p0 >> 32) ^ w3 ^ k1;
        w3 = p0 & LOW;
        k0 = (k0 + 0x9E3779B9u) & LOW;
        k1 = (k1 + 0xBB67AE85u) & LOW;
    }
    return {uint32_t(w0), uint32_t(w1), uint32_t(w2), uint32_t(w3)};
}

// Maps a word to the midpoint of its interval, as sbmt.counter_rng.to_uniform does.
inline double uniform(uint32_t word) { return (word + 0.5) / 4294967296.0; }

// Maps two words to the midpoint of one of 2⁵³ intervals in [0, 1].
inline double fine_uniform(uint32_t upper, uint32_t lower) {
    return ((upper >> 5) * 67108864.0 + (lower >> 6) + 0.5) / 9007199254740992.0;
}

// Returns the uniform number of a query-key pair: key j gets word j % 4 of block j / 4, as in counter_rng.cell_words.
inline double cell_uniform(uint64_t seed, int64_t key, int64_t row, int64_t head_and_purpose, int64_t example) {
    const Words w = philox(seed, uint32_t(key >> 2), row, head_and_purpose, example);
    const uint32_t even = key & 2 ? w.w2 : w.w0, odd = key & 2 ? w.w3 : w.w1;
    return uniform(key & 1 ? odd : even);
}

// Computes ⟨x, y⟩, summed in the same order on any processor. A width D that is known at compile time allows loop
// unrolling; D = 0 accepts any width.
template <int D>
inline real dot(const real *x, const real *y, int64_t d) {
    constexpr int64_t LANES = 64 / sizeof(real);
    typedef real Lanes __attribute__((vector_size(64), aligned(sizeof(real)), may_alias));
    const int64_t width = D ? D : d, whole = width - width % LANES;
    Lanes lanes = {};
    for (int64_t c = 0; c < whole; c += LANES)
        lanes += *reinterpret_cast<const Lanes *>(x + c) * *reinterpret_cast<const Lanes *>(y + c);
    typedef real Quarter __attribute__((vector_size(16), may_alias));
    const Quarter *quarters = reinterpret_cast<const Quarter *>(&lanes);
    const Quarter sums = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
    real total = 0;
    for (int64_t i = 0; i < LANES / 4; i++) total += sums[i];
    for (int64_t c = whole; c < width; c++) total += x[c] * y[c];
    return total;
}

// out += factor · x
template <int D>
inline void add(real *__restrict out, real factor, const real *__restrict x, int64_t d) {
#pragma omp simd
    for (int64_t c = 0; c < (D ? D : d); c++) out[c] += factor * x[c];
}
