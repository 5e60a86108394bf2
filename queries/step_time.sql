-- step_time: What each step took: on the host, and on each GPU.
--
-- A step is a push/pop range whose name matches the pattern, NCCL's own left out; of nested ones the outermost. A
-- kernel belongs to the step in which its launch call began. Steps are counted from 1 by their start, for each
-- process.
--
-- In memory: tables of API calls, of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _launched(gpu, start_ns, end_ns, state)
-- requires: _step_states(state, range_row)
-- requires: _steps(range_row, pid, step, name, host_ns)
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
  ordered AS (
    SELECT
      s.range_row,
      k.gpu,
      k.start_ns,
      k.end_ns,
      max(k.end_ns) OVER (
        PARTITION BY s.range_row, k.gpu
        ORDER BY k.start_ns, k.end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS covered_until_ns
    FROM _launched AS k
    INNER JOIN _step_states AS s ON k.state = s.state
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
  n.pid,
  n.step,
  n.name,
  s.gpu,
  n.host_ns,
  s.last_ns - s.first_ns AS span_ns,
  s.kernel_count,
  s.kernel_ns,
  s.busy_ns,
  s.first_ns
FROM summed AS s
INNER JOIN _steps AS n ON s.range_row = n.range_row
ORDER BY pid, step, gpu;
