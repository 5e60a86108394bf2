"use strict";
// The range slider: an overview that is drawn once a width and theme, and the view upon it.
K25.slider = ({ figure, view, go, least }) => {
  const { data } = K25;
  const by = (id) => document.getElementById(id);
  const brush = by("brush");
  const place = (t) => `${(100 * t) / data.end}%`;

  function show() {
    const [start, end] = view();
    by("from").style.left = by("middle").style.left = by("before").style.width = place(start);
    by("until").style.left = by("after").style.left = place(end);
    by("after").style.right = 0;
    by("middle").style.right = `calc(100% - ${place(end)})`;
    // There is nowhere to move a view of all to: dragging over it selects.
    brush.classList.toggle("whole", end - start > 0.95 * data.end);
    for (const [id, at] of [["from", start], ["until", end]]) {
      by(id).setAttribute("aria-valuemin", 0);
      by(id).setAttribute("aria-valuemax", data.end);
      by(id).setAttribute("aria-valuenow", Math.round(at));
      by(id).setAttribute("aria-valuetext", K25.instant(at, (end - start) / 1000));
    }
  }

  async function draw() {
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
    const scale = data.end / box.width;
    grip = { what: event.target.id, at: (event.clientX - box.left) * scale, view: view(), scale, x: event.clientX };
    brush.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  brush.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const moved = (event.clientX - grip.x) * grip.scale;
    const [start, end] = grip.view;
    if (grip.what === "from") go(Math.max(0, Math.min(start + moved, end - least)), end);
    else if (grip.what === "until") go(start, Math.min(data.end, Math.max(end + moved, start + least)));
    else if (grip.what === "middle") go(start + moved, end + moved);
    else if (Math.abs(moved) > 3 * grip.scale) go(Math.max(0, Math.min(grip.at, grip.at + moved)), Math.min(data.end, Math.max(grip.at, grip.at + moved)));
  });
  for (const kind of ["pointerup", "pointercancel"]) brush.addEventListener(kind, () => (grip = null));
  for (const [id, edge] of [["from", 0], ["until", 1]])
    by(id).addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.05, ArrowRight: 0.05, ArrowDown: -0.05, ArrowUp: 0.05 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      const moved = view();
      moved[edge] = Math.min(Math.max(moved[edge] + step * (moved[1] - moved[0]), 0), data.end);
      if (moved[1] - moved[0] > least) go(...moved);
    });

  return { show, draw };
};
