// Draws the two n × n squares: edge probabilities with their factors, and one draw with its degrees.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});
  const { surface, shade } = playground.canvas;

  const STRIP_SHARE = 0.17; // of the width, for memberships and degrees
  const WIDEST_CLUSTER = 22; // pixels per cluster in the strips
  const GAP = 7;

  // Both squares share one layout, so that rows and columns line up: strips to the left and above.
  function layout(size, nClusters) {
    const strip = Math.min(STRIP_SHARE * size, WIDEST_CLUSTER * Math.max(nClusters, 2));
    return { strip, start: strip + GAP, side: size - strip - GAP };
  }

  function drawProbabilities(canvas, scene, colours) {
    const { context, width } = surface(canvas);
    const { queryMembership, keyMembership, blockMatrix, probability } = scene.model;
    const { strip, start, side } = layout(width, blockMatrix.length);
    const transposed = blockMatrix.map((_, u) => keyMembership.map((row) => row[u]));
    const paint = (matrix, box) => drawCells(context, matrix, box, (x) => shade(x, colours), colours);
    paint(blockMatrix, [0, 0, strip, strip]);
    paint(transposed, [start, 0, side, strip]);
    paint(queryMembership, [0, start, strip, side]);
    paint(probability, [start, start, side, side]);
    drawMarks(context, scene, { strip, start, side, hasStrips: true }, colours);
  }

  // Cells of one draw: drawn edges, edges due to exploration only, and edges lost by Algorithm 1.
  const KINDS = { none: 0, edge: 1, explored: 2, lost: 3 };
  function drawMask(canvas, scene, colours) {
    const { context, width } = surface(canvas);
    const { strip, start, side } = layout(width, scene.model.blockMatrix.length);
    const { kinds } = scene;
    const n = kinds.length;
    const fills = [shade(0, colours), colours.token, colours.explored, shade(0, colours)]; // in the order of KINDS
    drawCells(context, kinds, [start, start, side, side], (kind) => fills[kind], colours);
    const cell = side / n;
    context.fillStyle = colours.lost;
    kinds.forEach((row, i) =>
      row.forEach((kind, j) => {
        if (kind !== KINDS.lost) return;
        context.beginPath();
        context.arc(start + (j + 0.5) * cell, start + (i + 0.5) * cell, Math.max(1, cell * 0.2), 0, 2 * Math.PI);
        context.fill();
      }),
    );
    const isEdge = (kind) => kind === KINDS.edge || kind === KINDS.explored;
    const read = kinds.map((row) => row.filter(isEdge).length);
    const readers = kinds[0].map((_, j) => kinds.filter((row) => isEdge(row[j])).length);
    const bar = Math.max(1, cell - (cell > 5 ? 1.5 : 0));
    context.fillStyle = colours.quiet;
    read.forEach((count, i) => {
      const length = (strip * count) / n;
      context.fillRect(strip - length, start + i * cell, length, bar);
    });
    readers.forEach((count, j) => {
      const length = (strip * count) / n;
      context.fillRect(start + j * cell, strip - length, bar, length);
    });
    drawMarks(context, scene, { strip, start, side, hasStrips: false }, colours);
  }

  function drawCells(context, matrix, [left, top, width, height], paint, colours) {
    const [cellWidth, cellHeight] = [width / matrix[0].length, height / matrix.length];
    const gap = Math.min(cellWidth, cellHeight) >= 7 ? 1 : 0;
    context.fillStyle = gap ? colours.faint : paint(0);
    context.fillRect(left, top, width, height);
    matrix.forEach((row, i) => {
      const [y, below] = [i, i + 1].map((k) => Math.round(top + k * cellHeight));
      row.forEach((value, j) => {
        const [x, right] = [j, j + 1].map((k) => Math.round(left + k * cellWidth));
        context.fillStyle = paint(value);
        context.fillRect(x, y, right - x - gap, below - y - gap);
      });
    });
    context.strokeStyle = colours.faint;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
  }

  // Frames around the selection (a token's row and column, or a cluster's in the strips) and the watched pair.
  function drawMarks(context, scene, { strip, start, side, hasStrips }, colours) {
    const { selected, watched, points } = scene;
    const [nQueries, nKeys] = [points.queries.length, (points.keys || points.queries).length];
    const box = (x, y, width, height) => {
      context.strokeStyle = colours.paper;
      context.lineWidth = 4;
      context.strokeRect(x, y, width, height);
      context.strokeStyle = colours.ink;
      context.lineWidth = 1.6;
      context.strokeRect(x, y, width, height);
    };
    if (selected.kind === "clusters") {
      if (hasStrips) {
        const width = strip / points.clusters.length;
        box(selected.index * width, start, width, side);
        box(start, selected.index * width, side, width);
      }
    } else {
      if (selected.kind !== "keys") box(0, start + (selected.index * side) / nQueries, start + side, side / nQueries);
      if (selected.kind === "keys" || !points.keys) {
        box(start + (selected.index * side) / nKeys, 0, side / nKeys, start + side);
      }
    }
    const [x, y] = [start + ((watched.key + 0.5) * side) / nKeys, start + ((watched.query + 0.5) * side) / nQueries];
    for (const [width, colour] of [[4.5, colours.paper], [2, colours.ink]]) {
      context.beginPath();
      context.arc(x, y, Math.max(6, (0.75 * side) / nKeys), 0, 2 * Math.PI);
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.stroke();
    }
  }

  // The pair at a position on either canvas, or null.
  function pairAt(canvas, { blockMatrix, probability }, [left, top]) {
    const { start, side } = layout(canvas.clientWidth, blockMatrix.length);
    const key = Math.floor(((left - start) * probability[0].length) / side);
    const query = Math.floor(((top - start) * probability.length) / side);
    const isInside = probability[query]?.[key] !== undefined;
    return isInside ? { query, key } : null;
  }

  playground.matrices = { drawProbabilities, drawMask, pairAt, layout, KINDS };
})();
