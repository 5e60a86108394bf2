-- nvtx_projection: Every push/pop range on the GPU: from its first operation to its last.
--
-- An operation belongs to a range if its launch call began inside it, on its thread. Ranges of all domains, NCCL's
-- among them; a graph replay belongs to the ranges around its launch. Spans of nested ranges overlap: do not add them
-- up.
--
-- In memory: tables of API calls, of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _operations(kind, process, gpu, correlation, start_ns, end_ns)
-- requires: _calls(process, correlation, thread, start_ns)
-- requires: _states(state, thread, at_ns, stack)
-- requires: _ranges(range_row, process, start_ns, end_ns, name, domain)
-- column: gpu TEXT the GPU
-- column: pid INTEGER operating system's process id
-- column: range_row INTEGER row of the range in the export
-- column: name TEXT name
-- column: domain TEXT domain
-- column: host_start_ns INTEGER [ns] start on the host
-- column: host_end_ns INTEGER NULL [ns] end on the host
-- column: first_ns INTEGER [ns] start of the first operation
-- column: last_ns INTEGER [ns] end of the last operation
-- column: span_ns INTEGER [ns] last - first
-- column: launch_count INTEGER [count] launch calls
-- column: operation_count INTEGER [count] kernels, copies and sets
-- column: kernel_ns INTEGER [ns] kernel time
-- order: gpu, first_ns, host_start_ns, range_row
WITH
  -- One row for each launch call on each GPU: what it started, and what was open when it began.
  calls AS (
    SELECT
      process,
      correlation,
      gpu,
      count(*) AS operation_count,
      min(start_ns) AS first_ns,
      max(end_ns) AS last_ns,
      sum(iif(kind = 'kernel', end_ns - start_ns, 0)) AS kernel_ns
    FROM _operations
    GROUP BY process, correlation, gpu
  ),

  placed AS (
    SELECT
      o.gpu,
      o.operation_count,
      o.first_ns,
      o.last_ns,
      o.kernel_ns,
      (
        SELECT s.state
        FROM _states AS s
        WHERE s.thread = c.thread AND s.at_ns <= c.start_ns
        ORDER BY s.at_ns DESC, s.state DESC
        LIMIT 1
      ) AS state
    FROM calls AS o
    INNER JOIN _calls AS c ON o.process = c.process AND o.correlation = c.correlation
  ),

  by_state AS MATERIALIZED (
    SELECT
      gpu,
      state,
      count(*) AS launch_count,
      sum(operation_count) AS operation_count,
      sum(kernel_ns) AS kernel_ns,
      min(first_ns) AS first_ns,
      max(last_ns) AS last_ns
    FROM placed
    WHERE state IS NOT NULL
    GROUP BY gpu, state
  ),

  projected AS (
    SELECT
      b.gpu,
      j.value AS range_row,
      sum(b.launch_count) AS launch_count,
      sum(b.operation_count) AS operation_count,
      sum(b.kernel_ns) AS kernel_ns,
      min(b.first_ns) AS first_ns,
      max(b.last_ns) AS last_ns
    FROM by_state AS b
    INNER JOIN _states AS s ON b.state = s.state
    INNER JOIN json_each('[' || replace(trim(s.stack, '/'), '/', ',') || ']') AS j
    GROUP BY b.gpu, j.value
  )
SELECT
  p.gpu,
  (r.process >> 24) & 16777215 AS pid,
  p.range_row,
  r.name,
  r.domain,
  r.start_ns AS host_start_ns,
  r.end_ns AS host_end_ns,
  p.first_ns,
  p.last_ns,
  p.last_ns - p.first_ns AS span_ns,
  p.launch_count,
  p.operation_count,
  p.kernel_ns
FROM projected AS p
INNER JOIN _ranges AS r ON p.range_row = r.range_row
ORDER BY p.gpu, p.first_ns, host_start_ns, p.range_row;
