"""What the tests of the playground share: ways to press and to read."""

from types import SimpleNamespace

STATE = """() => {
    const { session } = window.sbmtPlayground;
    const { points, model, sample, tally, law, nDraws, selected, placed, isMoved } = session;
    const within = [], across = [];
    const group = session.groups.queries;
    model.probability.forEach((row, i) => row.forEach((p, j) =>
        (group[i] === group[j] ? within : across).push(p)));
    const mean = (x) => x.reduce((a, b) => a + b, 0) / x.length;
    return { points, density: model.expectedDensity, edges: sample.nEdges, nDraws, selected, placed, isMoved,
        frequency: tally[law].hits / nDraws, within: mean(within), across: mean(across),
        kinds: session.kinds.flat() };
}"""
STILL = """async () => {
    await document.fonts.ready;
    const height = () => document.documentElement.scrollHeight;
    for (let before = height(), frames = 0; frames < 5; frames += 1) {
        await new Promise(requestAnimationFrame);
        if (height() !== before) [before, frames] = [height(), 0];
    }
}"""
"""Waits until letters have come and nothing moves any more."""
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def state(page):
    """What the session holds, once the page shows it too."""
    page.evaluate(FRAME)
    return SimpleNamespace(**page.evaluate(STATE))


def text(page, part):
    page.evaluate(FRAME)
    return page.locator(f"[data-part={part}]").inner_text()


def picture(page, part):
    page.evaluate(FRAME)
    return page.evaluate(f"document.querySelector('[data-part={part}]').toDataURL()")


def colours(page, part):
    """How many different colours a canvas shows."""
    page.evaluate(FRAME)
    return page.evaluate(
        """(part) => {
            const canvas = document.querySelector(`[data-part=${part}]`);
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }""",
        part,
    )


def on_screen(page, place):
    """Where a place of the plane lies in the window."""
    return page.evaluate(
        """(place) => {
            const canvas = document.querySelector("[data-part=plane]");
            const box = canvas.getBoundingClientRect();
            const [left, top] = window.sbmtPlayground.plane.frame(canvas.clientWidth).toCanvas(place);
            return [box.left + left, box.top + top];
        }""",
        place,
    )


def set_up(page, index):
    page.locator("[data-setup]").nth(index).click()
    return state(page)


def choose(page, name, value):
    page.locator(f"[name={name}][value={value}]").check()


def slide(page, name, value):
    page.locator(f"[name={name}]").fill(str(value))
