// Draws causal edges from memberships in parts, where each row may have edges to one key more than the row before.
//
// Data about earlier keys is stored per cluster and can outlive a call: a decoder adds the key of each new token, and
// draws edges in time that does not depend on the number of keys.
#include "draw.h"

namespace {

// The keys of a graph that have been added so far.
struct Seen {
    struct Member {
        double until;  // total membership in the cluster up to and including this key
        int64_t key;
    };
    int64_t n = 0;
    std::vector<int64_t> reals;
    std::vector<std::vector<Member>> clusters;
    std::vector<double> to_parts;  // Σ_b S_yb M_ab per group g, where M_ab is the total membership in cluster (g, a, b)

    void clear(int64_t n_groups, int64_t size) {
        n = 0;
        reals.clear();
        clusters.resize(n_groups * size * size);
        for (auto &members : clusters) members.clear();
        to_parts.assign(n_groups * size * size, 0);
    }
    double mass(int64_t cluster) const { return clusters[cluster].empty() ? 0 : clusters[cluster].back().until; }
};

// For each point, a query chooses one of its pairs of parts, then a part of the keys in one partition, a part in the
// other partition, and a key in both parts, all by running sums over earlier keys. `extra` is added to all real rates.
class CausalDraw {
    const Crossed &model;
    const double extra;
    const int64_t n_pairs, size;
    std::vector<Seen> *const kept;  // for all graphs; null unless a decoder stores it
    Seen own, *seen = &own;
    const bool *is_real = nullptr;
    int64_t head = 0, n_keys = 0, first_key = 0;
    std::vector<double> ends, first_ends;  // running sums over a row's pairs, and over first parts of keys for each
    std::vector<real> rates;
    std::vector<double> uniforms;
    Points points;

    const real *block(int64_t partition, int64_t part) const {
        return model.blocks + ((head * model.n_partitions + partition) * size + part) * size;
    }

    // Returns the rate of a query's parts x and y to earlier keys; writes running sums over the keys' first parts.
    double sum_over_parts(int64_t group, int64_t x, int64_t y, double *out) const {
        const real *first = block(2 * group, x);
        const double *of_part = &seen->to_parts[(group * size + y) * size];
        double sum = 0;
        for (int64_t a = 0; a < size; a++) out[a] = sum += first[a] * of_part[a];
        return sum;
    }

    // Chooses the key for a point of the row's pair e, whose second part is y; −1 if rounding errors lead to no key.
    int64_t choose(int64_t e, int64_t group, int64_t y, double u, double v, double w) const {
        const double *of_pair = &first_ends[e * size];
        const int64_t a = first_above(of_pair, size, u * of_pair[size - 1]), first = (group * size + a) * size;
        const real *second = block(2 * group + 1, y);
        double left = v * seen->to_parts[(group * size + y) * size + a];
        int64_t b = 0;
        while (b < size - 1 && (left -= second[b] * seen->mass(first + b)) >= 0) b++;
        const auto &members = seen->clusters[first + b];
        const double place = w * seen->mass(first + b);
        const auto above = [](double x, const Seen::Member &member) { return x < member.until; };
        const auto found = std::upper_bound(members.begin(), members.end(), place, above);
        return found == members.end() ? -1 : found->key;
    }

  public:
    CausalDraw(const Crossed &model, double extra, std::vector<Seen> *kept)
        : model(model), extra(extra), n_pairs(2 * model.n_partitions), size(model.size), kept(kept), ends(n_pairs),
          first_ends(n_pairs * size), rates(model.n_partitions * size) {}

    void enter(const Drawing &drawing, int64_t graph, int64_t n_used) {
        is_real = drawing.key_mask + graph / drawing.n_heads * drawing.n_keys;
        n_keys = n_used;
        head = graph % drawing.n_heads;
        first_key = graph * drawing.n_keys;
        if (kept)
            seen = &(*kept)[graph];
        else
            seen->clear(model.n_partitions / 2, size);
    }

    void see(int64_t n) {  // adds keys until there are n
        for (n = std::min(n, n_keys); seen->n < n; seen->n++) {
            if (!is_real[seen->n]) continue;
            const int16_t *part = model.key_part + (first_key + seen->n) * n_pairs;
            const real *weight = model.key_weight + (first_key + seen->n) * n_pairs;
            seen->reals.push_back(seen->n);
            for (int64_t e = 0; e < n_pairs; e++) {
                const Pair pair(e);
                const int64_t cluster = pair.of(part, size), a = cluster / size % size, b = cluster % size;
                const double mass = double(weight[pair.first]) * weight[pair.second];
                seen->clusters[cluster].push_back({seen->mass(cluster) + mass, seen->n});
                for (int64_t y = 0; y < size; y++)
                    seen->to_parts[(pair.group * size + y) * size + a] += block(2 * pair.group + 1, y)[b] * mass;
            }
        }
    }

    void draw(int64_t at, const Address &address, Keys &found) {
        const int16_t *part = model.query_part + at * n_pairs;
        const real *weight = model.query_weight + at * n_pairs;
        const int64_t n_real = seen->reals.size();
        double total = 0;
        for (int64_t e = 0; e < n_pairs; e++) {
            const Pair pair(e);
            const int64_t from = pair.of(part, size);
            const double rate = sum_over_parts(pair.group, from / size % size, from % size, &first_ends[e * size]);
            ends[e] = total += double(weight[pair.first]) * weight[pair.second] * rate;
        }
        const double spread = extra * n_real;
        if (total + spread > DENSE_SHARE * seen->n) {
            fill_rates(model, at, head, rates.data());
            fill_uniforms(address, seen->n, uniforms);
            for (const int64_t j : seen->reals)
                if (is_hit(pair_rate(model, rates.data(), first_key + j) + extra, uniforms[j]))
                    found.add(j);
            return;
        }
        const int64_t n = poisson(total, address, 0), n_spread = poisson(spread, address, 1);
        points.clear();
        points.add(n + (n_spread + 3) / 4, address.row);
        points.draw(address);
        for (int64_t t = 0; t < n; t++) {
            const int64_t e = first_above(ends.data(), n_pairs, uniform(points(0, t)) * total);
            const Pair pair(e);
            const double u = uniform(points(1, t)), v = uniform(points(2, t)), w = uniform(points(3, t));
            const int64_t j = choose(e, pair.group, pair.of(part, size) % size, u, v, w);
            if (j >= 0) found.add(j);
        }
        for (int64_t t = 0; t < n_spread; t++)
            found.add(seen->reals[int64_t(uniform(points(t % 4, n + t / 4)) * n_real)]);
    }

    bool is_law_met() const { return true; }
    bool keeps(int64_t, int64_t, double) const { return true; }
};

}  // namespace

void *remember(int64_t n_graphs, int64_t n_groups, int64_t size) try {
    auto *kept = new std::vector<Seen>(n_graphs);
    for (Seen &seen : *kept) seen.clear(n_groups, size);
    return kept;
} catch (const std::bad_alloc &) {
    return nullptr;
}

void forget(void *kept) { delete static_cast<std::vector<Seen> *>(kept); }

void draw_causal(const Ranges *ranges, const Crossed *model, double extra, const Drawing *drawing, void *kept,
                 int64_t *degrees, int64_t **keys) {
    in_parallel(*ranges, [=](int64_t start, int64_t stop, int64_t i) {
        const auto make = [=] { return CausalDraw(*model, extra, static_cast<std::vector<Seen> *>(kept)); };
        keys[i] = draw_rows(start, stop, *drawing, degrees, make);
    });
}
