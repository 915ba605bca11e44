// The cost of the mask: operations in matrix products, with 2 per multiply-add, as in sbmt.cost.
// n tokens, k clusters, m edges, one head of width d.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});

  const fullAttention = (n, d) => 4 * n * n * d; // Q Kᵀ, and weights × V

  // Algorithm 1 draws from memberships and block matrix; the exact law computes the rates Q S first.
  // Under the bilinear link the mean probability has a closed form; under the Poisson link it is estimated from edges.
  function sbmAttention({ n, k, d, m }, rule) {
    return {
      edges: 4 * m * d,
      memberships: 8 * n * d * d + 4 * n * k * d,
      blocks: 2 * k * k * d + (rule.law === "exact" ? 2 * n * k * k : 0),
      density: rule.link === "poisson" ? 2 * m * k : 2 * k * k + 2 * k,
    };
  }

  const total = (parts) => Object.values(parts).reduce((sum, x) => sum + x, 0);

  playground.cost = { fullAttention, sbmAttention, total };
})();
