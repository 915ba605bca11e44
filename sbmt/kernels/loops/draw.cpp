// Drawing edges row by row, in time that follows their number.
//
// Both loops draw points of Poisson processes, each of which lands on a key in proportion to its rate. So a key is hit
// at all with probability 1 − exp(−rate), independently of all others. Every random number has an address of its own
// (sbmt.counter_rng), so threads and batches draw the same edges.
//
// Without causality, all rows of a graph choose among the same keys, by Walker's tables. With it, each row sees one key
// more than the row before: running sums take the place of tables, and the keys seen so far are a prefix of each.
#include "crossed.h"

namespace {

const double MAX_BOOST = 32;       // the law is off by less than 2e-14 with so many candidates for a probability of 1
const double DENSE_SHARE = 0.125;  // a row that expects more candidates than this share of its keys goes key by key

struct Address {
    int64_t seed, row, head, example;

    Words words(int64_t purpose, int64_t block) const { return philox(seed, block, row, head + purpose, example); }
    double of_cell(int64_t purpose, int64_t key) const {
        return cell_uniform(seed, key, row, head + purpose, example);
    }
};

// A set of keys, as one bit for each, and one for each 64 that are not all absent.
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

// Walker's alias method: entry k is drawn if `keep` exceeds the fraction of a uniform, else `other` is.
struct Entry {
    float keep;
    int32_t other;
};

int64_t choose(const Entry *table, int64_t n, double u) {
    const double place = u * n;
    const int64_t k = std::min(int64_t(place), n - 1), other = table[k].other;
    return other + (place - k < table[k].keep) * (k - other);  // a branch would be mispredicted
}

// Overwrites the weights, whose sum must not be 0; `todo` has room for n. Source: Vose (1991).
void fill_table(double *weights, int64_t n, double total, Entry *table, int32_t *todo) {
    int64_t n_small = 0, large = n;  // small ones stand at the front of `todo`, large ones at its back
    for (int64_t k = 0; k < n; k++) {
        weights[k] *= n / total;
        table[k] = {1, int32_t(k)};
        const bool is_small = weights[k] < 1;
        todo[is_small ? n_small : large - 1] = k;
        n_small += is_small;
        large -= !is_small;
    }
    int64_t many = 0;
    while (n_small && large < n) {
        const int64_t few = todo[--n_small];
        many = todo[large];
        table[few] = {float(weights[few]), int32_t(many)};
        weights[many] -= 1 - weights[few];
        const bool is_small = weights[many] < 1;
        todo[n_small] = many;
        n_small += is_small;
        large += is_small;
    }
    for (int64_t i = 0; i < n_small; i++)  // what rounding leaves over
        if (weights[todo[i]] <= 0) table[todo[i]] = {0, int32_t(many)};
}

// A Poisson number by inversion, from as many uniforms as its mean needs, and those of stream `half` alone.
int64_t poisson(double mean, const Address &address, int64_t half) {
    int64_t number = 0;
    for (int64_t block = 0; mean > 0; block++, mean -= 500) {  // exp(−500) is far from underflow
        const double some = std::min(mean, 500.0);
        const Words words = address.words(COUNT, block);
        const double u = half ? fine_uniform(words.w2, words.w3) : fine_uniform(words.w0, words.w1);
        double term = std::exp(-some), below = term;
        for (int64_t k = 1; below < u && term > 0; k++, number++) below += term *= some / k;
    }
    return number;
}

// Random words of a row's points, by vectors.
class Points {
    std::vector<uint32_t> words[4];

  public:
    void draw(int64_t n, const Address &address) {
        for (auto &some : words) some.resize(std::max(some.size(), size_t(n)));
        uint32_t *w0 = words[0].data(), *w1 = words[1].data(), *w2 = words[2].data(), *w3 = words[3].data();
#pragma omp simd
        for (int64_t t = 0; t < n; t++) {
            const Words some = address.words(CANDIDATE, t);
            w0[t] = some.w0, w1[t] = some.w1, w2[t] = some.w2, w3[t] = some.w3;
        }
    }
    uint32_t operator()(int64_t word, int64_t t) const { return words[word][t]; }
};

// The first of n ascending ends above x, at most the last, without a branch that depends on x.
int64_t first_above(const double *ends, int64_t n, double x) {
    const double *low = ends;
    for (; n > 1; n -= n / 2) low += n / 2 * (low[n / 2 - 1] <= x);
    return low - ends;
}

// A row's keys among pairs of clusters, whose link is Poisson's or the bilinear one: rate x = ⟨query_i, key_j⟩ and
// probability 1 − exp(−x), or min(x, 1). In the second case the process runs `boost` times as fast, so that it hits at
// least as often, and a hit is kept with the remaining probability: see sbmt.samplers.exact.
class ExactDraw {
    const real *query, *keys, *first_key = nullptr;
    const int64_t n_clusters;
    const bool is_poisson, is_causal;
    int64_t n_keys = 0, n_seen = 0;
    double boost = 1;
    std::vector<Entry> tables;
    std::vector<double> total, most, ends, columns, sums;  // `sums` of columns; `total` and `most` of keys seen
    Points points;
    std::vector<int32_t> todo;

  public:
    ExactDraw(const real *query, const real *keys, int64_t n_clusters, bool is_poisson, bool is_causal)
        : query(query), keys(keys), n_clusters(n_clusters), is_poisson(is_poisson), is_causal(is_causal),
          total(n_clusters), most(n_clusters), ends(n_clusters) {}

    // Before the rows of a graph, whose first n_used keys matter.
    void enter(const Drawing &drawing, int64_t graph, int64_t n_used) {
        constexpr int64_t MOST = 8;  // columns at once, so that keys are read by cache lines
        n_keys = n_used;
        first_key = keys + graph * drawing.n_keys * n_clusters;
        n_seen = 0;
        std::fill(total.begin(), total.end(), 0);
        std::fill(most.begin(), most.end(), 0);
        if (!is_causal) see(n_keys);
        tables.resize(is_causal ? 0 : n_clusters * n_keys);
        sums.resize(is_causal ? n_clusters * n_keys : 0);
        columns.resize(MOST * n_keys);
        todo.resize(n_keys);
        for (int64_t v = 0; v < n_clusters; v += MOST) {
            const int64_t n = std::min(MOST, n_clusters - v);
            for (int64_t j = 0; j < n_keys; j++)
                for (int64_t i = 0; i < n; i++) columns[i * n_keys + j] = first_key[j * n_clusters + v + i];
            for (int64_t i = 0; i < n; i++) {
                double *column = columns.data() + i * n_keys;
                if (is_causal)
                    std::partial_sum(column, column + n_keys, sums.data() + (v + i) * n_keys);
                else if (total[v + i] > 0)
                    fill_table(column, n_keys, total[v + i], tables.data() + (v + i) * n_keys, todo.data());
            }
        }
    }

    void see(int64_t n) {  // the first n keys
        for (n = std::min(n, n_keys); n_seen < n; n_seen++)
            for (int64_t v = 0; v < n_clusters; v++) {
                const double x = first_key[n_seen * n_clusters + v];
                total[v] += x;
                most[v] = std::max(most[v], x);
            }
    }

    void draw(int64_t at, const Address &address, Keys &found) {
        const real *row = query + at * n_clusters;
        double rate = 0, bound = 0;
        for (int64_t v = 0; v < n_clusters; v++) rate += row[v] * total[v], bound += row[v] * most[v];
        bound = std::min(std::max(bound * (1 + 1e-12), 1e-300), 1.0);
        boost = 1;
        if (!is_poisson)
            boost = bound == 1 ? MAX_BOOST : std::min(MAX_BOOST, -std::log1p(-bound) / bound * (1 + 1e-12));
        if (rate * boost > DENSE_SHARE * n_seen) {
            boost = 0;  // nothing is left to decide
            for (int64_t j = 0; j < n_seen; j++) {
                const double x = dot<0>(row, first_key + j * n_clusters, n_clusters);
                if (address.of_cell(CELL, j) < (is_poisson ? -std::expm1(-x) : x)) found.add(j);
            }
            return;
        }
        rate = 0;
        for (int64_t v = 0; v < n_clusters; v++) ends[v] = rate += row[v] * total[v];
        const int64_t n = poisson(rate * boost, address, 0);
        points.draw(n, address);
        for (int64_t t = 0; t < n; t++) {
            const int64_t v = first_above(ends.data(), n_clusters, uniform(points(0, t)) * rate);
            const double u = fine_uniform(points(2, t), points(3, t));
            const int64_t j = is_causal ? first_above(sums.data() + v * n_keys, n_seen, u * total[v])
                                        : choose(tables.data() + v * n_keys, n_keys, u);
            if (!is_causal || first_key[j * n_clusters + v] > 0) found.add(j);  // rounding alone leads to another
        }
    }

    bool is_law_met() const { return is_poisson || boost == 0; }
    bool keeps(int64_t at, int64_t key, double u) const {
        if (u * boost < 1) return true;  // whatever its rate
        const double x = dot<0>(query + at * n_clusters, first_key + key * n_clusters, n_clusters);
        return u * -std::expm1(-boost * x) < std::min(x, 1.0);
    }
};

// The same under Poisson's link, from memberships in two parts of each partition. A query's point picks one of its
// pairs of parts, which picks a part of keys in one partition, with it a part in the other, and then a key in both.
// `extra` is added to the rate of each pair of real tokens.
class CrossedDraw {
    const Crossed &model;
    const double extra;
    const int64_t n_pairs, size;
    const bool is_causal;
    int64_t head = 0, n_keys = 0, first_key = 0, n_seen = 0, n_real = 0;
    std::vector<int64_t> reals, first, next;       // `first` key of each cluster in `members`, and the next to be seen
    std::vector<int32_t> members, todo;            // keys, cluster by cluster
    std::vector<Entry> key_tables, first_tables, second_tables;
    std::vector<double> shares, mass, reached;     // of members; of clusters; of pairs of queries' parts
    std::vector<double> weights, sums, ends;
    std::vector<double> to_parts, first_ends;      // Σ_b S_yb M_ab of keys seen; running sums of a row's pairs
    std::vector<real> rates;
    Points points;

    // Which keys are in each cluster, how much, and tables to choose among them.
    void fill_key_tables() {
        const int16_t *part = model.key_part + first_key * n_pairs;
        const real *weight = model.key_weight + first_key * n_pairs;
        std::fill(first.begin(), first.end(), 0);
        std::fill(mass.begin(), mass.end(), 0);
        for (int64_t j = 0; j < n_keys; j++)
            for (int64_t e = 0; e < n_pairs; e++) first[Pair(e).of(part + j * n_pairs, size) + 2]++;
        for (size_t c = 2; c < first.size(); c++) first[c] += first[c - 1];
        for (int64_t j = 0; j < n_keys; j++)
            for (int64_t e = 0; e < n_pairs; e++) {
                const Pair pair(e);
                const int64_t cluster = pair.of(part + j * n_pairs, size), slot = first[cluster + 1]++;
                members[slot] = j;
                shares[slot] = double(weight[j * n_pairs + pair.first]) * weight[j * n_pairs + pair.second];
                mass[cluster] += shares[slot];
                if (is_causal) shares[slot] = mass[cluster];
            }
        for (size_t c = 0; c < mass.size() && !is_causal; c++)
            if (mass[c] > 0)
                fill_table(&shares[first[c]], first[c + 1] - first[c], mass[c], &key_tables[first[c]], todo.data());
    }

    // With query parts x and y, keys of part a in the first partition have weight S_xa Σ_b S_yb M_ab, and those of part
    // b in the second, given a, S_yb M_ab, where M is `mass`.
    void fill_part_tables() {
        const real *blocks = model.blocks + head * model.n_partitions * size * size;
        for (int64_t g = 0; g < model.n_partitions / 2; g++)
            for (int64_t y = 0; y < size; y++) {
                for (int64_t a = 0; a < size; a++) {
                    sums[a] = 0;
                    const real *second = blocks + ((2 * g + 1) * size + y) * size;
                    for (int64_t b = 0; b < size; b++)
                        sums[a] += weights[b] = second[b] * mass[(g * size + a) * size + b];
                    if (sums[a] > 0)
                        fill_table(weights.data(), size, sums[a], &second_tables[((g * size + y) * size + a) * size],
                                   todo.data());
                }
                for (int64_t x = 0; x < size; x++) {
                    const int64_t pair = (g * size + x) * size + y;
                    reached[pair] = 0;
                    for (int64_t a = 0; a < size; a++)
                        reached[pair] += weights[a] = blocks[(2 * g * size + x) * size + a] * sums[a];
                    if (reached[pair] > 0)
                        fill_table(weights.data(), size, reached[pair], &first_tables[pair * size], todo.data());
                }
            }
    }

    // The rate of a query's parts x and y to the keys seen, and its running sums over the keys' first part.
    double sum_over_parts(int64_t group, int64_t x, int64_t y, double *out) const {
        const real *block = model.blocks + ((head * model.n_partitions + 2 * group) * size + x) * size;
        const double *of_part = &to_parts[(group * size + y) * size];
        double sum = 0;
        for (int64_t a = 0; a < size; a++) out[a] = sum += block[a] * of_part[a];
        return sum;
    }

    // A key that was seen, of a point of the row's pair e with parts x and y; −1 if rounding leads to none.
    int64_t choose_seen(int64_t e, int64_t group, int64_t y, double u, double v, double w) const {
        const double *of_pair = &first_ends[e * size];
        const int64_t a = first_above(of_pair, size, u * of_pair[size - 1]);
        const real *block = model.blocks + ((head * model.n_partitions + 2 * group + 1) * size + y) * size;
        const double *of_part = &mass[(group * size + a) * size];
        double left = v * to_parts[(group * size + y) * size + a];
        int64_t b = 0;
        while (b < size - 1 && (left -= block[b] * of_part[b]) >= 0) b++;
        const int64_t cluster = (group * size + a) * size + b, slot = first[cluster], n = next[cluster] - slot;
        return n ? members[slot + first_above(&shares[slot], n, w * mass[cluster])] : -1;
    }

  public:
    CrossedDraw(const Crossed &model, double extra, bool is_causal)
        : model(model), extra(extra), n_pairs(2 * model.n_partitions), size(model.size), is_causal(is_causal),
          first(model.n_partitions / 2 * size * size + 2), mass(first.size() - 2), reached(mass.size()),
          weights(size), sums(size), ends(n_pairs), rates(model.n_partitions * size) {
        first_tables.resize(is_causal ? 0 : mass.size() * size);
        second_tables.resize(first_tables.size());
        to_parts.resize(is_causal ? mass.size() : 0);
        first_ends.resize(is_causal ? n_pairs * size : 0);
    }

    void enter(const Drawing &drawing, int64_t graph, int64_t n_used) {
        const bool *is_real = drawing.key_mask + graph / drawing.n_heads * drawing.n_keys;
        n_keys = n_used;
        head = graph % drawing.n_heads;
        first_key = graph * drawing.n_keys;
        reals.clear();
        for (int64_t j = 0; j < n_keys; j++)
            if (is_real[j]) reals.push_back(j);
        members.resize(n_keys * n_pairs);
        shares.resize(n_keys * n_pairs);
        key_tables.resize(is_causal ? 0 : n_keys * n_pairs);
        todo.resize(std::max(size, 4 * n_keys));  // a partition of one part counts it twice
        fill_key_tables();
        n_seen = n_real = 0;
        next = first;
        std::fill(to_parts.begin(), to_parts.end(), 0);
        if (is_causal)
            std::fill(mass.begin(), mass.end(), 0);
        else {
            fill_part_tables();
            n_seen = n_keys;
            n_real = reals.size();
        }
    }

    void see(int64_t n) {  // the first n keys
        for (n = std::min(n, n_keys); n_seen < n; n_seen++) {
            const int16_t *part = model.key_part + (first_key + n_seen) * n_pairs;
            for (int64_t e = 0; e < n_pairs; e++) {
                const Pair pair(e);
                const int64_t cluster = pair.of(part, size), a = cluster / size % size, b = cluster % size;
                const int64_t second = (head * model.n_partitions + 2 * pair.group + 1) * size;
                const double before = mass[cluster];
                mass[cluster] = shares[next[cluster]++];
                for (int64_t y = 0; y < size; y++)
                    to_parts[(pair.group * size + y) * size + a] +=
                        model.blocks[(second + y) * size + b] * (mass[cluster] - before);
            }
        }
        while (n_real < int64_t(reals.size()) && reals[n_real] < n_seen) n_real++;
    }

    void draw(int64_t at, const Address &address, Keys &found) {
        const int16_t *part = model.query_part + at * n_pairs;
        const real *weight = model.query_weight + at * n_pairs;
        double total = 0;
        for (int64_t e = 0; e < n_pairs; e++) {
            const Pair pair(e);
            const int64_t from = pair.of(part, size), x = from / size % size, y = from % size;
            const double rate = is_causal ? sum_over_parts(pair.group, x, y, &first_ends[e * size]) : reached[from];
            ends[e] = total += double(weight[pair.first]) * weight[pair.second] * rate;
        }
        const double spread = extra * n_real;
        if (total + spread > DENSE_SHARE * n_seen) {
            fill_rates(model, at, head, rates.data());
            for (int64_t i = 0; i < n_real; i++) {
                const double rate = pair_rate(model, rates.data(), first_key + reals[i]) + extra;
                if (address.of_cell(CELL, reals[i]) < -std::expm1(-rate)) found.add(reals[i]);
            }
            return;
        }
        const int64_t n = poisson(total, address, 0), n_spread = poisson(spread, address, 1);
        points.draw(n + (n_spread + 3) / 4, address);
        for (int64_t t = 0; t < n; t++) {
            const double place = uniform(points(0, t)) * total;
            int64_t e = 0;
            for (int64_t i = 0; i < n_pairs - 1; i++) e += ends[i] <= place;
            const Pair pair(e);
            const int64_t from = pair.of(part, size), y = part[pair.second] - (pair.group + 1) * size;
            const double u = uniform(points(1, t)), v = uniform(points(2, t)), w = uniform(points(3, t));
            if (is_causal) {
                const int64_t j = choose_seen(e, pair.group, from % size, u, v, w);
                if (j >= 0) found.add(j);
                continue;
            }
            const int64_t a = choose(&first_tables[from * size], size, u);
            const int64_t b = choose(&second_tables[(y * size + a) * size], size, v);
            const int64_t cluster = (pair.group * size + a) * size + b;
            const int64_t slot = first[cluster], n_members = first[cluster + 1] - slot;
            if (n_members)  // rounding alone leads to a cluster without keys
                found.add(members[slot + choose(&key_tables[slot], n_members, w)]);
        }
        for (int64_t t = 0; t < n_spread; t++)
            found.add(reals[int64_t(uniform(points(t % 4, n + t / 4)) * n_real)]);
    }

    bool is_law_met() const { return true; }
    bool keeps(int64_t, int64_t, double) const { return true; }
};

// The keys of rows start … stop, with all real ones at most `reach` places from a row; NULL if memory is out.
template <class MakeDraw>
int64_t *draw_rows(int64_t start, int64_t stop, const Drawing &drawing, int64_t *degrees, MakeDraw make) try {
    auto model = make();
    std::vector<int64_t> keys;
    std::vector<double> kept;  // a uniform for each of a row's keys
    Keys found(drawing.n_keys);
    int64_t last_graph = -1;
    for (int64_t at = start; at < stop; at++) {
        const int64_t graph = at / drawing.n_queries, row = at % drawing.n_queries, example = graph / drawing.n_heads;
        const bool *is_real = drawing.key_mask + example * drawing.n_keys;
        if (graph != last_graph) {
            int64_t n_used = drawing.n_keys;  // without padding at the end, so that it changes nothing
            while (n_used > 1 && !is_real[n_used - 1]) n_used--;
            model.enter(drawing, graph, n_used);
            last_graph = graph;
        }
        const size_t before = keys.size();
        if (drawing.query_mask[example * drawing.n_queries + row]) {
            const Address address = {drawing.seed, row, graph % drawing.n_heads, example + drawing.first_example};
            const int64_t low = std::max(row - drawing.reach, int64_t(0));
            const int64_t high = std::min(row + (drawing.is_causal ? 0 : drawing.reach), drawing.n_keys - 1);
            if (drawing.is_causal) model.see(row + drawing.n_keys - drawing.n_queries + 1);
            model.draw(at, address, found);
            for (int64_t j = low; j <= high; j++)
                if (is_real[j]) found.add(j);
            found.take_all([&](int64_t j) { keys.push_back(j); });
            if (!model.is_law_met()) {
                kept.resize(keys.size() - before);
                const int64_t *of_row = keys.data() + before;
#pragma omp simd
                for (size_t e = 0; e < kept.size(); e++) kept[e] = address.of_cell(KEEP, of_row[e]);
                size_t end = before;
                for (size_t e = 0; e < kept.size(); e++) {
                    const int64_t j = keys[before + e];
                    if ((low <= j && j <= high) || model.keeps(at, j, kept[e])) keys[end++] = j;
                }
                keys.resize(end);
            }
        }
        degrees[at] = keys.size() - before;
    }
    int64_t *copy = static_cast<int64_t *>(std::malloc(std::max(keys.size(), size_t(1)) * sizeof(int64_t)));
    if (copy) std::copy(keys.begin(), keys.end(), copy);
    return copy;
} catch (const std::bad_alloc &) {
    return nullptr;
}

}  // namespace

void draw_exact(const Ranges *ranges, const real *query, const real *key, int64_t n_clusters, bool is_poisson,
                const Drawing *drawing, int64_t *degrees, int64_t **keys) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t i) {
        const auto make = [=] { return ExactDraw(query, key, n_clusters, is_poisson, drawing->is_causal); };
        keys[i] = draw_rows(start, stop, *drawing, degrees, make);
    });
}

void draw_crossed(const Ranges *ranges, const Crossed *model, double extra, const Drawing *drawing, int64_t *degrees,
                  int64_t **keys) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t i) {
        const auto make = [=] { return CrossedDraw(*model, extra, drawing->is_causal); };
        keys[i] = draw_rows(start, stop, *drawing, degrees, make);
    });
}

void release(int64_t *keys) { std::free(keys); }
