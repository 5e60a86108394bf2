-- time_by_path: Kernel time that each NVTX path owns, by GPU and category.
--
-- A kernel belongs to the push/pop ranges open on the launching thread when its launch call began; a kernel replayed
-- by a CUDA graph also to those in which its node was captured, without those that were open when the capture began.
-- The innermost owns it. Ranges of the domain NCCL never own. Every kernel is in exactly one row.
--
-- In memory: tables of API calls, of ranges, of states and of graph nodes, each with an index.
--
-- standalone: no
-- requires: _kernels(process, gpu, correlation, graph_node, start_ns, end_ns, category)
-- requires: _calls(process, correlation, thread, start_ns)
-- requires: _captures(process, node, state)
-- requires: _states(state, thread, at_ns, stack, began_ns)
-- requires: _ranges(range_row, start_ns, name, domain)
-- column: gpu TEXT the GPU
-- column: pid INTEGER NULL operating system's process id
-- column: via TEXT capture if ranges of the graph's capture are in the path, else launch
-- column: path TEXT NULL names from outermost to innermost as a JSON array; NULL: launched under no range
-- column: category TEXT category of the kernels
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- order: gpu, pid, path, via, category
-- oracle: k25trace.analysis.Analysis.ranges
WITH
  placed AS (
    SELECT
      k.gpu,
      k.process,
      k.category,
      k.end_ns - k.start_ns AS duration_ns,
      m.state AS captured,
      (
        SELECT s.state
        FROM _states AS s
        WHERE s.thread = c.thread AND s.at_ns <= c.start_ns
        ORDER BY s.at_ns DESC, s.state DESC
        LIMIT 1
      ) AS launched
    FROM _kernels AS k
    LEFT JOIN _calls AS c ON k.process = c.process AND k.correlation = c.correlation
    LEFT JOIN _captures AS m ON k.process = m.process AND k.graph_node = m.node
  ),

  summed AS MATERIALIZED (
    SELECT
      gpu,
      process,
      category,
      coalesce(launched, 0) AS launched,
      coalesce(captured, 0) AS captured,
      count(*) AS kernel_count,
      sum(duration_ns) AS kernel_ns
    FROM placed
    GROUP BY gpu, process, category, launched, captured
  ),

  cases AS MATERIALIZED (
    SELECT DISTINCT
      c.launched,
      c.captured,
      coalesce(l.stack, '/') AS launch_stack,
      m.stack AS capture_stack,
      m.began_ns
    FROM summed AS c
    LEFT JOIN _states AS l ON c.launched = l.state
    LEFT JOIN _states AS m ON c.captured = m.state
  ),

  members AS (
    SELECT
      c.launched,
      c.captured,
      0 AS part,
      j.key AS place,
      r.name
    FROM cases AS c
    INNER JOIN json_each('[' || replace(trim(c.launch_stack, '/'), '/', ',') || ']') AS j
    INNER JOIN _ranges AS r ON j.value = r.range_row
    WHERE r.domain <> 'NCCL'
    UNION ALL
    SELECT
      c.launched,
      c.captured,
      1 AS part,
      j.key AS place,
      r.name
    FROM cases AS c
    INNER JOIN json_each('[' || replace(trim(c.capture_stack, '/'), '/', ',') || ']') AS j
    INNER JOIN _ranges AS r ON j.value = r.range_row
    WHERE
      r.domain <> 'NCCL'
      AND (c.began_ns IS NULL OR r.start_ns > c.began_ns)
      AND instr(c.launch_stack, '/' || r.range_row || '/') = 0
  ),

  paths AS MATERIALIZED (
    SELECT DISTINCT
      launched,
      captured,
      max(part) OVER whole AS part,
      json_group_array(name) OVER whole AS path
    FROM members
    WINDOW whole AS (
      PARTITION BY launched, captured
      ORDER BY part, place
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
  )
SELECT
  s.gpu,
  (s.process >> 24) & 16777215 AS pid,
  iif(p.part = 1, 'capture', 'launch') AS via,
  p.path,
  s.category,
  sum(s.kernel_count) AS kernel_count,
  sum(s.kernel_ns) AS kernel_ns
FROM summed AS s
LEFT JOIN paths AS p ON s.launched = p.launched AND s.captured = p.captured
GROUP BY s.gpu, s.process, via, p.path, s.category
ORDER BY gpu, pid, path, via, category;
