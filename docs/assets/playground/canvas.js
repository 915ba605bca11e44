// Shared by all drawings: a sharp canvas, the page's colours, and the colour of a probability.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});

  const NAMES = ["ink", "quiet", "faint", "paper", "token", "key", "cluster", "explored", "lost"];

  // The style sheet defines the colours of the light and the dark theme.
  function palette(root) {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(`--pg-${name}`).trim();
    const colours = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
    colours.font = style.fontFamily;
    colours.scale = read("scale").split(/\s+/).map(parseHex); // from probability 0 to 1, in equal steps
    return colours;
  }

  const parseHex = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));

  function shade(value, { scale }) {
    const place = Math.max(0, Math.min(1, value)) * (scale.length - 1);
    const step = Math.min(Math.floor(place), scale.length - 2);
    const mixed = scale[step].map((x, i) => Math.round(x + (place - step) * (scale[step + 1][i] - x)));
    return `rgb(${mixed.join(" ")})`;
  }

  // Clears a canvas at the screen's own resolution. Returns its context, and width and height in CSS pixels.
  function surface(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const [nColumns, nRows] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== nColumns || canvas.height !== nRows) Object.assign(canvas, { width: nColumns, height: nRows });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return { context, width, height };
  }

  playground.canvas = { palette, shade, surface };
})();
