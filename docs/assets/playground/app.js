// Connects a session to the page: controls change the session, and the page shows it.
(function () {
  "use strict";
  const playground = window.sbmtPlayground;
  const { plane, matrices, chart, canvas, model, hands, readout } = playground;

  const FIRST_DRAWS = 40; // so that the page shows numbers before any control is used
  const MANY_DRAWS = 100;
  const MANY_STEPS = 20;
  const FRAMES_A_STEP = 4; // of the animation of gradient steps
  const SAID_AFTER = 600; // milliseconds without a change before the summary is announced

  const root = document.getElementById("pg");
  if (!root || root.dataset.ready !== undefined) return;
  const session = new playground.Session();
  const { show: showText, write, part, field } = readout.create(root);
  let colours = canvas.palette(root);

  // --- showing ---

  function show() {
    const slope = session.densityWeight > 0 ? session.slope : null;
    const steepest = slope && model.steepness(slope);
    const { points, selected, watched, tally, models } = session;
    const hasFocus = document.activeElement === part("plane");
    const scene = { points, selected, watched, slope, steepest, hasFocus, model: session.model, kinds: session.kinds };
    plane.draw(part("plane"), { ...scene, mask: session.sample.mask }, colours);
    matrices.drawProbabilities(part("probabilities"), scene, colours);
    matrices.drawMask(part("mask"), scene, colours);
    const lines = Object.keys(tally).map((law) => ({
      law,
      frequencies: tally[law].frequencies,
      probability: models[law].probability[watched.query][watched.key],
    }));
    chart.draw(part("chart"), lines, colours);
    showText(session, steepest);
    sayLater();
  }

  let saying;
  function sayLater() {
    clearTimeout(saying);
    saying = setTimeout(() => write("summary", readout.summary(session)), SAID_AFTER);
  }

  let isDue = false;
  function changed() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      show();
    });
  }

  // Repeats an action every few frames, or all at once if reduced motion is preferred. False ends it early.
  const isCalm = window.matchMedia("(prefers-reduced-motion: reduce)");
  let playing = 0;
  function play(times, framesEach, action) {
    const mine = ++playing;
    if (isCalm.matches) {
      for (let i = 0; i < times && action() !== false; i++);
      changed();
      return;
    }
    let [frame, left] = [0, times];
    const next = () => {
      if (mine !== playing || left === 0) return;
      if (frame++ % framesEach === 0) {
        left = action() === false ? 0 : left - 1;
        show();
      }
      requestAnimationFrame(next);
    };
    next();
  }

  // --- pressing ---

  // Every control ends a running animation and updates the page.
  const then = (action) => (event) => {
    playing += 1;
    action(event);
    changed();
  };
  const press = (button, action) => button.addEventListener("click", then(() => action(button)));
  const listen = (names, event, action) => {
    for (const name of names) {
      const nodes = root.querySelectorAll(`[name="${name}"]`);
      for (const node of nodes) node.addEventListener(event, then(() => action(node)));
    }
  };
  const isNumber = (input) => input.value !== "" && input.validity.valid;

  function listenToSettings() {
    const places = root.querySelectorAll("[data-place]");
    for (const button of places) press(button, () => session.place(button.dataset.place));
    listen(["law", "link", "moves"], "change", (radio) => session.set({ [radio.name]: radio.value }));
    listen(["apart"], "change", (box) => session.setApart(box.checked));
    listen(["causal"], "change", (box) => session.set({ causal: box.checked }));
    listen(["tokens", "clusters"], "input", () => {
      const [nTokens, nClusters] = ["tokens", "clusters"].map((name) => Number(field(name).value));
      session.place(session.placed, { nTokens, nClusters });
    });
    listen(["exploration"], "input", ({ value }) => session.set({ exploration: readout.EXPLORATIONS[value] }));
    listen(["density-weight"], "change", ({ value }) => session.set({ densityWeight: Number(value) }));
    listen(["seed"], "input", (input) => isNumber(input) && session.set({ seed: Number(input.value) }));
    listen(["cost-at"], "change", () => {});
  }

  function listenToPoints() {
    hands.listenToPointer(part("plane"), session, then(() => {}));
    hands.listenToKeys(part("plane"), session, then(() => {}));
    listen(["selected"], "change", (select) => (session.selected = session.allPoints[select.selectedIndex]));
    listen(["x", "y"], "input", (input) => {
      if (!isNumber(input)) return;
      const here = session.points[session.selected.kind][session.selected.index];
      const axis = Number(input.name === "y");
      session.shift(session.grab(), [0, 1].map((i) => (i === axis ? Number(input.value) - here[i] : 0)));
    });
  }

  function listenToDraws() {
    press(part("redraw"), () => session.redraw());
    press(part("redraws"), () => play(MANY_DRAWS, 1, () => session.redraw()));
    press(part("step"), () => session.step());
    press(part("steps"), () => play(MANY_STEPS, FRAMES_A_STEP, () => session.step()));
    press(part("strongest"), () => session.watchStrongest());
    listen(["watch-query", "watch-key"], "input", () => {
      const inputs = ["watch-query", "watch-key"].map(field);
      if (inputs.every(isNumber)) session.watch(...inputs.map(({ value }) => value - 1));
    });
    for (const square of [part("probabilities"), part("mask")]) {
      const pairAt = (event) => matrices.pairAt(square, session.model, [event.offsetX, event.offsetY]);
      square.addEventListener("pointermove", (event) => {
        const pair = pairAt(event);
        square.style.cursor = pair ? "pointer" : "";
        write("cell", readout.pairText(pair || session.watched, session));
      });
      square.addEventListener("pointerleave", () => write("cell", readout.pairText(session.watched, session)));
      const watch = (pair) => pair && session.watch(pair.query, pair.key);
      square.addEventListener("click", then((event) => watch(pairAt(event))));
    }
  }

  // The buttons of the experiments are further down and do not exist yet.
  function listenToExperiments() {
    const setUp = then((button) => {
      session.setUp(JSON.parse(button.dataset.setup));
      window.scrollTo({ top: 0, behavior: isCalm.matches ? "auto" : "smooth" });
      part("plane").focus({ preventScroll: true });
    });
    root.parentElement.addEventListener("click", ({ target }) => {
      const button = target.closest("[data-setup]");
      if (button) setUp(button);
    });
  }

  // Colours depend on the theme, sizes on the window. Prints are light.
  function follow() {
    const recolour = () => (colours = canvas.palette(root));
    new MutationObserver(then(recolour)).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
    new ResizeObserver(changed).observe(root);
    for (const [event, isOnPaper] of [["beforeprint", true], ["afterprint", false]]) {
      window.addEventListener(event, () => {
        root.toggleAttribute("data-paper", isOnPaper);
        recolour();
        show();
      });
    }
  }

  root.dataset.ready = "";
  root.hidden = false;
  document.getElementById("pg-still").hidden = true;
  listenToSettings();
  listenToPoints();
  listenToDraws();
  listenToExperiments();
  follow();
  for (let i = 1; i < FIRST_DRAWS; i++) session.redraw();
  show();
  write("summary", readout.summary(session));
  playground.session = session;
})();
