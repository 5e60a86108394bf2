"use strict";
// The report: draws its figures, again when the theme or the width changes.
(async () => {
  const config = { displayModeBar: false, responsive: false, doubleClick: false };
  const figures = K25.data.figures;
  async function draw(colours) {
    for (const [id, figure] of Object.entries(figures)) {
      const at = document.getElementById(id);
      const layout = K25.themed(structuredClone(figure.layout), colours);
      const traces = structuredClone(figure.data);
      for (const trace of traces) {
        if (trace.type === "heatmap") trace.colorscale = [[0, colours.panel], [1, colours.accent]];
        if (trace.marker?.pattern) trace.marker.pattern.fgcolor = colours.background;
        if (trace.marker?.line?.color) trace.marker.line.color = colours.background;
      }
      layout.width = at.clientWidth;
      if (at.clientWidth < 500) layout.font = { ...layout.font, size: 10 };
      await Plotly.react(at, traces, layout, config);
    }
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
