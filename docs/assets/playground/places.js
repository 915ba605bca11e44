// Initial positions of tokens and clusters: the three cases of the paper's Figure 3, and two more.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});

  const LIMIT = 5; // the plane reaches from −5 to 5
  const SCATTER = 0.35; // standard deviation of tokens around their group's centre
  const ROOM = 0.5; // between neighbouring clusters of a group
  const FAR_SEED = 2 ** 52; // seed of the scatter, not used for drawing edges

  const inside = (x) => Math.max(-LIMIT, Math.min(LIMIT, x));
  const polar = (radius, angle) => [radius * Math.cos(angle), radius * Math.sin(angle)];
  const diagonal = Math.PI / 4;
  const star = [0, 1, 2].map((i) => Math.PI / 2 + (2 * Math.PI * i) / 3);

  // For each group: the centre of its tokens, and the radius and direction of its clusters.
  const PLACES = {
    collapsed: { nClusters: 3, groups: [{ tokens: [2.2, 2.2], radius: Math.hypot(2.2, 2.2), angle: diagonal }] },
    separated: {
      nClusters: 3,
      groups: star.map((angle) => ({ tokens: polar(3.5, angle), radius: 3.5, angle })),
    },
    distant: {
      nClusters: 3,
      groups: [{ tokens: [1.1, 1.1], radius: Math.hypot(1.1, 1.1), angle: diagonal + Math.PI }],
    },
    fresh: { nClusters: 3, groups: [{ tokens: [0, 0], radius: 0.3, angle: 0 }] },
    certain: { nClusters: 1, groups: [{ tokens: [3, 3], radius: Math.hypot(3, 3), angle: diagonal }] },
  };

  // Clusters of a group lie on an arc around the origin; equal lengths give them equal weights in S.
  function arc(group, index, size) {
    const step = Math.min(ROOM / group.radius, (2 * Math.PI) / size);
    return polar(group.radius, group.angle + step * (index - (size - 1) / 2));
  }

  function scatterer(which) {
    const next = playground.random.stream(FAR_SEED, which);
    return ([x, y]) => {
      const [dx, dy] = playground.random.normalPair(next);
      return [inside(x + SCATTER * dx), inside(y + SCATTER * dy)];
    };
  }

  function place(name, nTokens, nClusters) {
    const { groups } = PLACES[name];
    const scatter = scatterer(0);
    const groupOf = (i, n) => Math.floor((i * groups.length) / n);
    const tokenGroups = Array.from({ length: nTokens }, (_, i) => groupOf(i, nTokens));
    const clusterGroups = Array.from({ length: nClusters }, (_, i) => groupOf(i, nClusters));
    const inGroup = (group) => clusterGroups.filter((g) => g === group).length;
    return {
      queries: tokenGroups.map((group) => scatter(groups[group].tokens)),
      keys: null,
      clusters: clusterGroups.map((g, i) => arc(groups[g], i - clusterGroups.indexOf(g), inGroup(g))),
      tokenGroups,
      clusterGroups,
    };
  }

  // Separate positions for keys, next to those of their queries.
  const apart = (queries) => queries.map(scatterer(1));

  playground.places = { PLACES, LIMIT, inside, place, apart };
})();
