// Plots how often the watched pair has been drawn so far under both laws, with the probability under each law.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});
  const { surface } = playground.canvas;

  const LEFT = 34;
  const RIGHT = 10;
  const TOP = 8;
  const BOTTOM = 20;
  const COLOURS = { exact: "token", algorithm1: "lost" };

  // "lines" are { law, probability, frequencies }.
  function draw(canvas, lines, colours) {
    const { context, width, height } = surface(canvas);
    const nDraws = lines[0].frequencies.length;
    const last = Math.max(20, nDraws);
    const x = (draw) => LEFT + ((width - LEFT - RIGHT) * (draw - 1)) / (last - 1);
    const y = (share) => height - BOTTOM - (height - TOP - BOTTOM) * share;
    drawAxes(context, { x, y, last, width }, colours);
    for (const { law, probability, frequencies } of lines) {
      context.strokeStyle = context.fillStyle = colours[COLOURS[law]];
      context.lineWidth = 1.4;
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(LEFT, y(probability));
      context.lineTo(width - RIGHT, y(probability));
      context.stroke();
      context.setLineDash([]);
      context.lineWidth = 2.4;
      context.beginPath();
      frequencies.forEach((share, i) => context.lineTo(x(i + 1), y(share)));
      context.stroke();
      context.beginPath();
      context.arc(x(nDraws), y(frequencies[nDraws - 1]), 3.6, 0, 2 * Math.PI);
      context.fill();
    }
  }

  function drawAxes(context, { x, y, last, width }, colours) {
    context.font = `11px ${colours.font}`;
    context.fillStyle = colours.quiet;
    context.strokeStyle = colours.faint;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const level = Math.round(y(share)) + 0.5;
      context.beginPath();
      context.moveTo(LEFT, level);
      context.lineTo(width - RIGHT, level);
      context.stroke();
      context.fillText(`${100 * share}%`, LEFT - 6, level);
    }
    context.textBaseline = "alphabetic";
    for (const [draw, align] of [[1, "left"], [last, "right"]]) {
      context.textAlign = align;
      context.fillText(`draw ${draw}`, x(draw), y(0) + 16);
    }
  }

  playground.chart = { draw };
})();
