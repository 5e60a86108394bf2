-- step_time: What each step took: on the host, and on each GPU.
--
-- A step is a push/pop range whose name matches the pattern, NCCL's own left out; of nested ones the outermost. A
-- kernel belongs to the step in which its launch call began. Steps are counted from 1 by their start, for each
-- process.
--
-- In memory: tables of API calls, of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _kernels(process, gpu, correlation, start_ns, end_ns)
-- requires: _ranges(range_row, is_push_pop, process, start_ns, end_ns, name, domain)
-- requires: _states(state, thread, at_ns, stack)
-- requires: _calls(process, correlation, thread, start_ns)
-- param: :step TEXT pattern (GLOB) of the names of the step ranges; default *step*
-- column: pid INTEGER operating system's process id
-- column: step INTEGER number of the step
-- column: name TEXT name of its range
-- column: gpu TEXT the GPU
-- column: host_ns INTEGER NULL [ns] length of the range on the host
-- column: span_ns INTEGER [ns] from the start of its first kernel to the end of its last
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- column: busy_ns INTEGER [ns] length of the union of its kernels
-- column: first_ns INTEGER [ns] start of its first kernel
-- order: pid, step, gpu
-- oracle: k25trace.attribution.Attribution.kernels
WITH
  asked AS (
    SELECT coalesce(nullif(:step, ''), '*step*') AS step
  ),

  steps AS MATERIALIZED (
    SELECT
      r.range_row,
      r.process,
      r.name,
      r.start_ns,
      r.end_ns
    FROM _ranges AS r
    CROSS JOIN asked AS a
    WHERE r.is_push_pop AND r.domain <> 'NCCL' AND r.name GLOB a.step
  ),

  placed AS (
    SELECT
      k.gpu,
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
      t.end_ns,
      row_number() OVER (PARTITION BY t.process ORDER BY t.start_ns, t.range_row) AS step
    FROM steps AS t
    INNER JOIN used AS u ON t.range_row = u.range_row
  ),

  ordered AS (
    SELECT
      o.range_row,
      p.gpu,
      p.start_ns,
      p.end_ns,
      max(p.end_ns) OVER (
        PARTITION BY o.range_row, p.gpu
        ORDER BY p.start_ns, p.end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS covered_until_ns
    FROM placed AS p
    INNER JOIN step_of AS o ON p.state = o.state
  ),

  summed AS (
    SELECT
      range_row,
      gpu,
      count(*) AS kernel_count,
      sum(end_ns - start_ns) AS kernel_ns,
      sum(max(0, end_ns - max(start_ns, coalesce(covered_until_ns, start_ns)))) AS busy_ns,
      min(start_ns) AS first_ns,
      max(end_ns) AS last_ns
    FROM ordered
    GROUP BY range_row, gpu
  )
SELECT
  (n.process >> 24) & 16777215 AS pid,
  n.step,
  n.name,
  s.gpu,
  n.end_ns - n.start_ns AS host_ns,
  s.last_ns - s.first_ns AS span_ns,
  s.kernel_count,
  s.kernel_ns,
  s.busy_ns,
  s.first_ns
FROM summed AS s
INNER JOIN numbered AS n ON s.range_row = n.range_row
ORDER BY pid, step, gpu;
