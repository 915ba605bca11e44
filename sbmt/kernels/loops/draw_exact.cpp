// Draws edges from dense memberships.
//
// If all rows of a graph choose among the same keys, they use Walker's alias tables. In causal masks each row adds one
// key, so running sums replace the tables, and a row uses a prefix of each.
#include "draw.h"

namespace {

// An entry of Walker's alias tables: a position in entry k selects k if its fraction is below `keep`, else `other`.
struct Entry {
    uint32_t keep;  // in units of 2⁻³²
    int32_t other;
};

// Chooses by `place`, a random word times the number of entries: the upper half is an entry, the lower half a fraction.
inline int32_t choose(const Entry *tables, int32_t start, uint64_t place) {
    const int32_t k = place >> 32, other = tables[start + k].other;
    return uint32_t(place) < tables[start + k].keep ? k : other;
}

// Fills a table from weights, which it overwrites and whose sum must not be 0; `todo` has capacity n. As in Vose's
// method (1991), one large entry at a time fills small entries until it is small itself, and the next one fills it.
void fill_table(double *weights, int64_t n, double total, Entry *table, int32_t *todo) {
    int64_t n_small = 0, large = n;  // small entries are at the front of `todo`, large ones at the back
    const double scale = n / total;
    for (int64_t k = 0; k < n; k++) {
        weights[k] *= scale;
        table[k] = {0, int32_t(k)};
    }
    for (int64_t k = 0; k < n; k++) {
        const bool is_small = weights[k] < 1;
        todo[n_small] = todo[large - 1] = k;  // one of the places counts; a branch would be unpredictable
        n_small += is_small;
        large -= !is_small;
    }
    if (large == n) return;  // rounding made all entries equal
    int64_t i = 0, j = n - 1;
    int32_t many = todo[j];
    double left = weights[many];
    while (left < 1 ? j > large : i < n_small) {
        const bool is_filled = left < 1;
        const int32_t few = is_filled ? many : todo[i];
        const double weight = is_filled ? left : weights[few];
        j -= is_filled;
        i += !is_filled;
        many = todo[j];
        left = (is_filled ? weights[many] : left) - (1 - weight);
        table[few] = {uint32_t(std::min(std::max(weight, 0.0) * 4294967296.0, 4294967295.0)), many};
    }
    for (; i < n_small; i++)  // left over because of rounding errors
        if (weights[todo[i]] <= 0) table[todo[i]] = {0, many};
}

// Draws a row's keys at rates x = ⟨query_i, key_j⟩, with probability 1 − exp(−x) under the Poisson link and min(x, 1)
// under the bilinear link. Under the bilinear link, rates are multiplied by `boost`, so that keys are hit often enough,
// and hits are thinned to the right probability (see sbmt.samplers.exact).
class ExactDraw {
    static constexpr int64_t ROWS = 8;
    const real *query, *keys, *first_key = nullptr;
    const int64_t n_clusters;
    const bool is_poisson, is_causal;
    int64_t n_keys = 0, n_seen = 0;
    double boost = 1;
    std::vector<Entry> tables;
    std::vector<double> total, most, ends, columns, sums;  // `sums` of columns; `total` and `most` over keys so far
    int64_t first_row = 0, end_row = 0, last_row = 0;
    std::vector<real> rates;  // of rows first_row … end_row
    std::vector<double> uniforms;
    Points points;
    std::vector<int64_t> steps;  // the cluster of each point
    std::vector<int32_t> todo;

  public:
    ExactDraw(const real *query, const real *keys, int64_t n_clusters, bool is_poisson, bool is_causal)
        : query(query), keys(keys), n_clusters(n_clusters), is_poisson(is_poisson), is_causal(is_causal),
          total(n_clusters), most(n_clusters), ends(n_clusters) {}

    // Prepares to draw the rows of a graph, where only the first n_used keys matter.
    void enter(const Drawing &drawing, int64_t graph, int64_t n_used) {
        constexpr int64_t MOST = 8;  // columns at once, so that whole cache lines of keys are read
        n_keys = n_used;
        first_key = keys + graph * drawing.n_keys * n_clusters;
        n_seen = end_row = 0;
        last_row = (graph + 1) * drawing.n_queries;
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

    void see(int64_t n) {  // adds keys until there are n
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
        for (int64_t v = 0; v < n_clusters; v++) ends[v] = rate += row[v] * total[v], bound += row[v] * most[v];
        bound = std::min(std::max(bound * (1 + 1e-12), 1e-300), 1.0);
        boost = 1;
        if (!is_poisson)
            boost = bound == 1 ? MAX_BOOST : std::min(MAX_BOOST, -std::log1p(-bound) / bound * (1 + 1e-12));
        if (rate * boost > DENSE_SHARE * n_seen) {
            boost = 0;  // no hit needs thinning
            fill_uniforms(address, n_seen, uniforms);
            if (at >= end_row) fill_rates(at);
            const real *rates = this->rates.data() + (at - first_row) * n_keys;
            for (int64_t j = 0; j < n_seen; j++) {
                const double x = rates[j];
                if (uniforms[j] < (is_poisson ? -std::expm1(-x) : x)) found.add(j);
            }
            return;
        }
        const int64_t n = poisson(rate * boost, address, 0);
        points.clear();
        points.add(n, address.row);
        steps.resize(std::max(steps.size(), size_t(points.draw(address))));
        for (int64_t t = 0; t < n; t++) {
            steps[t] = first_above(ends.data(), n_clusters, uniform(points(0, t)) * rate);
            if (!is_causal) __builtin_prefetch(&tables[steps[t] * n_keys + (points(2, t) * n_keys >> 32)]);
        }
        for (int64_t t = 0; t < n; t++) {
            const int64_t v = steps[t], start = v * n_keys;
            const uint64_t upper = points(2, t), lower = points(3, t), place = upper * n_keys + (lower * n_keys >> 32);
            const int64_t j = is_causal ? first_above(&sums[start], n_seen, fine_uniform(upper, lower) * total[v])
                                        : choose(&tables[start], 0, place);
            if (!is_causal || first_key[j * n_clusters + v] > 0) found.add(j);  // other keys are rounding errors
        }
    }

    // Computes the rates of several rows at once, so that keys are read once for all of these rows.
    void fill_rates(int64_t at) {
        first_row = at;
        end_row = std::min(at + ROWS, last_row);
        rates.resize(ROWS * n_keys);
        for (int64_t j = 0; j < n_keys; j++)
            for (int64_t i = at; i < end_row; i++)
                rates[(i - at) * n_keys + j] = dot<0>(query + i * n_clusters, first_key + j * n_clusters, n_clusters);
    }

    bool is_law_met() const { return is_poisson || boost == 0; }
    bool keeps(int64_t at, int64_t key, double u) const {
        if (u * boost < 1) return true;  // regardless of the rate
        const double x = dot<0>(query + at * n_clusters, first_key + key * n_clusters, n_clusters);
        return u * -std::expm1(-boost * x) < std::min(x, 1.0);
    }
};

}  // namespace

void draw_exact(const Ranges *ranges, const real *query, const real *key, int64_t n_clusters, bool is_poisson,
                const Drawing *drawing, int64_t *degrees, int64_t **keys) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t i) {
        const auto make = [=] { return ExactDraw(query, key, n_clusters, is_poisson, drawing->offset >= 0); };
        keys[i] = draw_rows(start, stop, *drawing, degrees, make);
    });
}

void release(int64_t *keys) { std::free(keys); }
