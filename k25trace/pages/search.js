"use strict";
// Search: which names hold some words, how often and how long, and from one occurrence to the next.
K25.search = ({ item, marked, view, go, draw, cut, leave }) => {
  const { data, element, time, count, counted } = K25;
  const by = (id) => document.getElementById(id);
  let matching = null; // texts
  let occurrences = [];
  let occurrence = -1;
  let outlined = []; // by level, once it is drawn: which bars hold one

  function search(words) {
    const wanted = words.trim().toLowerCase();
    by("found").replaceChildren();
    by("hits").textContent = "";
    [matching, occurrences, occurrence, outlined] = [null, [], -1, []];
    if (wanted) {
      matching = new Set();
      data.texts.forEach((text, n) => data.totals[n] && text.toLowerCase().includes(wanted) && matching.add(n));
      const texts = item("text");
      const starts = item("start");
      // On the GPUs; on the host where that is the only place.
      const every = [];
      const onGpu = new Set();
      for (let i = 0; i < texts.length; i++) {
        if (!matching.has(texts[i])) continue;
        every.push(i);
        if (item("part")[i] !== data.host_part) onGpu.add(texts[i]);
      }
      occurrences = every.filter((i) => item("part")[i] !== data.host_part || !onGpu.has(texts[i]));
      occurrences.sort((a, b) => starts[a] - starts[b]);
      const order = [...matching].sort((a, b) => data.totals[b][1] - data.totals[a][1]);
      const shown = order.slice(0, 50).map((n) => element("li", {}, `${cut(data.texts[n], 300)}: ${counted(data.totals[n][0], "time")}, ${time(data.totals[n][1])}`));
      by("found").append(...shown);
      const times = order.reduce((sum, n) => sum + data.totals[n][0], 0);
      const unplaced = data.items_left_out ? Math.max(0, times - occurrences.length) : 0;
      const where = unplaced ? `; ${count(unplaced)} of them merged in this page, and not outlined` : "";
      by("hits").textContent = matching.size ? `${counted(matching.size, "name")}, ${counted(times, "time")}${where}` : "nothing found among what is drawn";
    }
    draw();
  }

  function next(step) {
    if (!matching || !matching.size) return;
    let start, end;
    if (occurrences.length) {
      const from = occurrence < 0 && step < 0 ? 0 : occurrence; // back from before the first: the last
      occurrence = (from + step + occurrences.length) % occurrences.length;
      [start, end] = [item("start")[occurrences[occurrence]], item("end")[occurrences[occurrence]]];
    } else [start, end] = data.totals[[...matching][0]].slice(2);
    const width = Math.max(end - start, 1) * 12;
    const now = view()[1] - view()[0];
    const half = (now <= width * 4 && now > (end - start) * 1.5 ? now : width) / 2;
    go((start + end) / 2 - half, (start + end) / 2 + half);
  }

  let waiting = 0;
  by("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(by("search").value), 120);
  });
  by("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      clearTimeout(waiting);
      if (!matching) search(by("search").value);
      next(event.shiftKey ? -1 : 1);
    }
    if (event.key === "Escape") {
      by("search").value = "";
      search("");
      leave();
    }
  });

  // Which bars of a level hold what is searched for: 1 for those; null where nothing is.
  function found(level) {
    if (!matching || !matching.size) return null;
    const texts = item("text");
    outlined[level] ??= marked(level, (it) => matching.has(texts[it]));
    return outlined[level];
  }

  return { found };
};
