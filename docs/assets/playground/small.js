// The mask on the landing page, with two sliders and a button. It uses the modules of the playground.
//
// There are as many dimensions as blocks. Each block has one cluster on its own axis. Its tokens have a positive coordinate
// on this axis and negative ones on the others. The longer the clusters, the more sharply they sort the tokens. The link is
// the Poisson link.
(function () {
  "use strict";
  const { model, random, canvas } = window.sbmtPlayground;

  const N_TOKENS = 36;
  const OUT = 3; // coordinate of tokens on their own axis; on the others it is negative
  const SCATTER = 0.5;
  const RULE = { link: "poisson", law: "exact", exploration: 0 };

  const root = document.getElementById("small");
  if (!root) return;
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const field = (name) => root.querySelector(`[name="${name}"]`);
  let draw = 0;

  function points() {
    const [nBlocks, reach] = ["blocks", "reach"].map((name) => Number(field(name).value));
    const axes = Array.from({ length: nBlocks }, (_, axis) => axis);
    const blockOf = (token) => Math.floor((token * nBlocks) / N_TOKENS);
    const next = random.stream(0, 0);
    const scatter = () => SCATTER * random.normalPair(next)[0];
    return {
      queries: Array.from({ length: N_TOKENS }, (_, token) =>
        axes.map((axis) => (axis === blockOf(token) ? OUT : -OUT) + scatter()),
      ),
      keys: null,
      clusters: axes.map((own) => axes.map((axis) => (axis === own ? reach : 0))),
    };
  }

  function show() {
    const { rates, probability, expectedDensity } = model.describe(points(), RULE);
    const { mask, nEdges } = model.sampleMask(rates, RULE, random.uniforms(0, draw, N_TOKENS, N_TOKENS));
    const colours = canvas.palette(root);
    const { context, width } = canvas.surface(part("mask"));
    const cell = width / N_TOKENS;
    probability.forEach((row, i) =>
      row.forEach((p, j) => {
        const [left, top] = [Math.round(j * cell), Math.round(i * cell)];
        const size = [Math.round((j + 1) * cell) - left, Math.round((i + 1) * cell) - top];
        context.fillStyle = canvas.shade(0.35 * p, colours);
        context.fillRect(left, top, ...size);
        if (!mask[i][j]) return;
        context.fillStyle = colours.token;
        context.fillRect(left, top, size[0] - 1, size[1] - 1);
      }),
    );
    part("blocks").textContent = field("blocks").value;
    part("reach").textContent = Number(field("reach").value).toFixed(1);
    const perQuery = (nEdges / N_TOKENS).toFixed(1);
    const share = (100 * expectedDensity).toFixed(0);
    part("told").textContent = `${nEdges} edges (${perQuery} of ${N_TOKENS} keys per query). On average, ${share} % of all pairs are edges.`;
    root.dataset.edges = nEdges;
  }

  root.hidden = false;
  for (const name of ["blocks", "reach"]) field(name).addEventListener("input", show);
  part("redraw").addEventListener("click", () => {
    draw += 1;
    show();
  });
  new MutationObserver(show).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  new ResizeObserver(show).observe(part("mask"));
  show();
})();
