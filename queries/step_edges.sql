-- step_edges: The first and the last kernel of each step on each GPU.
--
-- A step is a push/pop range whose name matches the pattern, NCCL's own left out; of nested ones the outermost. A
-- kernel belongs to the step in which its launch call began. Steps are counted from 1 by their start, for each
-- process. First is by start, last by end; of several at one instant the first by name.
--
-- In memory: tables of API calls, of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _kernels(process, gpu, correlation, start_ns, end_ns, name)
-- requires: _ranges(range_row, is_push_pop, process, start_ns, name, domain)
-- requires: _states(state, thread, at_ns, stack)
-- requires: _calls(process, correlation, thread, start_ns)
-- param: :step TEXT pattern (GLOB) of the names of the step ranges; default *step*
-- column: pid INTEGER operating system's process id
-- column: step INTEGER number of the step
-- column: name TEXT name of its range
-- column: gpu TEXT the GPU
-- column: first_kernel TEXT name of the kernel that starts first
-- column: first_ns INTEGER [ns] its start
-- column: last_kernel TEXT name of the kernel that ends last
-- column: last_ns INTEGER [ns] its end
-- order: pid, step, gpu
WITH
  asked AS (
    SELECT coalesce(nullif(:step, ''), '*step*') AS step
  ),

  steps AS MATERIALIZED (
    SELECT
      r.range_row,
      r.process,
      r.name,
      r.start_ns
    FROM _ranges AS r
    CROSS JOIN asked AS a
    WHERE r.is_push_pop AND r.domain <> 'NCCL' AND r.name GLOB a.step
  ),

  placed AS (
    SELECT
      k.gpu,
      k.name,
      k.start_ns,
      k.end_ns,
      (
        SELECT s.state
        FROM _states AS s
        WHERE s.thread = c.thread AND s.at_ns <= c.start_ns
        ORDER BY s.at_ns DESC, s.state DESC
        LIMIT 1
      ) AS state
    FROM _kernels AS k
    INNER JOIN _calls AS c ON k.process = c.process AND k.correlation = c.correlation
  ),

  -- The step of a state is the outermost range of its stack that is one.
  step_of AS MATERIALIZED (
    SELECT
      s.state,
      t.range_row,
      min(j.key) AS place
    FROM _states AS s
    INNER JOIN json_each('[' || replace(trim(s.stack, '/'), '/', ',') || ']') AS j
    INNER JOIN steps AS t ON j.value = t.range_row
    GROUP BY s.state
  ),

  used AS (
    SELECT DISTINCT range_row
    FROM step_of
  ),

  numbered AS MATERIALIZED (
    SELECT
      t.range_row,
      t.process,
      t.name,
      t.start_ns,
      row_number() OVER (PARTITION BY t.process ORDER BY t.start_ns, t.range_row) AS step
    FROM steps AS t
    INNER JOIN used AS u ON t.range_row = u.range_row
  ),

  inside AS MATERIALIZED (
    SELECT
      o.range_row,
      p.gpu,
      p.name,
      p.start_ns,
      p.end_ns
    FROM placed AS p
    INNER JOIN step_of AS o ON p.state = o.state
  ),

  bounds AS MATERIALIZED (
    SELECT
      range_row,
      gpu,
      min(start_ns) AS first_ns,
      max(end_ns) AS last_ns
    FROM inside
    GROUP BY range_row, gpu
  ),

  edges AS (
    SELECT
      b.range_row,
      b.gpu,
      b.first_ns,
      b.last_ns,
      min(CASE WHEN i.start_ns = b.first_ns THEN i.name END) AS first_kernel,
      min(CASE WHEN i.end_ns = b.last_ns THEN i.name END) AS last_kernel
    FROM inside AS i
    INNER JOIN bounds AS b ON i.range_row = b.range_row AND i.gpu = b.gpu
    WHERE i.start_ns = b.first_ns OR i.end_ns = b.last_ns
    GROUP BY b.range_row, b.gpu
  )
SELECT
  (n.process >> 24) & 16777215 AS pid,
  n.step,
  n.name,
  e.gpu,
  e.first_kernel,
  e.first_ns,
  e.last_kernel,
  e.last_ns
FROM edges AS e
INNER JOIN numbered AS n ON e.range_row = n.range_row
ORDER BY pid, step, gpu;
