// Draws the plane: tokens as discs, separate keys as squares, clusters as crosses with a letter.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});
  const { LIMIT } = playground.places;
  const { surface } = playground.canvas;

  const MARGIN = 0.35; // so that points at the edge are not cut off, in units of the plane
  const FIELD_CELLS = 64; // along each side of the membership field
  const FIELD_DEPTH = 0.28; // its opacity where the membership is 1
  const LONGEST_ARROW = 1.1; // in units of the plane
  const letter = (index) => String.fromCharCode(65 + index);

  // From the plane to the canvas and back.
  function frame(size) {
    const unit = size / (2 * (LIMIT + MARGIN));
    return {
      unit,
      toCanvas: ([x, y]) => [size / 2 + x * unit, size / 2 - y * unit],
      toPlane: ([left, top]) => [(left - size / 2) / unit, (size / 2 - top) / unit],
    };
  }

  function draw(canvas, scene, colours) {
    const { context, width } = surface(canvas);
    const view = frame(width);
    const { points, selected } = scene;
    const isCluster = selected.kind === "clusters";
    if (isCluster) drawField(context, points.clusters[selected.index], colours, width);
    drawGrid(context, view, colours, width);
    if (!isCluster) drawReadings(context, view, scene, colours);
    drawWatched(context, view, scene, colours);
    if (scene.slope) drawArrows(context, view, scene, colours);
    const size = Math.max(3.5, Math.min(5.5, width / 70));
    for (const place of points.keys || []) drawSquare(context, view.toCanvas(place), size, colours);
    for (const place of points.queries) drawDisc(context, view.toCanvas(place), size, colours);
    points.clusters.forEach((place, i) => drawCross(context, view.toCanvas(place), size, letter(i), colours));
    drawSelection(context, view.toCanvas(points[selected.kind][selected.index]), size, scene.hasFocus, colours);
  }

  // The membership in the selected cluster of a token at each position, drawn small and enlarged.
  const field = document.createElement("canvas");
  field.width = field.height = FIELD_CELLS;
  function drawField(context, cluster, colours, size) {
    const small = field.getContext("2d");
    const { toPlane } = frame(FIELD_CELLS);
    small.clearRect(0, 0, FIELD_CELLS, FIELD_CELLS);
    small.fillStyle = colours.token;
    for (let row = 0; row < FIELD_CELLS; row++) {
      for (let column = 0; column < FIELD_CELLS; column++) {
        const place = toPlane([column + 0.5, row + 0.5]);
        small.globalAlpha = FIELD_DEPTH * playground.model.memberships([place], [cluster])[0][0];
        small.fillRect(column, row, 1, 1);
      }
    }
    context.imageSmoothingEnabled = true;
    context.drawImage(field, 0, 0, size, size);
  }

  function drawGrid(context, { toCanvas }, colours, size) {
    for (let at = -LIMIT + 1; at < LIMIT; at++) {
      const [left, top] = toCanvas([at, at]).map((x) => Math.round(x) + 0.5);
      context.strokeStyle = at === 0 ? colours.quiet : colours.faint;
      context.globalAlpha = at === 0 ? 0.7 : 0.6;
      context.lineWidth = 1;
      line(context, [left, 0], [left, size]);
      line(context, [0, top], [size, top]);
    }
    context.globalAlpha = 1;
  }

  // Lines from the selected token to the keys that it reads in this draw, or from a key to its readers.
  function drawReadings(context, { toCanvas }, { points, selected, mask }, colours) {
    const keys = points.keys || points.queries;
    const isKey = selected.kind === "keys";
    const from = toCanvas(points[selected.kind][selected.index]);
    const others = isKey ? points.queries : keys;
    context.strokeStyle = colours.token;
    context.globalAlpha = 0.45;
    context.lineWidth = 1.2;
    others.forEach((place, j) => {
      const isEdge = isKey ? mask[j][selected.index] : mask[selected.index][j];
      if (isEdge) line(context, from, toCanvas(place));
    });
    context.globalAlpha = 1;
  }

  function drawWatched(context, { toCanvas }, { points, watched }, colours) {
    const [from, to] = [points.queries[watched.query], (points.keys || points.queries)[watched.key]].map(toCanvas);
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.6;
    context.setLineDash([5, 4]);
    line(context, from, to);
    context.setLineDash([]);
    for (const [left, top] of [from, to]) {
      context.beginPath();
      context.arc(left, top, 8, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // The direction of a gradient step; lengths are relative to the longest arrow.
  function drawArrows(context, { toCanvas }, { points, slope, steepest }, colours) {
    if (!(steepest > 0)) return;
    for (const kind of ["queries", "keys", "clusters"]) {
      context.strokeStyle = context.fillStyle = kind === "clusters" ? colours.cluster : colours.ink;
      (slope[kind] || []).forEach(([dx, dy], i) => {
        const scale = -LONGEST_ARROW / steepest;
        const [x, y] = points[kind][i];
        arrow(context, toCanvas([x, y]), toCanvas([x + scale * dx, y + scale * dy]));
      });
    }
  }

  function arrow(context, from, to) {
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const length = Math.hypot(dx, dy);
    if (length < 2) return;
    const head = Math.min(8, length);
    const [ux, uy] = [dx / length, dy / length];
    context.lineWidth = 2;
    line(context, from, [to[0] - (ux * head) / 2, to[1] - (uy * head) / 2]);
    context.beginPath();
    context.moveTo(to[0], to[1]);
    context.lineTo(to[0] - head * ux + 0.5 * head * uy, to[1] - head * uy - 0.5 * head * ux);
    context.lineTo(to[0] - head * ux - 0.5 * head * uy, to[1] - head * uy + 0.5 * head * ux);
    context.fill();
  }

  function line(context, from, to) {
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  }

  function outlined(context, colours, fill) {
    context.lineWidth = 1.5;
    context.strokeStyle = colours.paper;
    context.fillStyle = fill;
    context.stroke();
    context.fill();
  }

  function drawDisc(context, [left, top], size, colours) {
    context.beginPath();
    context.arc(left, top, size, 0, 2 * Math.PI);
    outlined(context, colours, colours.token);
  }

  function drawSquare(context, [left, top], size, colours) {
    context.beginPath();
    context.rect(left - size * 0.9, top - size * 0.9, size * 1.8, size * 1.8);
    outlined(context, colours, colours.key);
  }

  function drawCross(context, [left, top], size, name, colours) {
    const reach = size * 1.25;
    for (const [width, colour] of [[size * 0.95 + 3, colours.paper], [size * 0.95, colours.cluster]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.lineCap = "round";
      line(context, [left - reach, top - reach], [left + reach, top + reach]);
      line(context, [left - reach, top + reach], [left + reach, top - reach]);
    }
    context.lineCap = "butt";
    context.font = `650 13px ${colours.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 3.5;
    context.lineJoin = "round";
    context.strokeStyle = colours.paper;
    context.fillStyle = colours.ink;
    context.strokeText(name, left + reach + 11, top - reach - 5);
    context.fillText(name, left + reach + 11, top - reach - 5);
  }

  function drawSelection(context, [left, top], size, hasFocus, colours) {
    context.beginPath();
    context.arc(left, top, size * 2.6, 0, 2 * Math.PI);
    context.strokeStyle = colours.paper;
    context.lineWidth = 5;
    context.stroke();
    context.strokeStyle = colours.ink;
    context.lineWidth = hasFocus ? 2.6 : 1.6;
    context.stroke();
  }

  // The nearest point within reach of a position on the canvas, clusters first, or null.
  function pointAt(canvas, points, at, reach) {
    const { toCanvas } = frame(canvas.clientWidth);
    let found = null;
    for (const kind of ["clusters", "queries", "keys"]) {
      (points[kind] || []).forEach((place, index) => {
        const [left, top] = toCanvas(place);
        const distance = Math.hypot(left - at[0], top - at[1]) + (kind === "clusters" ? 0 : 4);
        if (distance <= reach && (!found || distance < found.distance)) found = { kind, index, distance };
      });
    }
    return found && { kind: found.kind, index: found.index };
  }

  playground.plane = { draw, frame, pointAt, letter };
})();
