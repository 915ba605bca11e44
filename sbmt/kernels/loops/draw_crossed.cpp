// Draws edges from memberships in parts, under the Poisson link, for masks that are not causal.
//
// For each point, a query chooses one of its pairs of parts, then a part of the keys in one partition, a part in the
// other partition, and a key in both parts. `extra` is added to the rate of each pair of real tokens. Points of several
// rows are drawn at once to fill vectors, so each choice looks up random words in many tables by gather instructions.
#include "draw.h"

namespace {

// Tables of shares: each entry starts at the sum of all previous weights, in units of 2⁻³¹ of the total. A random word
// selects the last entry that starts at or before it, which never has weight 0.
inline double scale_of(double total) { return total > 0 ? 2147483648.0 / total : 0; }
inline uint32_t start_of(double before, double scale) { return before > 0 ? uint32_t(before * scale) + 1 : 0; }

// Finds, for each of n points, the last entry that starts at or before the point's word, among the entries 0 … `last`
// of the table at `start` in `below`, which are STRIDE apart. The ranges of all points are halved at once, so that a
// vector searches many tables.
template <int STRIDE = 1>
void search(const uint32_t *below, const int32_t *start, const int32_t *last, const uint32_t *words, int64_t n,
            int32_t *found) {
    int32_t longest = 0;
#pragma omp simd reduction(max : longest)
    for (int64_t t = 0; t < n; t++) longest = last[t] > longest ? last[t] : longest, found[t] = 0;
    int32_t step = 1;
    while (2 * step <= longest) step *= 2;
    for (; step; step /= 2) {
#pragma omp simd
        for (int64_t t = 0; t < n; t++) {
            const int32_t here = found[t], there = here + step < last[t] ? here + step : last[t];
            found[t] = below[(start[t] + there) * STRIDE] <= words[t] >> 1 ? there : here;
        }
    }
}

class CrossedDraw {
    static constexpr int64_t AT_ONCE = 16;  // rows drawn at once
    struct Row {
        bool is_dense;
        int64_t first_point, n, n_spread;
    } rows[AT_ONCE];
    struct From {  // the starts of the tables for a query's pair of parts, and the group's first part
        int32_t first, second, group;
    };
    const Crossed &model;
    const double extra;
    const int64_t n_pairs, size;
    int64_t head = 0, n_keys = 0, first_key = 0, first_row = 0, end_row = 0, last_row = 0;
    std::vector<int64_t> reals;
    struct Entry {  // an entry of a cluster's table of keys; both fields are looked up at once, so they are adjacent
        uint32_t below;
        int32_t key;
    };
    std::vector<Entry> entries;
    std::vector<int32_t> clusters, first;                 // of keys; where the entries of each cluster start
    std::vector<double> before, mass, scales;             // of clusters
    std::vector<double> reached, sums, ends;              // totals of pairs of queries' parts; sums over parts or pairs
    std::vector<uint32_t> of_pairs, of_first, of_second;  // tables
    std::vector<real> rates;
    std::vector<double> uniforms;
    std::vector<From> froms;
    double totals[AT_ONCE] = {};
    std::vector<int32_t> pair, part, key, start, last;  // of points
    Points points;

    // Finds the keys of each cluster and their memberships, and fills tables from which to choose keys.
    void fill_key_tables() {
        const int16_t *part = model.key_part + first_key * n_pairs;
        const real *weight = model.key_weight + first_key * n_pairs;
        std::fill(first.begin(), first.end(), 0);
        std::fill(mass.begin(), mass.end(), 0);
        const auto share = [=](int64_t j, int64_t e) {
            const real *of_pair = weight + j * n_pairs + e / 4 * 4;
            return double(of_pair[e % 4 / 2]) * of_pair[2 + e % 2];
        };
        for (int64_t j = 0; j < n_keys; j++)
            for (int64_t e = 0; e < n_pairs; e++) {
                const int64_t cluster = clusters[j * n_pairs + e] = Pair(e).of(part + j * n_pairs, size);
                first[cluster + 2]++;
                mass[cluster] += share(j, e);
            }
        for (size_t c = 2; c < first.size(); c++) first[c] += first[c - 1];
        for (size_t c = 0; c < mass.size(); c++) scales[c] = scale_of(mass[c]);
        std::fill(before.begin(), before.end(), 0);
        for (int64_t j = 0; j < n_keys; j++)
            for (int64_t e = 0; e < n_pairs; e++) {
                const int64_t cluster = clusters[j * n_pairs + e], slot = first[cluster + 1]++;
                entries[slot].key = j;
                entries[slot].below = start_of(before[cluster], scales[cluster]);
                before[cluster] += share(j, e);
            }
    }

    // For query parts x and y, part a of the keys in the first partition has weight S_xa Σ_b S_yb M_ab. Given a, part b
    // in the second partition has weight S_yb M_ab. M is `mass`.
    void fill_part_tables() {
        const real *blocks = model.blocks + head * model.n_partitions * size * size;
        for (int64_t g = 0; g < model.n_partitions / 2; g++)
            for (int64_t y = 0; y < size; y++) {
                const real *second = blocks + ((2 * g + 1) * size + y) * size;
                for (int64_t a = 0; a < size; a++)
                    sums[a] = fill_block_table(second, &mass[(g * size + a) * size],
                                               &of_second[((g * size + y) * size + a) * size]);
                for (int64_t x = 0; x < size; x++) {
                    const int64_t pair = (g * size + x) * size + y;
                    reached[pair] = fill_block_table(blocks + (2 * g * size + x) * size, sums.data(),
                                                     &of_first[pair * size]);
                }
            }
    }

    // Fills a table of parts with weights block · sum; returns the total weight.
    double fill_block_table(const real *block, const double *sum, uint32_t *table) {
        double total = 0;
        for (int64_t a = 0; a < size; a++) {
            ends[a] = total;
            total += block[a] * sum[a];
        }
        const double scale = scale_of(total);
        for (int64_t a = 0; a < size; a++) table[a] = start_of(ends[a], scale);
        return total;
    }

    // Fills the table of a row's pairs; returns the row's total rate.
    double enter_row(int64_t at, From *from, uint32_t *table) {
        const int16_t *parts = model.query_part + at * n_pairs;
        const real *weight = model.query_weight + at * n_pairs;
        const int32_t n = size;
        double total = 0;
        for (int32_t e = 0, group = 0; e < n_pairs; e += 4, group += n)
            for (int32_t i = 0; i < 4; i++) {
                const int32_t first = e + i / 2, second = e + 2 + i % 2, y = parts[second] - 2 * group - n;
                const int32_t cluster = (parts[first] - group) * n + y;
                ends[e + i] = total;
                total += double(weight[first]) * weight[second] * reached[cluster];
                from[e + i] = {cluster * n, (group + y) * n * n, group};
            }
        const double scale = scale_of(total);
        for (int64_t e = 0; e < n_pairs; e++) table[e] = start_of(ends[e], scale);
        return total;
    }

    // Draws the numbers of points of several rows in vectors, as `poisson` does for one row.
    void count_points(int64_t n_rows, Address address) {
        double term[AT_ONCE] = {}, below[AT_ONCE] = {}, u[AT_ONCE] = {}, number[AT_ONCE] = {};
        for (int64_t i = 0; i < n_rows; i++) below[i] = term[i] = std::exp(-totals[i]);
#pragma omp simd
        for (int64_t i = 0; i < n_rows; i++) {
            const Words words = philox(address.seed, 0, address.row + i, address.head + COUNT, address.example);
            u[i] = fine_uniform(words.w0, words.w1);
        }
        double k = 1;
        for (double n_left = 1; n_left > 0; k++) {
            n_left = 0;
            const double share = 1 / k;
#pragma omp simd reduction(+ : n_left)
            for (int64_t i = 0; i < AT_ONCE; i++) {
                const double is_more = below[i] < u[i] && term[i] > 0 ? 1.0 : 0.0;
                term[i] *= totals[i] * share;
                below[i] += term[i];
                number[i] += is_more;
                n_left += is_more;
            }
        }
        for (int64_t i = 0; i < n_rows; i++, address.row++)
            rows[i].n = totals[i] > MOST_INVERTED ? poisson(totals[i], address, 0) : int64_t(number[i]);
    }

    void draw_points(int64_t at, int64_t n_rows, Address address) {
        const double spread = extra * reals.size();
        for (int64_t i = 0; i < n_rows; i++) {
            totals[i] = enter_row(at + i, &froms[i * n_pairs], &of_pairs[i * n_pairs]);
            rows[i].is_dense = totals[i] + spread > DENSE_SHARE * n_keys;
            if (rows[i].is_dense) totals[i] = 0;
        }
        count_points(n_rows, address);
        points.clear();
        for (int64_t i = 0; i < n_rows; i++, address.row++) {
            rows[i].n_spread = rows[i].is_dense ? 0 : poisson(spread, address, 1);
            rows[i].first_point = points.add(rows[i].n + (rows[i].n_spread + 3) / 4, address.row);
        }
        const int64_t n = points.draw(address);
        if (n == 0) return;
        for (auto *some : {&pair, &part, &key, &start, &last}) some->resize(std::max(some->size(), size_t(n)));
        const int32_t n_parts = size;
        for (int64_t i = 0; i < n_rows; i++) {
            const int64_t end = i + 1 < n_rows ? rows[i + 1].first_point : n;
            std::fill(start.begin() + rows[i].first_point, start.begin() + end, i * n_pairs);
        }
        std::fill_n(&last[0], n, n_pairs - 1);
        search(of_pairs.data(), &start[0], &last[0], points.of(0), n, &pair[0]);
        for (int64_t t = 0; t < n; t++) {
            pair[t] += start[t];
            start[t] = froms[pair[t]].first;
            last[t] = n_parts - 1;
        }
        search(of_first.data(), &start[0], &last[0], points.of(1), n, &part[0]);
        for (int64_t t = 0; t < n; t++) start[t] = froms[pair[t]].second + part[t] * n_parts;
        search(of_second.data(), &start[0], &last[0], points.of(2), n, &key[0]);
        for (int64_t t = 0; t < n; t++) {
            const int32_t cluster = (froms[pair[t]].group + part[t]) * n_parts + key[t];
            start[t] = first[cluster];
            last[t] = std::max(first[cluster + 1] - start[t] - 1, 0);
        }
        search<2>(&entries[0].below, &start[0], &last[0], points.of(3), n, &key[0]);
        for (int64_t t = 0; t < n; t++) key[t] = entries[start[t] + key[t]].key;
    }

  public:
    CrossedDraw(const Crossed &model, double extra)
        : model(model), extra(extra), n_pairs(2 * model.n_partitions), size(model.size),
          first(model.n_partitions / 2 * size * size + 2), of_pairs(AT_ONCE * n_pairs),
          of_first((first.size() - 2) * size), of_second(of_first.size()), before(first.size() - 2),
          mass(before.size()), scales(before.size()), reached(mass.size()), sums(size),
          ends(std::max(n_pairs, size)), rates(model.n_partitions * size), froms(AT_ONCE * n_pairs) {}

    void enter(const Drawing &drawing, int64_t graph, int64_t n_used) {
        const bool *is_real = drawing.key_mask + graph / drawing.n_heads * drawing.n_keys;
        n_keys = n_used;
        head = graph % drawing.n_heads;
        first_key = graph * drawing.n_keys;
        first_row = end_row = graph * drawing.n_queries;
        last_row = first_row + drawing.n_queries;
        reals.clear();
        for (int64_t j = 0; j < n_keys; j++)
            if (is_real[j]) reals.push_back(j);
        clusters.resize(n_keys * n_pairs);
        entries.resize(n_keys * n_pairs + 1);  // so that an empty cluster has an entry too
        fill_key_tables();
        fill_part_tables();
    }

    void draw(int64_t at, const Address &address, Keys &found) {
        if (at >= end_row) {
            first_row = at;
            end_row = std::min(at + AT_ONCE, last_row);
            draw_points(at, end_row - at, address);
        }
        const Row &row = rows[at - first_row];
        if (row.is_dense) {
            fill_rates(model, at, head, rates.data());
            fill_uniforms(address, n_keys, uniforms);
            for (const int64_t j : reals)
                if (is_hit(pair_rate(model, rates.data(), first_key + j) + extra, uniforms[j]))
                    found.add(j);
            return;
        }
        for (int64_t t = 0; t < row.n; t++) found.add(key[row.first_point + t]);
        for (int64_t t = 0; t < row.n_spread; t++)
            found.add(reals[int64_t(uniform(points(t % 4, row.first_point + row.n + t / 4)) * reals.size())]);
    }

    void see(int64_t) {}  // all keys are known from the start
    bool is_law_met() const { return true; }
    bool keeps(int64_t, int64_t, double) const { return true; }
};

}  // namespace

void draw_crossed(const Ranges *ranges, const Crossed *model, double extra, const Drawing *drawing, int64_t *degrees,
                  int64_t **keys) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t i) {
        keys[i] = draw_rows(start, stop, *drawing, degrees, [=] { return CrossedDraw(*model, extra); });
    });
}
