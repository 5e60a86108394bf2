"use strict";
// The timeline: which level of detail shows, what lies under the mouse, search, pin, keys. The figure itself, its
// traces and axes, is the one that k25trace.figures.timeline made; here its bars are exchanged as the view changes.
(async () => {
  const { data, element, time, count } = K25;
  const columns = await K25.columns();
  window.k25columns = columns; // for whoever wants to read the figures back
  const chart = document.getElementById("chart");
  const by = (id) => document.getElementById(id);
  const item = (name) => columns[`item.${name}`];
  const levels = [];
  for (let n = 0; n < data.level_count; n++) {
    const of = (name) => columns[`level${n}.${name}`];
    const level = { first: of("first"), start: of("start"), end: of("end"), ns: of("ns"), count: of("count"), part: of("part"), item: of("item") };
    // No bar before this index of its lane reaches further than this: where a view begins is found by halving.
    level.reach = new Float64Array(level.end.length);
    for (let lane = 0; lane + 1 < level.first.length; lane++)
      for (let i = level.first[lane], far = -Infinity; i < level.first[lane + 1]; i++) level.reach[i] = far = Math.max(far, level.end[i]);
    levels.push(level);
  }
  const lanes = data.lanes;
  const hidden = new Set();
  let matching = null; // texts that the search finds
  let pinned = null; // {level, index, lane}
  let view = [data.start, data.end];
  let drawn = { level: 0, marks: 0 };

  const figure = data.figure;
  const traceOf = new Map();
  figure.data.forEach((trace, n) => traceOf.set(data.parts.indexOf(trace.name), n + 1));
  figure.data.unshift({ xaxis: "x2", yaxis: "y2", name: "found", mode: "none", fill: "toself", fillcolor: K25.colours().accent, line: { simplify: false }, hoverinfo: "skip", showlegend: false, x: [], y: [] });

  function lowerBound(array, from, to, value) { // first index whose value is greater
    while (from < to) {
      const middle = (from + to) >> 1;
      if (array[middle] > value) to = middle;
      else from = middle + 1;
    }
    return from;
  }
  // Bars of a lane that show between two instants, as indices from … to (some in between may end before).
  const span = (level, lane, start, end) => [
    lowerBound(level.reach, level.first[lane], level.first[lane + 1], start),
    lowerBound(level.start, level.first[lane], level.first[lane + 1], end),
  ];
  // Where in the frame of the plot a lane lies, in pixels.
  const fromTop = (y) => {
    const { height, margin, yaxis2 } = figure.layout;
    return ((y - yaxis2.range[1]) / (yaxis2.range[0] - yaxis2.range[1])) * (height - margin.t - margin.b);
  };
  const plotWidth = () => Math.max(50, figure.layout.width - figure.layout.margin.l - figure.layout.margin.r);

  function choose() {
    const most = Math.min(data.most_marks, Math.round((plotWidth() * lanes.length) / 2));
    for (let n = 0; n < levels.length; n++) {
      let marks = 0;
      for (let lane = 0; lane < lanes.length && marks <= most; lane++) {
        const [from, to] = span(levels[n], lane, view[0], view[1]);
        marks += Math.max(0, to - from);
      }
      if (marks <= most || n === levels.length - 1) return n;
    }
    return 0;
  }

  function isFound(level, i) {
    return matching !== null && level.item[i] >= 0 && matching.has(item("text")[level.item[i]]);
  }

  // Along the foot of the lane from bar to bar: an outline whose area is the bars, however many.
  function area(trace, start, end, y, half) {
    trace.x.push(start, start, end, end);
    trace.y.push(y + half, y - half, y - half, y + half);
  }

  function fill() {
    const n = choose();
    const level = levels[n];
    const pixel = (view[1] - view[0]) / plotWidth();
    const traces = figure.data;
    for (const trace of traces) [trace.x, trace.y] = [[], []];
    const names = [];
    let marks = 0;
    let merged = 0;
    for (let lane = 0; lane < lanes.length; lane++) {
      const [from, to] = span(level, lane, view[0], view[1]);
      const y = lanes[lane].y;
      for (const trace of traces) {
        // Each lane is an outline of its own.
        if (trace.x.length && trace.x.at(-1) !== null) {
          trace.x.push(null);
          trace.y.push(null);
        }
      }
      for (let i = from; i < to; i++) {
        const part = level.part[i];
        if (level.end[i] < view[0] || hidden.has(part)) continue;
        const start = Math.max(level.start[i], view[0] - (view[1] - view[0]));
        let end = Math.min(level.end[i], view[1] + (view[1] - view[0]));
        const width = (end - start) / pixel;
        if (width < 1) end = start + pixel;
        else if (width > 4) end -= pixel; // neighbours stay two
        area(traces[traceOf.get(part)], start, end, y, data.bar_half);
        if (isFound(level, i)) area(traces[0], start - 2 * pixel, end + 2 * pixel, y, 0.5);
        const visibleFrom = Math.max(start, view[0]);
        const visible = (Math.min(end, view[1]) - visibleFrom) / pixel;
        if (visible > 26 && level.item[i] >= 0) {
          const name = short(data.texts[item("text")[level.item[i]]]);
          const room = Math.floor((visible - 6) / 6);
          if (room >= Math.min(name.length, 7)) {
            names.push([name.length > room ? name.slice(0, room - 1) + "…" : name, (visibleFrom - view[0]) / pixel + visible / 2, y, part]);
          }
        }
        marks++;
        if (level.count[i] > 1) merged++;
      }
    }
    for (const trace of traces) trace.visible = trace.x.length > 0;
    write(names);
    drawn = { level: n, marks, merged };
    const ticks = K25.ticks(view[0], view[1], Math.max(2, Math.floor(plotWidth() / 130)));
    [figure.layout.xaxis2.tickvals, figure.layout.xaxis2.ticktext] = ticks;
    figure.layout.xaxis2.range = [...view];
    say();
  }

  // The last word of a C++ name before its arguments: what one would call the kernel.
  function short(name) {
    const bare = name.replace(/^void /, "").replace(/<.*$/s, "").replace(/\(.*$/s, "");
    return bare.split("::").pop() || name;
  }

  // Names lie upon the bars in a drawing of their own: as a trace of texts they took Plotly longer than all bars.
  function write(names) {
    const layer = by("names");
    while (layer.children.length < names.length) layer.append(document.createElementNS("http://www.w3.org/2000/svg", "text"));
    while (layer.children.length > names.length) layer.lastChild.remove();
    names.forEach(([name, x, y, part], n) => {
      const text = layer.children[n];
      text.textContent = name;
      text.setAttribute("x", x);
      text.setAttribute("y", fromTop(y));
      text.setAttribute("fill", data.inks[part]);
    });
  }

  function say() {
    const clock = `${Math.floor(view[0])}:${Math.ceil(view[1])}`;
    by("view").textContent = `${time(view[0])} to ${time(view[1])}, ${time(view[1] - view[0])} (--window ${clock})`;
    const marks = `${count(drawn.marks)} bars`;
    let detail = drawn.merged ? `${marks}, ${count(drawn.merged)} of them several merged: zoom in` : `${marks}, each one kernel, copy or range`;
    if (drawn.merged && drawn.level === 0 && data.items_left_out) detail = `${marks}, ${count(drawn.merged)} of them several merged. This page holds no finer detail here: make one with --window ${clock}`;
    by("detail").textContent = detail;
    chart.dataset.level = drawn.level;
    chart.dataset.marks = drawn.marks;
    chart.dataset.merged = drawn.merged;
    chart.dataset.start = view[0];
    chart.dataset.end = view[1];
    showBrush();
  }

  // ---- the range slider: an overview that is drawn once, and the view upon it

  const brush = by("brush");
  const place = (t) => `${(100 * (t - data.start)) / (data.end - data.start)}%`;
  function showBrush() {
    by("from").style.left = by("middle").style.left = by("before").style.width = place(view[0]);
    by("until").style.left = by("after").style.left = place(view[1]);
    by("middle").style.right = by("after").style.right = 0;
    by("middle").style.right = `calc(100% - ${place(view[1])})`;
    for (const [id, at] of [["from", view[0]], ["until", view[1]]]) {
      by(id).setAttribute("aria-valuemin", data.start);
      by(id).setAttribute("aria-valuemax", data.end);
      by(id).setAttribute("aria-valuenow", Math.round(at));
      by(id).setAttribute("aria-valuetext", time(at));
    }
  }
  async function drawOverview() {
    // The same margins as the chart's, so that an instant is at the same place in both.
    const { width, margin: { l, r } } = figure.layout;
    const layout = K25.themed({ ...data.overview.layout, width, margin: { l, r, t: 0, b: 0 } }, K25.colours());
    layout.plot_bgcolor = K25.colours().panel;
    await Plotly.react(by("overview"), data.overview.data, layout, { staticPlot: true });
    Object.assign(brush.style, { left: `${l}px`, right: `${r}px` });
    brush.hidden = false;
  }
  let grip = null;
  brush.addEventListener("pointerdown", (event) => {
    const box = brush.getBoundingClientRect();
    const at = data.start + ((event.clientX - box.left) / box.width) * (data.end - data.start);
    grip = { what: event.target.id, at, view: [...view], scale: (data.end - data.start) / box.width, x: event.clientX };
    brush.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  brush.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const by = (event.clientX - grip.x) * grip.scale;
    if (grip.what === "from") go(Math.min(grip.view[0] + by, view[1] - 20), view[1]);
    else if (grip.what === "until") go(view[0], Math.max(grip.view[1] + by, view[0] + 20));
    else if (grip.what === "middle") go(grip.view[0] + by, grip.view[1] + by);
    else if (Math.abs(by) > 3 * grip.scale) go(Math.min(grip.at, grip.at + by), Math.max(grip.at, grip.at + by));
  });
  brush.addEventListener("pointerup", () => (grip = null));
  for (const [id, end] of [["from", 0], ["until", 1]])
    by(id).addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.05, ArrowRight: 0.05, ArrowDown: -0.05, ArrowUp: 0.05 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      const moved = [...view];
      moved[end] = Math.min(Math.max(view[end] + step * (view[1] - view[0]), data.start), data.end);
      if (moved[1] - moved[0] > 20) go(...moved);
    });

  let busy = false;
  let again = false;
  async function draw() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      const began = performance.now();
      fill();
      await Plotly.react(chart, figure.data, figure.layout, figure.config);
      chart.dataset.drawMs = performance.now() - began;
      chart.dataset.draws = 1 + Number(chart.dataset.draws || 0);
    } while (again);
    busy = false;
  }

  function go(start, end) {
    const least = 20;
    const whole = data.end - data.start;
    let width = Math.min(Math.max(end - start, least), whole);
    let from = start + (end - start - width) / 2;
    from = Math.min(Math.max(from, data.start), data.end - width);
    view = [from, from + width];
    tip.hidden = true;
    return draw();
  }
  const zoom = (factor, at = (view[0] + view[1]) / 2) => go(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  const pan = (part) => go(view[0] + part * (view[1] - view[0]), view[1] + part * (view[1] - view[0]));

  // ---- what a bar is

  function describe(level, i, lane) {
    const lines = [];
    const part = data.parts[level.part[i]];
    const it = level.item[i];
    if (it < 0) {
      lines.push(`${count(level.count[i])} × ${part}, merged at this zoom`, `${time(level.ns[i])} together (${count(level.ns[i])} ns)`);
    } else {
      lines.push(data.texts[item("text")[it]] || "(unnamed)", part, `duration ${time(level.ns[i])} (${count(level.ns[i])} ns), from ${time(item("start")[it])}`);
      if (!Number.isNaN(item("latency")[it])) lines.push(`launch latency ${time(item("latency")[it])}`);
      if (!Number.isNaN(item("bytes")[it])) lines.push(`${count(item("bytes")[it])} bytes`);
      if (item("path")[it]) lines.push((data.marks.includes(level.part[i]) ? "" : "path ") + data.paths[item("path")[it]]);
      if (item("shape")[it]) lines.push(data.shapes[item("shape")[it]]);
      if (!Number.isNaN(item("kernels")[it])) lines.push(`${count(item("kernels")[it])} ${item("part")[it] === data.host_part ? "operations launched" : "kernels"} inside, kernel time ${time(item("kernel_ns")[it])}`);
    }
    const ranks = data.ranks[lanes[lane].gpu];
    lines.push(`GPU ${lanes[lane].gpu}${ranks ? `, rank ${ranks.join(", ")}` : ""}, ${lanes[lane].what}`);
    return lines.join("\n");
  }

  function under(clientX, clientY) {
    const area = chart.querySelector(".nsewdrag[data-subplot=x2y2]")?.getBoundingClientRect();
    if (!area || clientX < area.left || clientX > area.right || clientY < area.top || clientY > area.bottom) return null;
    const at = view[0] + ((clientX - area.left) / area.width) * (view[1] - view[0]);
    const [bottom, top] = figure.layout.yaxis2.range;
    const y = top + ((clientY - area.top) / area.height) * (bottom - top);
    const lane = lanes.findIndex((l) => Math.abs(l.y - y) <= 0.5);
    if (lane < 0) return null;
    const level = levels[drawn.level];
    const pixel = (view[1] - view[0]) / area.width;
    const [from, to] = span(level, lane, at - 2 * pixel, at + 2 * pixel);
    let best = -1;
    let nearest = Infinity;
    for (let i = from; i < to; i++) {
      if (hidden.has(level.part[i])) continue;
      const away = at < level.start[i] ? level.start[i] - at : at > level.end[i] ? at - level.end[i] : 0;
      if (away <= 2 * pixel && away <= nearest) [best, nearest] = [i, away]; // of several the last: it is drawn on top
    }
    return best < 0 ? null : { level: drawn.level, index: best, lane };
  }

  const tip = by("tip");
  chart.addEventListener("mousemove", (event) => {
    const bar = event.buttons ? null : under(event.clientX, event.clientY);
    tip.hidden = bar === null;
    if (bar === null) return;
    tip.textContent = describe(levels[bar.level], bar.index, bar.lane);
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? Math.max(4, event.clientX - 14 - box.width) : event.clientX + 14;
    const top = event.clientY + 14 + box.height > innerHeight ? Math.max(4, event.clientY - 14 - box.height) : event.clientY + 14;
    Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
  });
  chart.addEventListener("mouseleave", () => (tip.hidden = true));

  function pin(bar) {
    pinned = bar;
    by("pin").hidden = bar === null;
    if (bar === null) return;
    by("pinned").textContent = describe(levels[bar.level], bar.index, bar.lane);
  }
  let pressed = null;
  chart.addEventListener("mousedown", (event) => (pressed = [event.clientX, event.clientY]), true);
  document.addEventListener("mouseup", (event) => {
    // A drag is a zoom, a click pins.
    if (!pressed || Math.abs(event.clientX - pressed[0]) > 3 || Math.abs(event.clientY - pressed[1]) > 3) return;
    const bar = under(event.clientX, event.clientY);
    if (bar) pin(bar);
  }, true);
  by("unpin").addEventListener("click", () => pin(null));

  function neighbour(step) {
    const level = levels[drawn.level];
    const lane = pinned ? pinned.lane : lanes.findIndex((l) => l.stream);
    if (lane < 0) return;
    let index = pinned && pinned.level === drawn.level ? pinned.index + step : span(level, lane, (view[0] + view[1]) / 2, Infinity)[0];
    while (index >= level.first[lane] && index < level.first[lane + 1] && hidden.has(level.part[index])) index += step;
    if (index < level.first[lane] || index >= level.first[lane + 1]) return;
    pin({ level: drawn.level, index, lane });
    const [start, end] = [level.start[index], level.end[index]];
    if (start < view[0] || end > view[1]) go(start - (view[1] - view[0]) / 2, start + (view[1] - view[0]) / 2);
  }

  // ---- legend

  for (const button of document.querySelectorAll("#legend button")) {
    const part = Number(button.dataset.part);
    button.addEventListener("click", () => {
      hidden.has(part) ? hidden.delete(part) : hidden.add(part);
      button.setAttribute("aria-pressed", String(!hidden.has(part)));
      draw();
    });
  }
  by("all").addEventListener("click", () => {
    const show = hidden.size > 0;
    for (const button of document.querySelectorAll("#legend button[data-part]")) {
      show ? hidden.delete(Number(button.dataset.part)) : hidden.add(Number(button.dataset.part));
      button.setAttribute("aria-pressed", String(show));
    }
    draw();
  });

  // ---- search

  let occurrences = [];
  let occurrence = -1;
  function search(words) {
    const wanted = words.trim().toLowerCase();
    by("found").replaceChildren();
    matching = null;
    occurrences = [];
    occurrence = -1;
    if (wanted) {
      matching = new Set();
      data.texts.forEach((text, n) => data.totals[n] && text.toLowerCase().includes(wanted) && matching.add(n));
      const texts = item("text");
      const starts = item("start");
      for (let i = 0; i < texts.length; i++) if (matching.has(texts[i]) && item("part")[i] !== data.host_part) occurrences.push(i);
      occurrences.sort((a, b) => starts[a] - starts[b]);
      const order = [...matching].sort((a, b) => data.totals[b][1] - data.totals[a][1]);
      const shown = order.slice(0, 50).map((n) => element("li", {}, `${data.texts[n].slice(0, 300)}: ${count(data.totals[n][0])} times, ${time(data.totals[n][1])}`));
      by("found").append(...shown);
      const times = order.reduce((sum, n) => sum + data.totals[n][0], 0);
      by("hits").textContent = matching.size ? `${count(matching.size)} names, ${count(times)} times` : "nothing found";
    } else by("hits").textContent = "";
    draw();
  }
  function next(step) {
    if (!matching || !matching.size) return;
    let start, end;
    if (occurrences.length) {
      occurrence = (occurrence + step + occurrences.length) % occurrences.length;
      [start, end] = [item("start")[occurrences[occurrence]], item("end")[occurrences[occurrence]]];
    } else [start, end] = data.totals[[...matching][0]].slice(2);
    const width = Math.max(end - start, 1) * 12;
    const keep = view[1] - view[0] <= width * 4 && view[1] - view[0] > (end - start) * 1.5;
    const half = (keep ? view[1] - view[0] : width) / 2;
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
      chart.focus();
    }
  });

  // ---- keys, wheel, Plotly's own zoom

  const keys = {
    ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), ArrowUp: () => zoom(0.5), ArrowDown: () => zoom(2),
    a: () => pan(-0.25), d: () => pan(0.25), w: () => zoom(0.5), s: () => zoom(2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    Home: () => go(data.start, data.end), 0: () => go(data.start, data.end), n: () => neighbour(1), p: () => neighbour(-1), Escape: () => pin(null),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (event.key === "/") {
      event.preventDefault();
      by("search").focus();
      return;
    }
    // Arrows scroll the page unless the chart has the focus.
    if (event.key.startsWith("Arrow") && document.activeElement !== chart) return;
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  chart.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const area = chart.querySelector(".nsewdrag[data-subplot=x2y2]").getBoundingClientRect();
    const at = view[0] + ((event.clientX - area.left) / area.width) * (view[1] - view[0]);
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), at);
    else pan(event.deltaX / area.width);
  }, { passive: false });
  for (const [id, key] of [["zoom-in", "+"], ["zoom-out", "-"], ["left", "a"], ["right", "d"], ["whole", "0"]]) by(id).addEventListener("click", () => keys[key]());

  K25.onTheme((c) => {
    K25.themed(figure.layout, c);
    figure.data[0].fillcolor = c.accent;
    draw().then(drawOverview);
  });
  // The lanes' labels are HTML and the margins fixed: Plotly measures tick labels anew at every zoom, which takes it
  // longer than the bars do.
  const labels = data.labels.map(() => by("lanes").appendChild(element("span")));
  Object.assign(figure.layout.yaxis2, { showticklabels: false, automargin: false });
  figure.layout.xaxis2.automargin = false;
  figure.layout.margin.b = 26;
  function lay() {
    // On a narrow screen the labels would take most of it.
    const narrow = chart.clientWidth < 600;
    by("lanes").style.fontSize = narrow ? "9px" : "11px";
    labels.forEach((label, n) => {
      label.textContent = narrow ? data.labels[n].short : data.labels[n].long;
      label.style.top = `${fromTop(figure.layout.yaxis2.tickvals[n])}px`;
    });
    const widest = Math.max(0, ...labels.map((label) => label.getBoundingClientRect().width));
    const { margin } = figure.layout;
    margin.l = Math.ceil(widest) + 10;
    figure.layout.width = chart.clientWidth;
    by("lanes").style.width = `${margin.l - 3}px`;
    by("lanes").style.top = `${margin.t}px`;
    Object.assign(by("names").style, { top: `${margin.t}px`, left: `${margin.l}px`, width: `calc(100% - ${margin.l + margin.r}px)`, height: `calc(100% - ${margin.t + margin.b}px)` });
  }
  K25.themed(figure.layout, K25.colours());
  figure.layout.showlegend = false; // the page has its own
  lay();
  await draw();
  await drawOverview();
  chart.on("plotly_relayout", (change) => {
    const range = change["xaxis2.range"] || [change["xaxis2.range[0]"], change["xaxis2.range[1]"]];
    if (change["xaxis2.autorange"]) go(data.start, data.end);
    else if (range[0] !== undefined && (Math.abs(range[0] - view[0]) > 0.5 || Math.abs(range[1] - view[1]) > 0.5)) go(Number(range[0]), Number(range[1]));
  });
  new ResizeObserver(() => {
    if (chart.clientWidth === figure.layout.width) return;
    lay();
    draw().then(drawOverview);
  }).observe(chart);
  K25.ready();
})();
