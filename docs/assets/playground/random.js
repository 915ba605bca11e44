// Reproducible random numbers: the same seed and draw number give the same numbers in every browser.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});

  // Doty-Humphrey's "small fast counter" generator, 32 bits wide. The draw number is part of its first state.
  function stream(seed, draw) {
    let a = seed | 0;
    let b = Math.floor(seed / 2 ** 32) | 0;
    let c = draw | 0;
    let counter = 1;
    const word = () => {
      const out = (a + b + counter) | 0;
      counter = (counter + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = (((c << 21) | (c >>> 11)) + out) | 0;
      return out >>> 0;
    };
    for (let round = 0; round < 20; round++) word(); // so that similar seeds give different numbers
    return () => ((word() >>> 5) * 2 ** 26 + (word() >>> 6)) / 2 ** 53; // 53 bits in [0, 1)
  }

  // n_rows × n_columns uniform numbers.
  function uniforms(seed, draw, nRows, nColumns) {
    const next = stream(seed, draw);
    return Array.from({ length: nRows }, () => Array.from({ length: nColumns }, next));
  }

  // Box and Muller's pairs of normal numbers.
  function normalPair(next) {
    const radius = Math.sqrt(-2 * Math.log(1 - next()));
    const angle = 2 * Math.PI * next();
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  }

  playground.random = { stream, uniforms, normalPair };
})();
