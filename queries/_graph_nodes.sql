-- _graph_nodes: one row for each CUDA graph node: its first creation, and the original it was made from.
--
-- A node can have several rows; the original is the one of the earliest row that names another node.
--
-- standalone: no
-- requires: CUDA_GRAPH_NODE_EVENTS?(start, globalTid, graphNodeId, originalGraphNodeId)
-- column: process INTEGER globalPid
-- column: node INTEGER graph node
-- column: original INTEGER NULL the node it was made from; NULL: made by the capture itself
-- column: thread INTEGER thread of its first row
-- column: at_ns INTEGER [ns] moment of its first row
-- index: process, node
WITH
  ranked AS (
    SELECT
      globalTid & -16777216 AS process,
      graphNodeId AS node,
      nullif(originalGraphNodeId, graphNodeId) AS original,
      globalTid AS thread,
      start AS at_ns,
      row_number() OVER (PARTITION BY globalTid & -16777216, graphNodeId ORDER BY start) AS place
    FROM CUDA_GRAPH_NODE_EVENTS
    WHERE globalTid IS NOT NULL AND graphNodeId IS NOT NULL
  ),

  -- min() makes SQLite take the original from the earliest row that has one.
  links AS MATERIALIZED (
    SELECT
      process,
      node,
      original,
      min(at_ns) AS first_ns
    FROM ranked
    WHERE original IS NOT NULL
    GROUP BY process, node
  )
SELECT
  r.process,
  r.node,
  l.original,
  r.thread,
  r.at_ns
FROM ranked AS r
LEFT JOIN links AS l ON r.process = l.process AND r.node = l.node
WHERE r.place = 1;
