// Texts that are hard to read, as [how many were looked at, one line for each pair of colours below the bound].
// The bound is that of WCAG 2.2, level AA: a ratio of 4.5, and of 3 for large text.
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map(), behind = new Map(), faded = new Map(), poor = new Map(), seen = new Set();

  const parse = (colour) => { // by painting it: any syntax will do
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [red, green, blue, alpha / 255]);
    }
    return known.get(colour);
  };
  const over = (top, bottom, opacity = 1) => {
    const alpha = top[3] * opacity;
    return [0, 1, 2].map((i) => alpha * top[i] + (1 - alpha) * bottom[i]).concat(1);
  };
  const background = (node) => {
    if (!node) return [255, 255, 255, 1];
    if (!behind.has(node)) {
      behind.set(node, over(parse(getComputedStyle(node).backgroundColor), background(node.parentElement)));
    }
    return behind.get(node);
  };
  const opacity = (node) => {
    if (!node) return 1;
    if (!faded.has(node)) faded.set(node, getComputedStyle(node).opacity * opacity(node.parentElement));
    return faded.get(node);
  };
  const luminance = (colour) => {
    const [red, green, blue] = colour.map((x) => (x / 255 <= 0.03928 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };

  const unread = "script, style, annotation, [aria-hidden=true], .headerlink, details:not([open]) > :not(summary)";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, (node) => {
    if (node.nodeType === Node.TEXT_NODE) return NodeFilter.FILTER_ACCEPT;
    return node.matches(unread) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_SKIP;
  });
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || seen.has(node)) continue;
    seen.add(node);
    if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(node), isDrawn = node.namespaceURI.endsWith("svg");
    const paper = background(node);
    const ink = over(parse(isDrawn ? style.fill : style.color), paper, opacity(node));
    const [light, dark] = [luminance(ink), luminance(paper)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (light + 0.05) / (dark + 0.05);
    const pair = `${ink.slice(0, 3).map(Math.round)} on ${paper.slice(0, 3).map(Math.round)}`;
    if (ratio < (isLarge ? 3 : 4.5) && !poor.has(pair)) {
      poor.set(pair, `${pair}: ${ratio.toFixed(2)}, ${node.tagName} ${node.getAttribute("class")} "${text.slice(0, 40)}"`);
    }
  }
  return [seen.size, [...poor.values()]];
}
