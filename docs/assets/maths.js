// Typesets the maths of Markdown pages (.arithmatex) and of notebooks, whose delimiters are still in the text.
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
});
