"use strict";
// What every page shares: its data, texts of figures, and the theme. Names reach the page as text only (textContent).
const K25 = (() => {
  const data = JSON.parse(document.getElementById("k25-data").textContent);
  const root = document.documentElement;

  async function columns() {
    const blob = document.getElementById("k25-columns");
    const bytesAsText = atob(blob.textContent);
    blob.remove();
    const packed = new Uint8Array(bytesAsText.length);
    for (let i = 0; i < packed.length; i++) packed[i] = bytesAsText.charCodeAt(i);
    if (!packed.length) return {};
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = await new Response(stream).arrayBuffer();
    const types = { Float64: Float64Array, Uint32: Uint32Array, Int32: Int32Array, Uint16: Uint16Array, Uint8: Uint8Array };
    const found = {};
    let at = 0;
    for (const [name, type, length] of data.columns) {
      const size = types[type].BYTES_PER_ELEMENT * length;
      found[name] = new types[type](bytes.slice(at, at + size));
      at += size;
    }
    return found;
  }

  function time(ns) {
    const sign = ns < 0 ? "-" : "";
    let value = Math.abs(ns);
    let unit = data.units[0][0];
    for (const [name, scale] of data.units)
      if (Math.abs(ns) >= 0.9995 * scale) [unit, value] = [name, Math.abs(ns) / scale];
    const digits = unit === data.units[0][0] || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return `${sign}${value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
  }
  const count = (n) => n.toLocaleString("en-US");

  const counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;

  // Instants are distances from the origin, which alone can be more nanoseconds than a number tells apart.
  const origin = BigInt(data.origin || 0);
  const absolute = (at) => origin + BigInt(Math.round(at));
  const size = (ns) => (ns < 0n ? -ns : ns);
  const unitOf = (ns) => data.units.findLast(([, scale]) => size(ns) >= BigInt(scale)) || data.units[0];
  function decimal(ns, scale, digits) {
    const last = BigInt(scale) / 10n ** BigInt(digits);
    const rounded = (size(ns) + last / 2n) / last;
    const one = 10n ** BigInt(digits);
    const rest = digits ? `.${String(rounded % one).padStart(digits, "0")}` : "";
    return `${ns < 0n ? "-" : ""}${(rounded / one).toLocaleString("en-US")}${rest}`;
  }

  // As k25trace.units.format_instant.
  function instant(at, resolution) {
    const ns = absolute(at);
    const [unit, scale] = unitOf(ns);
    let digits = 0;
    while (digits < String(scale).length - 1 && scale > resolution * 10 ** digits) digits++;
    return `${decimal(ns, scale, digits)} ${unit}`;
  }

  // Round instants on an axis, all in one unit (as k25trace.figures.axes.time_ticks), no more than have room.
  function ticks(start, end, width) {
    const found = round(start, end, Math.max(2, Math.floor(width / 130)));
    const widest = 7 * Math.max(0, ...found[1].map((text) => text.length)) + 16;
    return widest <= 130 ? found : round(start, end, Math.max(1, Math.floor(width / widest)));
  }
  function round(start, end, most) {
    let step = 1;
    while ((end - start) / step > most) step = String(step)[0] === "2" ? (step * 5) / 2 : step * 2;
    const [first, last, wide] = [absolute(Math.ceil(start)), absolute(Math.floor(end)), BigInt(step)];
    const [unit, scale] = unitOf(size(first) > size(last) ? first : last);
    const digits = Math.max(0, String(scale).length - String(step).length);
    const places = [];
    for (let at = (first / wide) * wide; at <= last; at += wide) if (at >= first) places.push(at);
    return [places.map((at) => Number(at - origin)), places.map((at) => `${decimal(at, scale, digits)} ${unit}`)];
  }

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children.map((c) => (typeof c === "string" ? document.createTextNode(c) : c)));
    return made;
  }

  // Theme: that of the system until the reader chooses one.
  const listeners = [];
  const system = matchMedia("(prefers-color-scheme: dark)");
  const colours = () => {
    const style = getComputedStyle(root);
    return Object.fromEntries(["background", "text", "line", "muted", "accent", "panel"].map((n) => [n, style.getPropertyValue(`--${n}`).trim()]));
  };
  function show(theme) {
    root.dataset.theme = theme;
    for (const listener of listeners) listener(colours());
  }
  show(system.matches ? "dark" : "light");
  let chosen = false;
  system.addEventListener("change", () => chosen || show(system.matches ? "dark" : "light"));
  document.getElementById("theme")?.addEventListener("click", () => {
    chosen = true;
    show(root.dataset.theme === "dark" ? "light" : "dark");
  });

  // What of a figure's layout depends on the theme.
  function themed(layout, c) {
    layout.paper_bgcolor = layout.plot_bgcolor = c.background;
    layout.font = { ...layout.font, color: c.text };
    for (const [name, axis] of Object.entries(layout)) {
      if (/^[xy]axis/.test(name)) Object.assign(axis, { gridcolor: c.line, linecolor: c.line, zerolinecolor: c.line });
      if (/^xaxis/.test(name) && axis.rangeslider) Object.assign(axis.rangeslider, { bgcolor: c.panel, bordercolor: c.line });
    }
    for (const shape of layout.shapes || []) if (shape.line) shape.line.color = c.line;
    return layout;
  }

  return { data, columns, time, count, counted, absolute, instant, ticks, element, colours, themed, onTheme: (f) => listeners.push(f), ready: () => (root.dataset.ready = "1") };
})();
