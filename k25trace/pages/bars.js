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

  return { levels, span, choose, item: (name) => columns[`item.${name}`] };
};
