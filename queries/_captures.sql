-- _captures: the host moment at which each CUDA graph node was captured, and what was open then.
--
-- A node can have several rows, and every instantiation clones it: the first original that differs from it is
-- followed until there is none, at most 33 times. The first row of the node at the end is the moment.
--
-- standalone: no
-- requires: _graph_nodes(process, node, original, thread, at_ns)
-- requires: _states(state, thread, at_ns)
-- column: process INTEGER globalPid
-- column: node INTEGER graph node
-- column: thread INTEGER NULL thread of the capture
-- column: at_ns INTEGER NULL [ns] moment of the capture; NULL if the original is not in the report
-- column: state INTEGER NULL state of the thread at that moment
-- index: process, node
WITH RECURSIVE
  chain AS (
    SELECT
      process,
      node,
      node AS origin,
      0 AS hops
    FROM _graph_nodes
    UNION ALL
    SELECT
      c.process,
      c.node,
      n.original,
      c.hops + 1
    FROM chain AS c
    INNER JOIN _graph_nodes AS n ON c.process = n.process AND c.origin = n.node
    WHERE n.original IS NOT NULL AND c.hops < 33
  ),

  ends AS (
    SELECT
      process,
      node,
      origin,
      max(hops) AS hops
    FROM chain
    GROUP BY process, node
  )
SELECT
  e.process,
  e.node,
  f.thread,
  f.at_ns,
  (
    SELECT s.state
    FROM _states AS s
    WHERE s.thread = f.thread AND s.at_ns <= f.at_ns
    ORDER BY s.at_ns DESC, s.state DESC
    LIMIT 1
  ) AS state
FROM ends AS e
LEFT JOIN _graph_nodes AS f ON e.process = f.process AND e.origin = f.node;
