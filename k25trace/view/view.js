"use strict";
// The viewer's own script: which tab, which look, which view, and what is hidden. It says so to the stores of the page;
// the program answers with what they ask for. Here a key or a click is never late: the program may be.
(() => {
  const root = document.documentElement;
  const by = (id) => document.getElementById(id);
  const say = (id, properties) => window.dash_clientside.set_props(id, properties);

  // ---- look: the theme of the system until the reader chooses one

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 600px)");
  let chosen = null;
  function look() {
    root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    return { theme: root.dataset.theme, narrow: narrow.matches };
  }
  look();
  for (const media of [dark, narrow]) media.addEventListener("change", () => say("look", { data: look() }));

  // ---- tabs

  const tabs = () => [...document.querySelectorAll("[role=tab]")];
  function choose(tab) {
    for (const each of tabs()) say(each.id, { "aria-selected": String(each === tab), tabIndex: each === tab ? 0 : -1 });
    say("content", { "aria-labelledby": tab.id });
    say("tab", { data: tab.dataset.tab });
    tab.focus();
  }

  // ---- view of the timeline

  let whole = null;
  let view = null;
  let count = 0; // asked for again, a view is drawn again: Plotly may have moved away from it meanwhile
  function known() {
    if (whole) return;
    const { start, end } = by("viewer").dataset;
    whole = [Number(start), Number(end)];
    view = [...whole];
  }
  function go(start, end) {
    const width = Math.min(Math.max(end - start, 20), whole[1] - whole[0]);
    const middle = start + (end - start - width) / 2;
    const from = Math.min(Math.max(middle, whole[0]), whole[1] - width);
    view = [from, from + width];
    say("view", { data: { start: view[0], end: view[1], count: ++count } });
  }
  function zoom(factor) {
    const [middle, half] = [(view[0] + view[1]) / 2, (factor * (view[1] - view[0])) / 2];
    go(middle - half, middle + half);
  }
  function pan(part) {
    const by = part * (view[1] - view[0]);
    go(view[0] + by, view[1] + by);
  }
  const acts = { whole: () => go(...whole), "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), left: () => pan(-0.25), right: () => pan(0.25) };
  const keys = {
    ArrowLeft: "left", ArrowRight: "right", ArrowUp: "zoom-in", ArrowDown: "zoom-out", a: "left", d: "right", w: "zoom-in", s: "zoom-out",
    "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", 0: "whole", Home: "whole",
  };

  // ---- legend

  const hidden = new Set();
  function hide() {
    for (const button of document.querySelectorAll("[data-part]")) say(button.id, { "aria-pressed": String(!hidden.has(Number(button.dataset.part))) });
    say("hidden", { data: [...hidden] });
  }
  function press(part) {
    if (!hidden.delete(part)) hidden.add(part);
    hide();
  }
  function pressAll() {
    const parts = [...document.querySelectorAll("[data-part]")].map((button) => Number(button.dataset.part));
    const none = hidden.size > 0;
    hidden.clear();
    if (!none) for (const part of parts) hidden.add(part);
    hide();
  }

  // ---- clicks and keys

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button");
    if (!button) return;
    if (button.dataset.tab) choose(button);
    else if (button.dataset.part) press(Number(button.dataset.part));
    else if (button.id === "all") pressAll();
    else if (acts[button.id]) {
      known();
      acts[button.id]();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const at = document.activeElement;
    if (at?.dataset.tab) {
      const every = tabs();
      const here = every.indexOf(at);
      const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: every.length - 1 }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        choose(every[(to + every.length) % every.length]);
        return;
      }
    }
    const chart = by("chart");
    const moves = event.key.startsWith("Arrow") || event.key === "Home";
    // These scroll the page unless the chart has the focus.
    if (!chart || !keys[event.key] || (moves && at !== chart)) return;
    event.preventDefault();
    known();
    acts[keys[event.key]]();
  });

  // Plotly lays a cover over the page while a button is down: where it went down says what is meant. Its own double
  // click would show what is drawn, not the whole window.
  let pressed = false;
  document.addEventListener("mousedown", (event) => (pressed = event.target.closest?.("#chart") != null), true);
  document.addEventListener("mouseup", (event) => {
    if (!pressed || event.detail !== 2) return;
    known();
    go(...whole);
  }, true);

  // ---- what Plotly says

  window.dash_clientside = {
    ...window.dash_clientside,
    k25trace: {
      look(clicks) {
        if (clicks) chosen = root.dataset.theme === "dark" ? "light" : "dark";
        return look();
      },
      moved(change) {
        known();
        const range = change?.["xaxis2.range"] ?? [change?.["xaxis2.range[0]"], change?.["xaxis2.range[1]"]];
        if (range[0] === undefined) return;
        go(...range.map(Number));
        say("timeline", { relayoutData: null }); // so that the same again is news
      },
      picked(selected) {
        known();
        if (!selected?.range?.x) return;
        go(...selected.range.x);
        say("overview", { selectedData: null });
      },
    },
  };
})();
