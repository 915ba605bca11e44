// Writes the numbers, text and settings of a session into the page.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});
  const { plane, cost, model } = playground;

  const D_HEAD = 32; // for the cost; the plane itself has two dimensions
  const N_CLUSTERS = 128; // for the cost at sizes other than the one drawn
  const EXPLORATIONS = [0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]; // positions of the slider
  const LAWS = ["exact", "algorithm1"];
  const LINKS = { bilinear: "bilinear", poisson: "Poisson" };

  const fixed = (x, digits = 3) => x.toFixed(digits);
  const whole = (x) => Math.round(x).toLocaleString("en-GB");
  const percent = (x) => `${(100 * x).toFixed(1)} %`;
  const raised = (power) => String(power).replace(/./g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign]));
  function scientific(x) {
    const [digits, power] = x.toExponential(1).split("e");
    return x === 0 ? "0" : `${digits} × 10${raised(Number(power))}`;
  }

  function pointName({ kind, index }, { points }) {
    const token = points.keys ? { queries: "query", keys: "key" }[kind] : "token";
    return kind === "clusters" ? `cluster ${plane.letter(index)}` : `${token} ${index + 1}`;
  }

  const pairText = ({ query, key }, session) =>
    `query ${query + 1} → key ${key + 1}: ${fixed(session.model.probability[query][key])}`;

  // The state in words: the points, the position of the selected one, and the resulting mask.
  function summary(session) {
    const { points, selected, placed, isMoved, nTokens, nClusters, nPairs, sample } = session;
    const name = pointName(selected, session);
    const [x, y] = points[selected.kind][selected.index].map((z) => fixed(z, 1));
    const mean = fixed(session.model.expectedDensity * nPairs, 1);
    const causal = session.causal ? " and a causal mask" : "";
    return [
      `${placed[0].toUpperCase()}${placed.slice(1)}${isMoved ? ", then moved" : ""}:`,
      `${nTokens} tokens and ${nClusters} ${nClusters === 1 ? "cluster" : "clusters"}.`,
      `${name[0].toUpperCase()}${name.slice(1)} is at x = ${x}, y = ${y}.`,
      `Under ${session.law === "exact" ? "the exact law" : "Algorithm 1"} with the ${LINKS[session.link]} link${causal},`,
      `${mean} of ${whole(nPairs)} pairs are edges on average; this draw has ${whole(sample.nEdges)}.`,
    ].join(" ");
  }

  // For the elements inside "root": parts are found by data-part, fields by name.
  function create(root) {
    const part = (name) => root.querySelector(`[data-part="${name}"]`);
    const field = (name) => root.querySelector(`[name="${name}"]`);
    const write = (name, text) => {
      const node = part(name);
      if (node.textContent !== text) node.textContent = text;
    };
    const fill = (name, value) => {
      if (document.activeElement !== field(name)) field(name).value = value; // do not overwrite a field that is being edited
    };

    function showNumbers(session, steepest) {
      const { nPairs, sample, nDraws, densityWeight, law, link } = session;
      const { expectedDensity } = session.model;
      const isMultigraph = law === "algorithm1" && link === "bilinear";
      const draws = `${whole(model.sumCells(sample.counts))} draws of ${whole(sample.nEdges)} pairs`;
      write("expected", fixed(expectedDensity));
      write("expected-edges", `${fixed(expectedDensity * nPairs, 1)} of ${whole(nPairs)} pairs`);
      write("drawn", fixed(sample.nEdges / nPairs));
      write("drawn-edges", isMultigraph ? draws : `${whole(sample.nEdges)} edges`);
      write("mean", fixed(session.meanDensity));
      write("mean-of", `of ${whole(nDraws)} ${nDraws === 1 ? "draw" : "draws"}`);
      write("price", densityWeight ? scientific(densityWeight * expectedDensity) : "0");
      write("price-of", densityWeight ? `steepest slope ${scientific(densityWeight * steepest)}` : "no penalty");
      write("draw-number", `draw ${session.draw + 1}`);
      write("cell", pairText(session.watched, session));
      part("legend-field").hidden = session.selected.kind !== "clusters";
      part("legend-readings").hidden = session.selected.kind === "clusters";
      part("legend-key").hidden = !session.points.keys;
      part("legend-arrow").hidden = densityWeight === 0;
      part("legend-explored").hidden = session.exploration === 0;
      part("legend-lost").hidden = !isMultigraph;
    }

    function showWatched(session) {
      const { watched, nDraws, nTokens } = session;
      for (const name of ["query", "key"]) {
        field(`watch-${name}`).max = nTokens;
        fill(`watch-${name}`, watched[name] + 1);
      }
      for (const law of LAWS) {
        const { hits } = session.tally[law];
        write(`says-${law}`, percent(session.models[law].probability[watched.query][watched.key]));
        write(`found-${law}`, percent(hits / nDraws));
        write(`hits-${law}`, `${whole(hits)} of ${whole(nDraws)}`);
      }
      root.dataset.frequency = session.tally[session.law].hits / nDraws;
      root.dataset.draws = nDraws;
    }

    function showCost(session) {
      const at = field("cost-at").value;
      const isDrawn = at === "drawn";
      const [n, k] = isDrawn ? [session.nTokens, session.nClusters] : [Number(at), N_CLUSTERS];
      const share = session.causal ? (n + 1) / (2 * n) : 1; // of all pairs
      const m = Math.round(session.model.expectedDensity * n * n * share);
      const parts = cost.sbmAttention({ n, k, d: D_HEAD, m }, session.rule);
      const full = cost.fullAttention(n, D_HEAD) * share;
      const ratio = cost.total(parts) / full;
      const widest = Math.max(1, ratio);
      part("bar-full").style.width = `${100 / widest}%`;
      for (const [name, flops] of Object.entries(parts)) {
        part(`bar-${name}`).style.width = `${(100 * flops) / full / widest}%`;
        write(`cost-${name}`, percent(flops / full));
      }
      write("cost-total", percent(ratio));
      write("cost-of", `of full attention, ${whole(n)} tokens`);
      write("cost-sizes", `n = ${whole(n)}, k = ${k}, d = ${D_HEAD}, m = ${whole(m)} edges`);
      root.dataset.flops = cost.total(parts);
    }

    function showSettings(session) {
      for (const button of root.querySelectorAll("[data-place]")) {
        const isPlaced = button.dataset.place === session.placed && !session.isMoved;
        button.setAttribute("aria-pressed", String(isPlaced));
      }
      for (const name of ["law", "link", "moves"]) {
        for (const radio of root.querySelectorAll(`[name="${name}"]`)) radio.checked = radio.value === session[name];
      }
      for (const [name, value] of [["tokens", session.nTokens], ["clusters", session.nClusters]]) {
        field(name).value = value;
        write(name, String(value));
      }
      field("apart").checked = session.isApart;
      field("causal").checked = session.causal;
      field("exploration").value = EXPLORATIONS.indexOf(session.exploration);
      field("exploration").setAttribute("aria-valuetext", String(session.exploration));
      write("exploration", String(session.exploration));
      field("density-weight").value = String(session.densityWeight);
      fill("seed", session.seed);
      for (const name of ["step", "steps"]) part(name).disabled = session.densityWeight === 0;
    }

    function showSelected(session) {
      const select = field("selected");
      const names = session.allPoints.map((point) => pointName(point, session));
      if ([...select.options].map((option) => option.text).join() !== names.join()) {
        select.replaceChildren(...names.map((name) => new Option(name, name)));
      }
      select.value = pointName(session.selected, session);
      const place = session.points[session.selected.kind][session.selected.index];
      ["x", "y"].forEach((axis, i) => fill(axis, fixed(place[i], 2)));
    }

    function show(session, steepest) {
      showNumbers(session, steepest);
      showWatched(session);
      showCost(session);
      showSettings(session);
      showSelected(session);
    }

    return { show, write, part, field };
  }

  playground.readout = { create, summary, pairText, EXPLORATIONS };
})();
