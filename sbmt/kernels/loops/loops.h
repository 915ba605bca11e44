// Declarations of the CPU loops, which both the compiler and Python read (so no macros, which cffi does not support).
//
// A library is built for each type `real`, float or double. Arrays are contiguous, with one row for each token of each
// head of each example, or one entry for each edge. A missing array is NULL. A graph is the mask of one head of one
// example.

typedef struct {  // ranges of rows or graphs: range i runs from ends[i] to ends[i + 1] and belongs to one thread
    const int64_t *ends;
    int64_t number;
} Ranges;

typedef struct {  // the edges of all graphs, as in sbmt.EdgeList
    int64_t n_queries, n_keys, n_heads;
    const int64_t *row_ptr, *keys;
} Mask;

typedef struct {  // the inputs of sbmt.edge_attention
    const real *query, *key, *value, *bias, *gate, *sink, *scale;
    int64_t d, d_value;
    bool is_score_rule;
} Inputs;

typedef struct {  // memberships of tokens in two parts of each partition, and the blocks of each head
    const int16_t *query_part, *key_part;
    const real *query_weight, *key_weight, *blocks;
    int64_t n_partitions, size;
} Crossed;

typedef struct {  // the sizes for choosing parts: tokens of d numbers, and partitions into `size` parts each
    int64_t n_tokens, n_heads, d, n_partitions, size;
} Choice;

// Specifies the tokens between which edges are drawn, the random stream, and up to what distance tokens are always
// joined. `offset` is the position of the first query in causal masks, where no query has an edge to a later key, and
// −1 in all other masks.
typedef struct {
    int64_t n_queries, n_keys, n_heads;
    const bool *query_mask, *key_mask;
    int64_t seed, first_example, reach, offset;
} Drawing;

void attend(const Ranges *ranges, const Inputs *in, const Mask *mask, real *out, real *weights);
void attend_backward(const Ranges *ranges, const Inputs *in, const Mask *mask, const real *grad_out,
                     const real *grad_weights, real *grad_query, real *grad_key, real *grad_value, real *grad_bias,
                     real *grad_gate, real *grad_sink);
void edge_dot(const Ranges *ranges, const real *query, const real *key, int64_t d, const Mask *mask, real *out);
void edge_dot_backward(const Ranges *ranges, const real *grad, const real *query, const real *key, int64_t d,
                       const Mask *mask, real *grad_query, real *grad_key);
void cell_uniforms(const Ranges *ranges, const Mask *mask, int64_t seed, int64_t first_example, double *out);
void weigh_edges(const Ranges *ranges, const real *rate, const Mask *mask, int64_t offset, int64_t reach, double extra,
                 double smallest, real *bias, real *totals);
void near_edges(const Ranges *ranges, const Mask *mask, int64_t offset, int64_t reach, bool *out);

// The next two functions draw edges. They write the number of edges of each row to `degrees`, and the keys of each
// range to `keys`, or NULL if out of memory; `release` frees the keys.
void draw_exact(const Ranges *ranges, const real *query, const real *key, int64_t n_clusters, bool is_poisson,
                const Drawing *drawing, int64_t *degrees, int64_t **keys);
void draw_crossed(const Ranges *ranges, const Crossed *model, double extra, const Drawing *drawing, int64_t *degrees,
                  int64_t **keys);
void release(int64_t *keys);

// Draws causal edges in the same way. `kept`, which `remember` creates and `forget` frees, stores data about the keys
// of earlier calls, so that they are not processed again; ranges must then be whole graphs. Otherwise it is NULL.
void draw_causal(const Ranges *ranges, const Crossed *model, double extra, const Drawing *drawing, void *kept,
                 int64_t *degrees, int64_t **keys);
void *remember(int64_t n_graphs, int64_t n_groups, int64_t size);
void forget(void *kept);

void choose_parts(const Ranges *ranges, const real *tokens, const real *clusters, const Choice *sizes, int16_t *part,
                  real *weight);
void choose_parts_backward(const Ranges *ranges, const real *grad, const real *tokens, const real *clusters,
                           const Choice *sizes, const int16_t *part, const real *weight, real *grad_tokens,
                           real *grad_clusters);
void pair_totals(const Ranges *ranges, const int16_t *part, const real *weight, int64_t n_tokens,
                 int64_t n_partitions, int64_t size, real *out);
void pair_totals_backward(const Ranges *ranges, const real *grad, const int16_t *part, const real *weight,
                          int64_t n_tokens, int64_t n_partitions, int64_t size, real *grad_weight);
void edge_rate(const Ranges *ranges, const Crossed *model, const Mask *mask, real *out);
void edge_rate_backward(const Ranges *ranges, const Crossed *model, const Mask *mask, const real *grad,
                        real *grad_query, real *grad_blocks, real *grad_key);
