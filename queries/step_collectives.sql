-- step_collectives: Communication kernels of each step on each GPU, by category.
--
-- A step is a push/pop range whose name matches the pattern, NCCL's own left out; of nested ones the outermost. A
-- kernel belongs to the step in which its launch call began. Steps are counted from 1 by their start, for each
-- process. Whether ranks agree on how many collectives a step has is the first thing to look at when they do not pair
-- up.
--
-- In memory: tables of API calls, of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _kernels(process, gpu, correlation, start_ns, end_ns, category, is_communication)
-- requires: _ranges(range_row, is_push_pop, process, start_ns, name, domain)
-- requires: _states(state, thread, at_ns, stack)
-- requires: _calls(process, correlation, thread, start_ns)
-- param: :step TEXT pattern (GLOB) of the names of the step ranges; default *step*
-- column: pid INTEGER operating system's process id
-- column: step INTEGER number of the step
-- column: name TEXT name of its range
-- column: gpu TEXT the GPU
-- column: category TEXT category of the collective
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time, waiting for other ranks included
-- column: max_ns INTEGER [ns] longest kernel
-- order: pid, step, gpu, category
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
      k.category,
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
    WHERE k.is_communication
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
  )
SELECT
  (n.process >> 24) & 16777215 AS pid,
  n.step,
  n.name,
  p.gpu,
  p.category,
  count(*) AS kernel_count,
  sum(p.end_ns - p.start_ns) AS kernel_ns,
  max(p.end_ns - p.start_ns) AS max_ns
FROM placed AS p
INNER JOIN step_of AS o ON p.state = o.state
INNER JOIN numbered AS n ON o.range_row = n.range_row
GROUP BY n.process, n.step, n.name, p.gpu, p.category
ORDER BY pid, step, gpu, category;
