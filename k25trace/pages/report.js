"use strict";
// The report: draws its figures, again when the theme or the width changes.
(async () => {
  const config = { displayModeBar: false, responsive: false, doubleClick: false, typesetMath: false };
  const figures = K25.data.figures;
  async function draw(colours) {
    for (const [id, figure] of Object.entries(figures)) {
      const at = document.getElementById(id);
      const layout = K25.themed(structuredClone(figure.layout), colours);
      const traces = structuredClone(figure.data);
      for (const trace of traces) {
        if (trace.type === "heatmap") trace.colorscale = [[0, colours.panel], [1, colours.accent]];
        if (trace.mode === "text") trace.textfont.color = inks(traces[0], colours);
        if (trace.marker?.pattern) trace.marker.pattern.fgcolor = colours.background;
        if (trace.marker?.line?.color) trace.marker.line.color = colours.background;
      }
      layout.width = at.clientWidth;
      if (at.clientWidth < 500) layout.font = { ...layout.font, size: 10 };
      await Plotly.react(at, traces, layout, config);
      await writeWhatFits(at, traces);
      await makeRoom(at);
      await lower(at);
    }
  }
  // Labels above a heat map, turned where they are many: Plotly leaves them some pixels too little.
  async function lower(at) {
    const [plot, box] = [at.querySelector(".nsewdrag").getBoundingClientRect(), at.getBoundingClientRect()];
    const over = box.top - Math.min(...[...at.querySelectorAll(".xtick text")].map((t) => t.getBoundingClientRect().top));
    if (over > 0) await Plotly.relayout(at, { "yaxis.domain": [0, 1 - (over + 2) / plot.height] });
  }
  // Texts beside bars need room that depends on the width: the axis grows until the last of them is whole. A text that
  // was inside its bar can come to stand beside it, so it is measured again.
  async function makeRoom(at) {
    for (let round = 0; round < 8; round++) {
      const [plot, box] = [at.querySelector(".nsewdrag").getBoundingClientRect(), at.getBoundingClientRect()];
      let factor = 1;
      for (const each of at.querySelectorAll(".bartext")) {
        const text = each.getBoundingClientRect();
        const room = box.right - 2 - text.width - plot.left;
        if (text.right > box.right - 1 && room > 0) factor = Math.max(factor, (text.left - plot.left) / room);
      }
      if (factor === 1) return;
      await Plotly.relayout(at, { "xaxis.range": [0, at._fullLayout.xaxis.range[1] * factor * 1.005] });
    }
  }
  // The ink of each cell of a heat map: that which stands out more on its shade (as k25trace.palette.ink).
  function inks(heat, colours) {
    const channels = (c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
    const [low, high] = [channels(colours.panel), channels(colours.accent)];
    const luminance = (c) => {
      const [r, g, b] = c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    return heat.z.flat().map((ns) => {
      const shade = low.map((from, i) => from + ((high[i] - from) * ns) / heat.zmax);
      return (luminance(shade) + 0.05) ** 2 > 0.05 * 1.05 ? "#000000" : "#ffffff";
    });
  }
  // Figures in cells that are too narrow for them would lie over each other: the table has them.
  async function writeWhatFits(at, traces) {
    const place = traces.findIndex((trace) => trace.mode === "text");
    if (place < 0) return;
    const widest = Math.max(...[...at.querySelectorAll(".textpoint text")].map((t) => t.getBBox().width));
    const cell = at._fullLayout.xaxis._length / traces[0].x.length;
    if (widest + 4 > cell) await Plotly.restyle(at, { visible: false }, [place]);
  }
  await draw(K25.colours());
  K25.onTheme(draw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    draw(K25.colours());
  });
  K25.ready();
})();
