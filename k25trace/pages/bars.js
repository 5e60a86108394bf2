"use strict";
// The bars of a page at every level of detail, and which of them show in a view.
K25.bars = (columns) => {
  const { data } = K25;
  const levels = [];
  for (let n = 0; n < data.level_count; n++) {
    const of = (name) => columns[`level${n}.${name}`];
    const level = { first: of("first"), start: of("start"), end: of("end"), ns: of("ns"), count: of("count"), part: of("part"), item: of("item") };
    // No bar before this index of its lane reaches further than this: where a view begins is found by halving.
    level.reach = new Float64Array(level.end.length);
    for (let lane = 0; lane + 1 < level.first.length; lane++)
      for (let i = level.first[lane], far = -Infinity; i < level.first[lane + 1]; i++) level.reach[i] = far = Math.max(far, level.end[i]);
    // How many intervals of its lane and part lie before a bar. Merging keeps their order: at every level, a bar of so
    // many stands for the same ones.
    level.before = new Uint32Array(level.end.length);
    for (let lane = 0; lane + 1 < level.first.length; lane++) {
      const seen = new Uint32Array(256);
      for (let i = level.first[lane]; i < level.first[lane + 1]; i++) {
        level.before[i] = seen[level.part[i]];
        seen[level.part[i]] += level.count[i];
      }
    }
    levels.push(level);
  }

  function lowerBound(array, from, to, value) { // first index whose value is greater
    while (from < to) {
      const middle = (from + to) >> 1;
      if (array[middle] > value) to = middle;
      else from = middle + 1;
    }
    return from;
  }
  // Bars of a lane that show between two instants, as indices from … to (some in between may end before). One that ends
  // where the view begins is among them: it may have no length.
  const span = (level, lane, start, end) => [
    lowerBound(level.reach, level.first[lane], level.first[lane + 1], start - 0.5),
    lowerBound(level.start, level.first[lane], level.first[lane + 1], end),
  ];

  // The finest level with no more than so many bars between two instants; the coarsest where all have more.
  function choose(start, end, most) {
    for (let n = 0; n < levels.length; n++) {
      let marks = 0;
      for (let lane = 0; lane < data.lanes.length && marks <= most; lane++) {
        const [from, to] = span(levels[n], lane, start, end);
        marks += Math.max(0, to - from);
      }
      if (marks <= most || n === levels.length - 1) return n;
    }
    return 0;
  }

  // From where to where the intervals of a bar run, and whether the page knows it exactly: merged ones are drawn side by
  // side, as wide as the time they sum.
  function extent(n, i, lane) {
    const [level, finest] = [levels[n], levels[0]];
    const [since, until, part] = [level.before[i], level.before[i] + level.count[i], level.part[i]];
    let [start, end, exact] = [Infinity, -Infinity, true];
    for (let k = finest.first[lane]; k < finest.first[lane + 1]; k++) {
      if (finest.part[k] !== part || finest.before[k] < since || finest.before[k] >= until) continue;
      start = Math.min(start, finest.start[k]);
      end = Math.max(end, finest.end[k]);
      exact = exact && finest.item[k] >= 0;
    }
    return [start, end, exact];
  }

  // Which bars of a level stand for an interval that a function of items says yes to: 1 for those.
  function marked(n, says) {
    const [level, finest] = [levels[n], levels[0]];
    const found = new Uint8Array(level.item.length);
    for (let lane = 0; lane + 1 < level.first.length; lane++) {
      const hits = new Map(); // by part, in order
      for (let k = finest.first[lane]; k < finest.first[lane + 1]; k++)
        if (finest.item[k] >= 0 && says(finest.item[k])) {
          if (!hits.has(finest.part[k])) hits.set(finest.part[k], []);
          hits.get(finest.part[k]).push(finest.before[k]);
        }
      if (!hits.size) continue;
      for (let i = level.first[lane]; i < level.first[lane + 1]; i++) {
        const mine = hits.get(level.part[i]);
        if (!mine) continue;
        if (level.item[i] >= 0) found[i] = says(level.item[i]) ? 1 : 0;
        else {
          const next = mine[lowerBound(mine, 0, mine.length, level.before[i] - 1)];
          if (next < level.before[i] + level.count[i]) found[i] = 1;
        }
      }
    }
    return found;
  }

  return { levels, span, choose, extent, marked, item: (name) => columns[`item.${name}`] };
};
