"use strict";
// The timeline: which level of detail shows, what lies under the mouse, search, pin, keys. The figure itself, its
// traces and axes, is the one that k25trace.figures.timeline made; here its bars are exchanged as the view changes.
(async () => {
  const { data, element, time, count, counted } = K25;
  const columns = await K25.columns();
  window.k25columns = columns; // for whoever wants to read the figures back
  const chart = document.getElementById("chart");
  const by = (id) => document.getElementById(id);
  const bars = K25.bars(columns);
  const { levels, span } = bars;
  const { cut, name, describe } = K25.told(bars);
  const lanes = data.lanes;
  const hidden = new Set();
  let pinned = null; // {level, index, lane}
  let view = [0, data.end];
  let drawn = { level: 0, marks: 0 };

  const figure = data.figure;
  const traceOf = new Map();
  figure.data.forEach((trace, n) => traceOf.set(data.parts.indexOf(trace.name), n + 1));
  figure.data.unshift({ xaxis: "x2", yaxis: "y2", name: "found", mode: "none", fill: "toself", fillcolor: K25.colours().accent, line: { simplify: false }, hoverinfo: "skip", showlegend: false, x: [], y: [] });

  // Where in the frame of the plot a lane lies, in pixels.
  const fromTop = (y) => {
    const { height, margin, yaxis2 } = figure.layout;
    return ((y - yaxis2.range[1]) / (yaxis2.range[0] - yaxis2.range[1])) * (height - margin.t - margin.b);
  };
  const plotWidth = () => Math.max(50, figure.layout.width - figure.layout.margin.l - figure.layout.margin.r);

  // Along the foot of the lane from bar to bar: an outline whose area is the bars, however many.
  function area(trace, start, end, y, half) {
    trace.x.push(start, start, end, end);
    trace.y.push(y + half, y - half, y - half, y + half);
  }

  function fill() {
    const most = Math.min(data.most_marks, Math.round((plotWidth() * lanes.length) / 2));
    const n = bars.choose(...view, most);
    const level = levels[n];
    const pixel = (view[1] - view[0]) / plotWidth();
    const traces = figure.data;
    for (const trace of traces) [trace.x, trace.y] = [[], []];
    const names = [];
    let marks = 0;
    let merged = 0;
    const hits = found.found(n);
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
      let written = -Infinity; // names do not stand upon one another, even where bars do
      for (let i = from; i < to; i++) {
        const part = level.part[i];
        if (level.end[i] < view[0] || (level.end[i] === view[0] && level.start[i] < view[0]) || hidden.has(part)) continue;
        const start = Math.max(level.start[i], view[0] - (view[1] - view[0]));
        let end = Math.min(level.end[i], view[1] + (view[1] - view[0]));
        const width = (end - start) / pixel;
        if (width < 1) end = start + pixel;
        else if (width > 4) end -= pixel; // neighbours stay two
        area(traces[traceOf.get(part)], start, end, y, data.bar_half);
        if (hits && hits[i]) area(traces[0], start - 2 * pixel, end + 2 * pixel, y, 0.5);
        const visibleFrom = Math.max(start, view[0]);
        const visible = (Math.min(end, view[1]) - visibleFrom) / pixel;
        if (visible > 26 && level.item[i] >= 0) {
          const room = Math.floor((visible - 6) / 6);
          const text = name(level, i);
          const fits = text.length > room ? text.slice(0, room - 1) + "…" : text;
          const middle = (visibleFrom - view[0]) / pixel + visible / 2;
          if (room >= Math.min(text.length, 7) && middle - 3 * fits.length > written) {
            names.push([fits, middle, y, part]);
            written = middle + 3 * fits.length;
          }
        }
        marks++;
        if (level.count[i] > 1) merged++;
      }
    }
    for (const trace of traces) trace.visible = trace.x.length > 0;
    write(names);
    mark();
    drawn = { level: n, marks, merged };
    const ticks = K25.ticks(view[0], view[1], plotWidth());
    [figure.layout.xaxis2.tickvals, figure.layout.xaxis2.ticktext] = ticks;
    figure.layout.xaxis2.range = [...view];
    say();
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

  // The pinned bar, wherever the view has moved since.
  function mark() {
    const box = by("mark");
    const bar = pinned && { ...pinned, level: levels[pinned.level] };
    const [start, end] = bar ? [bar.level.start[bar.index], bar.level.end[bar.index]] : [0, 0];
    box.hidden = !bar || hidden.has(bar.level.part[bar.index]) || end < view[0] || start > view[1];
    if (box.hidden) return;
    const scale = plotWidth() / (view[1] - view[0]);
    const left = Math.max(0, (start - view[0]) * scale);
    const right = Math.min(plotWidth(), Math.max((end - view[0]) * scale, left + 1));
    const { l, t } = figure.layout.margin;
    const [top, bottom] = [-1, 1].map((side) => fromTop(lanes[bar.lane].y + side * data.bar_half));
    Object.assign(box.style, { left: `${l + left - 2}px`, width: `${right - left + 4}px`, top: `${t + top - 2}px`, height: `${bottom - top + 4}px` });
  }

  function say() {
    const clock = `${K25.absolute(Math.floor(view[0]))}:${K25.absolute(Math.ceil(view[1]))}`;
    // Reports have a clock each: of several, no window is that of all.
    const [here, closer] = data.clock ? [data.clock, "a page of one report, with --window, has more"] : [`--window ${clock}`, `make one with --window ${clock}`];
    const width = view[1] - view[0];
    by("view").textContent = `${K25.instant(view[0], width / 1000)} to ${K25.instant(view[1], width / 1000)}, ${time(width)} (${here})`;
    const marks = counted(drawn.marks, "bar");
    let detail = drawn.merged ? `${marks}, ${count(drawn.merged)} of them several merged: zoom in` : `${marks}, each one kernel, copy or range`;
    if (!drawn.marks) detail = hidden.size ? "No bars: what is here belongs to categories that are hidden" : "No bars: nothing ran here";
    if (drawn.merged && drawn.level === 0 && data.items_left_out) detail = `${marks}, ${count(drawn.merged)} of them several merged. This page holds no finer detail here: ${closer}`;
    by("detail").textContent = detail;
    chart.dataset.level = drawn.level;
    chart.dataset.marks = drawn.marks;
    chart.dataset.merged = drawn.merged;
    chart.dataset.start = view[0];
    chart.dataset.end = view[1];
    slider.show();
  }

  let busy = false;
  let again = false;
  async function draw() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      do {
        again = false;
        const began = performance.now();
        fill();
        await Plotly.react(chart, figure.data, figure.layout, figure.config);
        chart.dataset.drawMs = performance.now() - began;
        chart.dataset.draws = 1 + Number(chart.dataset.draws || 0);
      } while (again);
    } finally {
      busy = false;
    }
  }

  const LEAST = 20; // nanoseconds of a view
  function go(start, end) {
    const width = Math.min(Math.max(end - start, LEAST), data.end);
    const from = Math.min(Math.max(start + (end - start - width) / 2, 0), data.end - width);
    view = [from, from + width];
    tip.hidden = true;
    return draw();
  }
  const zoom = (factor, at = (view[0] + view[1]) / 2) => go(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  const pan = (part) => go(view[0] + part * (view[1] - view[0]), view[1] + part * (view[1] - view[0]));

  const slider = K25.slider({ figure, view: () => [...view], go, least: LEAST });
  const found = K25.search({ item: bars.item, marked: bars.marked, view: () => view, go, draw, cut, leave: () => chart.focus() });

  // ---- the bar under the mouse, and the pinned one

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
    tip.textContent = describe(bar, view[1] - view[0], 600);
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? Math.max(4, event.clientX - 14 - box.width) : event.clientX + 14;
    const top = event.clientY + 14 + box.height > innerHeight ? Math.max(4, event.clientY - 14 - box.height) : event.clientY + 14;
    Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
  });
  chart.addEventListener("mouseleave", () => (tip.hidden = true));

  function pin(bar) {
    pinned = bar;
    by("pin").hidden = bar === null;
    mark();
    if (bar === null) return;
    by("pinned").textContent = describe(bar, view[1] - view[0]);
  }
  let pressed = null;
  let unclicked = null; // what was pinned before the last click
  chart.addEventListener("mousedown", (event) => (pressed = [event.clientX, event.clientY]), true);
  document.addEventListener("mouseup", (event) => {
    // A drag is a zoom, a click pins.
    if (!pressed || Math.abs(event.clientX - pressed[0]) > 3 || Math.abs(event.clientY - pressed[1]) > 3) return;
    if (event.detail > 1) { // a double click is the whole window
      pin(unclicked);
      if (event.detail === 2) go(0, data.end);
      return;
    }
    unclicked = pinned;
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

  for (const button of document.querySelectorAll("#legend button[data-part]")) {
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

  // ---- keys, wheel, Plotly's own zoom

  const keys = {
    ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), ArrowUp: () => zoom(0.5), ArrowDown: () => zoom(2),
    a: () => pan(-0.25), d: () => pan(0.25), w: () => zoom(0.5), s: () => zoom(2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    Home: () => go(0, data.end), 0: () => go(0, data.end), n: () => neighbour(1), p: () => neighbour(-1), Escape: () => pin(null),
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
    draw().then(slider.draw);
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
  await slider.draw();
  chart.on("plotly_relayout", (change) => {
    const range = change["xaxis2.range"] || [change["xaxis2.range[0]"], change["xaxis2.range[1]"]];
    if (change["xaxis2.autorange"]) go(0, data.end);
    else if (range[0] !== undefined && (Math.abs(range[0] - view[0]) > 0.5 || Math.abs(range[1] - view[1]) > 0.5)) go(Number(range[0]), Number(range[1]));
  });
  new ResizeObserver(() => {
    if (chart.clientWidth === figure.layout.width) return;
    lay();
    draw().then(slider.draw);
  }).observe(chart);
  K25.ready();
})();
