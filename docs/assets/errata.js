// Lets the reader choose a group of errata; without this script all of them are shown. The choice is stored in the
// address (errata.html#show=proof), so that it can be linked to and survives a reload.
document.addEventListener("DOMContentLoaded", () => {
  const bar = document.getElementById("errata-filter");
  const groups = [...document.querySelectorAll("section[data-group]")];
  if (!bar || !groups.length) return;

  const size = (group) => group.querySelectorAll(group.querySelector("h3") ? "h3" : "tbody tr").length;
  const total = groups.map(size).reduce((sum, n) => sum + n, 0);
  const state = document.createElement("p");
  state.setAttribute("role", "status");

  const show = (name) => {
    const isKnown = groups.some((group) => group.dataset.group === name);
    for (const group of groups) {
      group.hidden = isKnown && group.dataset.group !== name;
      for (const { id } of group.querySelectorAll(":is(h2, h3)[id]")) {
        for (const link of document.querySelectorAll(`.md-nav--secondary a[href$="#${CSS.escape(id)}"]`)) {
          link.closest("li").hidden = group.hidden;
        }
      }
    }
    for (const button of bar.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.value === (isKnown ? name : "all")));
    }
    const n = groups.filter((group) => !group.hidden).map(size).reduce((sum, one) => sum + one, 0);
    state.textContent = n === total ? `All ${total} entries are shown.` : `${n} of ${total} entries are shown.`;
  };

  // The address selects a group ("show=…") or an entry, which must then be visible.
  const follow = () => {
    const asked = decodeURIComponent(location.hash.slice(1));
    if (asked.startsWith("show=")) return show(asked.slice("show=".length));
    const target = asked && document.getElementById(asked);
    if (!target) return show("all");
    if (target.closest("section[data-group][hidden]")) {
      show("all");
      target.scrollIntoView();
    }
  };

  const buttons = document.createElement("div");
  buttons.setAttribute("role", "group");
  buttons.setAttribute("aria-label", "Which entries to show");
  const add = (value, label, n) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", value, textContent: `${label} ` });
    button.append(Object.assign(document.createElement("span"), { textContent: n }));
    button.addEventListener("click", () => {
      history.replaceState(null, "", value === "all" ? location.pathname + location.search : `#show=${value}`);
      show(value);
    });
    buttons.append(button);
  };
  add("all", "All", total);
  for (const group of groups) add(group.dataset.group, group.dataset.label, size(group));
  bar.append(buttons, state);

  show("all");
  follow();
  addEventListener("hashchange", follow);
});
