// Typesets the maths of Markdown pages (.arithmatex) and of notebooks, whose delimiters are still in the text. A full stop
// or another sign after a short formula stays on its line; otherwise browsers could break the line between the two.
document.addEventListener("DOMContentLoaded", () => {
  const delimiters = [
    { left: "$$", right: "$$", display: true },
    { left: "\\[", right: "\\]", display: true },
    { left: "\\(", right: "\\)", display: false },
  ];
  const inline = [...delimiters, { left: "$", right: "$", display: false }];
  const render = (selector, options) =>
    document.querySelectorAll(selector).forEach((node) => renderMathInElement(node, { throwOnError: false, ...options }));
  render(".arithmatex", { delimiters });
  render(".jp-RenderedMarkdown, .jp-RenderedLatex", { delimiters: inline });

  for (const formula of document.querySelectorAll(".katex")) {
    const maths = formula.closest(".arithmatex") ?? formula;
    const sign = maths.nextSibling?.nodeType === Node.TEXT_NODE && /^[.,;:?!)]+/.exec(maths.nextSibling.data)?.[0];
    if (!sign || formula.querySelectorAll(".base").length > 1) continue;
    const together = document.createElement("span");
    together.style.whiteSpace = "nowrap";
    maths.nextSibling.data = maths.nextSibling.data.slice(sign.length);
    maths.replaceWith(together);
    together.append(maths, sign);
  }
});
