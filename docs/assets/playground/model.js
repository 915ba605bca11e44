// The block model in the plane: pure functions of numbers, independent of the page.
//
// "points" are { queries, keys, clusters }, lists of [x, y]; keys = null: keys have the positions of the queries.
// "rule" is { link: "bilinear" | "poisson", law: "exact" | "algorithm1", exploration: δ, causal: true | false }.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});

  const LARGEST_LOG_RATE = 10; // the library clips exponents of the Poisson link here
  const MOST_COUNTED = 9; // cap on the number of times that Algorithm 1 draws a pair

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const transpose = (matrix) => matrix[0].map((_, column) => matrix.map((row) => row[column]));
  const product = (left, right) => {
    const columns = transpose(right);
    return left.map((row) => columns.map((column) => dot(row, column)));
  };
  const mapCells = (matrix, f) => matrix.map((row, i) => row.map((x, j) => f(x, i, j)));
  const sumCells = (matrix) => matrix.reduce((sum, row) => sum + row.reduce((part, x) => part + x, 0), 0);
  const sigmoid = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));

  // Equation 5 without the MLP: how far each node belongs to each cluster.
  function memberships(nodes, clusters) {
    return nodes.map((node) => clusters.map((cluster) => sigmoid(dot(node, cluster))));
  }

  // Equation 6: a softmax over all k² products of clusters; under the Poisson link without its denominator.
  function blockMatrix(clusters, link) {
    const scores = clusters.map((a) => clusters.map((b) => dot(a, b)));
    const nPairs = clusters.length ** 2;
    if (link === "poisson") {
      const largest = LARGEST_LOG_RATE + Math.log(nPairs);
      return mapCells(scores, (x) => Math.exp(Math.min(x, largest)) / nPairs);
    }
    const largest = Math.max(...scores.flat());
    const powers = mapCells(scores, (x) => Math.exp(x - largest));
    const total = sumCells(powers);
    return mapCells(powers, (x) => x / total);
  }

  // The chance that a pair becomes an edge, from its rate r. Algorithm 1 draws a pair a Poisson number of times.
  const isPoisson = (rule) => rule.link === "poisson" || rule.law === "algorithm1";
  function edgeProbability(rate, rule) {
    const x = rate + rule.exploration;
    return isPoisson(rule) ? -Math.expm1(-x) : Math.min(x, 1);
  }
  function probabilitySlope(rate, rule) {
    const x = rate + rule.exploration;
    return isPoisson(rule) ? Math.exp(-x) : x <= 1 ? 1 : 0;
  }

  // Under a causal rule a query has no edge to a later key; fewer queries than keys are the last ones.
  const isSeen = (i, j, rates, rule) => !rule.causal || j - i <= rates[0].length - rates.length;
  const countPairs = (rates, rule) => sumCells(mapCells(rates, (_, i, j) => Number(isSeen(i, j, rates, rule))));

  // Equations 5 to 7, and the mean over all pairs that the rule allows.
  function describe(points, rule) {
    const queryMembership = memberships(points.queries, points.clusters);
    const keyMembership = points.keys ? memberships(points.keys, points.clusters) : queryMembership;
    const block = blockMatrix(points.clusters, rule.link);
    const rates = product(product(queryMembership, block), transpose(keyMembership));
    const probability = mapCells(rates, (rate, i, j) => (isSeen(i, j, rates, rule) ? edgeProbability(rate, rule) : 0));
    const nPairs = countPairs(rates, rule);
    const expectedDensity = sumCells(probability) / nPairs;
    return { queryMembership, keyMembership, blockMatrix: block, rates, probability, nPairs, expectedDensity };
  }

  // The exact gradient of the expected density with respect to every point, by the chain rule through r = Q S Kᵀ.
  function gradient(points, rule) {
    const { clusters } = points;
    const keys = points.keys || points.queries;
    const { queryMembership: Q, keyMembership: K, blockMatrix: S, rates, nPairs } = describe(points, rule);
    const slope = (rate, i, j) => (isSeen(i, j, rates, rule) ? probabilitySlope(rate, rule) : 0);
    const G = mapCells(rates, (rate, i, j) => slope(rate, i, j) / nPairs); // ∂density / ∂r
    const GK = product(G, K);

    const dS = product(transpose(Q), GK);
    const center = rule.link === "poisson" ? 0 : sumCells(mapCells(dS, (x, u, v) => x * S[u][v]));
    const largest = Math.exp(LARGEST_LOG_RATE);
    const isCut = (x) => rule.link === "poisson" && x >= largest;
    const dScores = mapCells(dS, (x, u, v) => (isCut(S[u][v]) ? 0 : S[u][v] * (x - center)));
    const both = mapCells(dScores, (x, u, v) => x + dScores[v][u]); // C occurs twice in C Cᵀ

    const dQ = mapCells(product(GK, transpose(S)), (x, i, u) => x * Q[i][u] * (1 - Q[i][u])); // n k
    const dK = mapCells(product(transpose(G), product(Q, S)), (x, j, v) => x * K[j][v] * (1 - K[j][v])); // m k
    const parts = [product(both, clusters), product(transpose(dQ), points.queries), product(transpose(dK), keys)];
    const add = (...matrices) => mapCells(matrices[0], (_, i, j) => matrices.reduce((sum, m) => sum + m[i][j], 0));
    const [dQueries, dKeys] = [product(dQ, clusters), product(dK, clusters)];
    return {
      queries: points.keys ? dQueries : add(dQueries, dKeys),
      keys: points.keys ? dKeys : null,
      clusters: add(...parts),
    };
  }

  const steepness = (slope) =>
    Math.max(...[slope.queries, slope.keys || [], slope.clusters].flat().map((arrow) => Math.hypot(...arrow)));

  // One step down the gradient. The steepest point moves by "distance", the others in proportion, "inside" keeps
  // coordinates in the plane; the step is halved until the density falls. Null if it cannot fall.
  function descend(points, rule, distance, inside) {
    const before = describe(points, rule).expectedDensity;
    const slope = gradient(points, rule);
    const steepest = steepness(slope);
    if (!(steepest > 0)) return null;
    for (let length = distance; length > distance / 1000; length /= 2) {
      const move = (name) => mapCells(points[name], (x, i, j) => inside(x - (length / steepest) * slope[name][i][j]));
      const next = { queries: move("queries"), keys: points.keys && move("keys"), clusters: move("clusters") };
      if (describe(next, rule).expectedDensity < before) return next;
    }
    return null;
  }

  // Which pairs become edges, one coin each. Both laws read the same coin: an edge of Algorithm 1 is one of the exact
  // law too. "counts" are the times that Algorithm 1 draws a pair, at most nine; under the exact law once.
  function sampleMask(rates, rule, coins) {
    const isEdge = (rate, i, j) => isSeen(i, j, rates, rule) && coins[i][j] < edgeProbability(rate, rule);
    const mask = mapCells(rates, isEdge);
    const counts = mapCells(mask, (isEdge, i, j) => {
      if (!isEdge || rule.law === "exact") return Number(isEdge);
      return Math.max(1, poissonQuantile(rates[i][j] + rule.exploration, 1 - coins[i][j]));
    });
    return { mask, counts, nEdges: sumCells(mapCells(mask, Number)) };
  }

  function poissonQuantile(rate, level) {
    let count = 0;
    for (let term = Math.exp(-rate), sum = term; sum < level && count < MOST_COUNTED; sum += term) {
      count += 1;
      term *= rate / count;
    }
    return count;
  }

  playground.model = {
    memberships, blockMatrix, edgeProbability, isSeen, describe, gradient, steepness, descend, sampleMask, sumCells,
  };
})();
