-- step_edges: The first and the last kernel of each step on each GPU.
--
-- A step is a push/pop range whose name matches the pattern, NCCL's own left out; of nested ones the outermost. A
-- kernel belongs to the step in which its launch call began. Steps are counted from 1 by their start, for each
-- process. First is by start, last by end; of several at one instant the first by name.
--
-- In memory: tables of API calls, of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _launched(gpu, name, start_ns, end_ns, state)
-- requires: _step_states(state, range_row)
-- requires: _steps(range_row, pid, step, name)
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
  inside AS MATERIALIZED (
    SELECT
      s.range_row,
      k.gpu,
      k.name,
      k.start_ns,
      k.end_ns
    FROM _launched AS k
    INNER JOIN _step_states AS s ON k.state = s.state
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
  n.pid,
  n.step,
  n.name,
  e.gpu,
  e.first_kernel,
  e.first_ns,
  e.last_kernel,
  e.last_ns
FROM edges AS e
INNER JOIN _steps AS n ON e.range_row = n.range_row
ORDER BY pid, step, gpu;
