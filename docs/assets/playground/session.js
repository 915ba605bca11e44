// The state of the playground and everything derived from it, independent of the page.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});
  const { model, places, random, matrices } = playground;

  const LAWS = ["exact", "algorithm1"];
  const STEP = 0.25; // how far a step moves the steepest point
  const N_TOKENS = 24;
  const START = {
    link: "bilinear",
    law: "exact",
    exploration: 0,
    causal: false,
    densityWeight: 0,
    seed: 0,
    isApart: false,
    moves: "point", // what a drag moves: one point, or its "group"
  };

  class Session {
    constructor() {
      Object.assign(this, START, { draw: 0, nTokens: N_TOKENS });
      this.place("separated");
    }

    // Places all points as in a case. Without numbers, the number of tokens stays, and the case determines the clusters.
    place(name, { nTokens = this.nTokens, nClusters = places.PLACES[name].nClusters } = {}) {
      Object.assign(this, { placed: name, isMoved: false, nTokens, nClusters });
      const { tokenGroups, clusterGroups, ...points } = places.place(name, nTokens, nClusters);
      this.groups = { queries: tokenGroups, keys: tokenGroups, clusters: clusterGroups };
      this.points = { ...points, keys: this.isApart ? places.apart(points.queries) : null };
      this.selected = { kind: "clusters", index: 0 };
      this.watched = null;
      this.watchStrongest();
    }

    // Settings that do not change the rates do not reset the running counts.
    set(changes) {
      Object.assign(this, changes);
      if ("seed" in changes) this.draw = 0;
      if (Object.keys(changes).some((name) => ["link", "exploration", "causal", "seed"].includes(name))) this.#start();
      const { query, key } = this.watched;
      if (!model.isSeen(query, key, this.model.rates, this.rule)) this.watchStrongest();
    }

    // An experiment: a case, possibly stretched from the origin, and settings; the others have their initial values.
    setUp({ place, nClusters, stretch = {}, ...settings }) {
      Object.assign(this, START, { nTokens: N_TOKENS }, settings);
      this.place(place, { nClusters });
      for (const [kind, factor] of Object.entries(stretch)) {
        this.points = { ...this.points, [kind]: this.points[kind].map((xy) => xy.map((z) => places.inside(z * factor))) };
        this.isMoved = true;
      }
      this.watchStrongest();
    }

    // Whether keys have separate positions.
    setApart(isApart) {
      this.isApart = isApart;
      this.points = { ...this.points, keys: isApart ? places.apart(this.points.queries) : null };
      if (!isApart && this.selected.kind === "keys") this.selected = { kind: "queries", index: this.selected.index };
      this.#start();
    }

    get rule() {
      return { link: this.link, law: this.law, exploration: this.exploration, causal: this.causal };
    }

    get model() {
      return this.models[this.law];
    }

    // All points, in the order in which the keyboard visits them.
    get allPoints() {
      const list = (kind) => (this.points[kind] || []).map((_, index) => ({ kind, index }));
      return [...list("clusters"), ...list("queries"), ...list("keys")];
    }

    selectNext(step) {
      const all = this.allPoints;
      const now = all.findIndex(({ kind, index }) => kind === this.selected.kind && index === this.selected.index);
      this.selected = all[(now + step + all.length) % all.length];
    }

    // The points that move with the selected one, and their positions, for "shift".
    grab() {
      const { kind, index } = this.selected;
      const groups = this.groups[kind];
      const isMember = (i) => (this.moves === "group" ? groups[i] === groups[index] : i === index);
      const members = this.points[kind].map((place, i) => ({ i, place })).filter(({ i }) => isMember(i));
      return { kind, members };
    }

    // Moves the grabbed points by one vector, shortened if a point would leave the plane.
    shift({ kind, members }, vector) {
      const allowed = vector.map((amount, axis) => {
        const along = members.map(({ place }) => place[axis]);
        const [low, high] = [-places.LIMIT - Math.min(...along), places.LIMIT - Math.max(...along)];
        return Math.max(low, Math.min(high, amount));
      });
      const next = this.points[kind].slice();
      for (const { i, place } of members) next[i] = place.map((x, axis) => x + allowed[axis]);
      this.points = { ...this.points, [kind]: next };
      this.isMoved = true;
      this.#start();
    }

    watch(query, key) {
      this.watched = { query, key };
      this.#start();
    }

    // The pair with the highest rate, excluding pairs of a token with itself if possible.
    watchStrongest() {
      this.#start();
      const { rates } = this.model;
      const isSelf = (i, j) => !this.points.keys && rates.length > 1 && i === j;
      let best = null;
      rates.forEach((row, query) =>
        row.forEach((rate, key) => {
          const isPair = model.isSeen(query, key, rates, this.rule) && !isSelf(query, key);
          if (isPair && (!best || rate > best.rate)) best = { query, key, rate };
        }),
      );
      this.watch(best.query, best.key);
    }

    redraw() {
      this.draw += 1;
      this.#throw();
    }

    // A step down the gradient of the expected density; false if it cannot fall any further.
    step() {
      const next = model.descend(this.points, this.rule, STEP, places.inside);
      if (!next) return false;
      this.points = next;
      this.isMoved = true;
      this.#start();
      return true;
    }

    get slope() {
      return model.gradient(this.points, this.rule);
    }

    // Edges of this draw by kind: drawn, drawn through exploration only, lost by Algorithm 1.
    get kinds() {
      const { KINDS } = matrices;
      const without = { ...this.rule, exploration: 0 };
      const exact = { ...this.rule, law: "exact" };
      const { rates } = this.model;
      return this.sample.mask.map((row, i) =>
        row.map((isEdge, j) => {
          const coin = this.coins[i][j];
          if (isEdge) return coin < model.edgeProbability(rates[i][j], without) ? KINDS.edge : KINDS.explored;
          const isLost = model.isSeen(i, j, rates, exact) && coin < model.edgeProbability(rates[i][j], exact);
          return isLost ? KINDS.lost : KINDS.none;
        }),
      );
    }

    get sample() {
      return this.samples[this.law];
    }

    get nPairs() {
      return this.model.nPairs;
    }

    get nDraws() {
      return this.tally.exact.frequencies.length;
    }

    get meanDensity() {
      return this.tally[this.law].densities / this.nDraws;
    }

    // Updates rates, both laws and counts. Random numbers stay, so that the mask does not flicker during a drag.
    #start() {
      const of = (law) => model.describe(this.points, { ...this.rule, law });
      this.models = Object.fromEntries(LAWS.map((law) => [law, of(law)]));
      this.tally = Object.fromEntries(LAWS.map((law) => [law, { hits: 0, densities: 0, frequencies: [] }]));
      this.#throw();
    }

    // One draw under both laws, with the same random numbers.
    #throw() {
      const { rates } = this.model;
      this.coins = random.uniforms(this.seed, this.draw, rates.length, rates[0].length);
      this.samples = {};
      for (const law of LAWS) {
        const drawn = (this.samples[law] = model.sampleMask(rates, { ...this.rule, law }, this.coins));
        const tally = this.tally[law];
        if (this.watched) tally.hits += Number(drawn.mask[this.watched.query][this.watched.key]);
        tally.densities += drawn.nEdges / this.nPairs;
        tally.frequencies.push(tally.hits / (tally.frequencies.length + 1));
      }
    }
  }

  playground.Session = Session;
})();
