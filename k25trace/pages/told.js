"use strict";
// What a bar is, in words.
K25.told = ({ levels, item, extent }) => {
  const { data, time, count, counted } = K25;
  // Beginning and end of a long name: names of 100,000 characters exist.
  const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.ceil((2 * most) / 3))}…${text.slice(text.length - Math.floor(most / 3))}`);

  // What stands in a bar: of a kernel the function, of a range its name.
  function name(level, i) {
    const text = item("text")[level.item[i]];
    return (level.part[i] < data.kernel_parts && data.functions[text]) || data.texts[text];
  }

  // Lines of at most so many characters; instants as exact as the width of the view calls for.
  function describe(bar, width, most = Infinity) {
    const level = levels[bar.level];
    const [i, lane] = [bar.index, data.lanes[bar.lane]];
    const part = data.parts[level.part[i]];
    const it = level.item[i];
    const lines = [];
    const exact = `${time(level.ns[i])} (${count(level.ns[i])} ns)`;
    if (it < 0) {
      const [start, end, known] = extent(bar.level, i, bar.lane);
      const [from, to] = [start, end].map((at) => K25.instant(at, width / 1000));
      lines.push(`${count(level.count[i])} × ${part}, merged at this zoom`, exact.replace(" (", " together ("), `from ${known ? "" : "about "}${from} to ${to}`);
    } else {
      const known = (column) => !Number.isNaN(item(column)[it]);
      lines.push(data.texts[item("text")[it]], part, `duration ${exact}, from ${K25.instant(item("start")[it], width / 1000)}`);
      if (known("latency")) lines.push(`launch latency ${time(item("latency")[it])}`);
      if (known("bytes")) lines.push(counted(item("bytes")[it], "byte"));
      if (item("path")[it]) lines.push((data.marks.includes(level.part[i]) ? "" : "path ") + data.paths[item("path")[it]]);
      if (item("shape")[it]) lines.push(data.shapes[item("shape")[it]]);
      if (known("kernels")) {
        const inside = item("kernels")[it];
        const what = item("part")[it] === data.host_part ? `${counted(inside, "operation")} launched` : counted(inside, "kernel");
        if (!inside) lines.push("nothing launched inside on this GPU");
        else lines.push(`${what} inside, kernel time ${time(item("kernel_ns")[it])}`);
      }
    }
    const ranks = data.ranks[lane.gpu];
    lines.push(`GPU ${lane.gpu}${ranks ? `, rank ${ranks.join(", ")}` : ""}, ${lane.what}`);
    return lines.map((line) => cut(line, most)).join("\n");
  }

  return { cut, name, describe };
};
