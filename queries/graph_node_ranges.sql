-- graph_node_ranges: In which NVTX ranges the nodes of the replayed kernels were captured.
--
-- Graph node to capture range: the names of the push/pop ranges that were open when the node was captured, without
-- those that were open already when the stream capture began, and without NCCL's. One row for each node that ran.
--
-- In memory: tables of ranges, of states and of graph nodes, each with an index.
--
-- standalone: no
-- requires: _kernels(process, graph_node, start_ns, end_ns, name)
-- requires: _captures(process, node, thread, at_ns, state)
-- requires: _states(state, stack, began_ns)
-- requires: _ranges(range_row, start_ns, name, domain)
-- column: pid INTEGER operating system's process id
-- column: node INTEGER graph node
-- column: captured_ns INTEGER NULL [ns] moment of its capture; NULL: not in the report
-- column: thread INTEGER NULL globalTid of the capture
-- column: path TEXT NULL names from outermost to innermost as a JSON array; NULL: captured under no range
-- column: kernel_count INTEGER [count] kernels that it ran
-- column: kernel_ns INTEGER [ns] their kernel time
-- column: name TEXT name of its kernel
-- order: pid, captured_ns, node, name
-- oracle: k25trace.attribution.Attribution.captures
WITH
  ran AS MATERIALIZED (
    SELECT
      process,
      graph_node AS node,
      name,
      count(*) AS kernel_count,
      sum(end_ns - start_ns) AS kernel_ns
    FROM _kernels
    WHERE graph_node IS NOT NULL
    GROUP BY process, graph_node, name
  ),

  members AS (
    SELECT
      s.state,
      j.key AS place,
      r.name
    FROM _states AS s
    INNER JOIN json_each('[' || replace(trim(s.stack, '/'), '/', ',') || ']') AS j
    INNER JOIN _ranges AS r ON j.value = r.range_row
    WHERE
      s.state IN (SELECT c.state FROM _captures AS c)
      AND r.domain <> 'NCCL'
      AND (s.began_ns IS NULL OR r.start_ns > s.began_ns)
  ),

  paths AS MATERIALIZED (
    SELECT DISTINCT
      state,
      json_group_array(name) OVER whole AS path
    FROM members
    WINDOW whole AS (
      PARTITION BY state
      ORDER BY place
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
  )
SELECT
  (k.process >> 24) & 16777215 AS pid,
  k.node,
  c.at_ns AS captured_ns,
  c.thread,
  p.path,
  k.kernel_count,
  k.kernel_ns,
  k.name
FROM ran AS k
LEFT JOIN _captures AS c ON k.process = c.process AND k.node = c.node
LEFT JOIN paths AS p ON c.state = p.state
ORDER BY pid, captured_ns, k.node, k.name;
