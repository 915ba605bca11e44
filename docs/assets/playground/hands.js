// Moves points: by mouse, pen and finger, and by keyboard.
(function () {
  "use strict";
  const playground = (window.sbmtPlayground = window.sbmtPlayground || {});
  const { plane } = playground;

  const REACH = { mouse: 16, pen: 18, touch: 28 }; // pixels around a point within which it can be grabbed
  const [SHORT, LONG] = [0.1, 0.5]; // step of an arrow key, without and with Shift
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

  const place = (canvas, event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  function listenToPointer(canvas, session, changed) {
    let drag = null;
    const reach = (kind) => REACH[kind] || REACH.mouse;
    const found = (event, kind) => plane.pointAt(canvas, session.points, place(canvas, event), reach(kind));

    // A finger on a point drags it; a finger elsewhere scrolls the page as usual.
    canvas.addEventListener("touchstart", (event) => found(event.touches[0], "touch") && event.preventDefault(), {
      passive: false,
    });
    canvas.addEventListener("pointerdown", (event) => {
      const point = event.isPrimary && event.button === 0 ? found(event, event.pointerType) : null;
      if (!point) return;
      session.selected = point;
      drag = { id: event.pointerId, from: place(canvas, event), grabbed: session.grab() };
      canvas.setPointerCapture(event.pointerId);
      canvas.dataset.dragging = "";
      changed();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) {
        canvas.style.cursor = found(event, event.pointerType) ? "grab" : "";
        return;
      }
      if (event.pointerId !== drag.id) return;
      const { unit } = plane.frame(canvas.clientWidth);
      const [left, top] = place(canvas, event);
      session.shift(drag.grabbed, [(left - drag.from[0]) / unit, (drag.from[1] - top) / unit]);
      changed();
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => {
        if (drag && event.pointerId === drag.id) drag = null;
        delete canvas.dataset.dragging;
      });
    }
  }

  function listenToKeys(canvas, session, changed) {
    const actions = {
      "[": () => session.selectNext(-1),
      "]": () => session.selectNext(1),
      PageUp: () => session.selectNext(-1),
      PageDown: () => session.selectNext(1),
      c: () => (session.selected = { kind: "clusters", index: 0 }),
      t: () => (session.selected = { kind: "queries", index: 0 }),
      r: () => session.redraw(),
    };
    for (const [name, direction] of Object.entries(ARROWS)) {
      actions[name] = ({ shiftKey }) =>
        session.shift(session.grab(), direction.map((x) => x * (shiftKey ? LONG : SHORT)));
    }
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, event.key)) return;
      event.preventDefault();
      event.stopPropagation(); // the theme has its own shortcuts
      actions[event.key](event);
      changed();
    });
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, changed);
  }

  playground.hands = { listenToPointer, listenToKeys };
})();
