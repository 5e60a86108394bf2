-- graph_replays: CUDA graph launches, and what each of them ran.
--
-- A launch of which no kernel is recorded is opaque: captured with --cuda-graph-trace=graph, or lost. One inside a
-- stream capture launches nothing.
--
-- In memory: a table of API calls with an index.
--
-- standalone: no
-- requires: _calls(process, correlation, thread, start_ns, end_ns, kind, failed)
-- requires: _kernels(process, correlation, gpu, start_ns, end_ns)
-- column: pid INTEGER operating system's process id
-- column: start_ns INTEGER [ns] start of the call
-- column: call_ns INTEGER [ns] time of the call
-- column: gpu TEXT NULL the GPU; NULL: no kernel is recorded
-- column: kernel_count INTEGER [count] kernels of the replay
-- column: kernel_ns INTEGER [ns] their kernel time
-- column: first_ns INTEGER NULL [ns] start of the first kernel
-- column: last_ns INTEGER NULL [ns] end of the last kernel
-- column: correlation INTEGER correlation id of the call
-- column: thread INTEGER globalTid of the call
-- order: pid, start_ns, correlation, gpu
-- oracle: k25trace.trace.Trace.graph_calls
WITH
  replayed AS MATERIALIZED (
    SELECT
      process,
      correlation,
      gpu,
      count(*) AS kernel_count,
      sum(end_ns - start_ns) AS kernel_ns,
      min(start_ns) AS first_ns,
      max(end_ns) AS last_ns
    FROM _kernels
    GROUP BY process, correlation, gpu
  )
SELECT
  (c.process >> 24) & 16777215 AS pid,
  c.start_ns,
  c.end_ns - c.start_ns AS call_ns,
  r.gpu,
  coalesce(r.kernel_count, 0) AS kernel_count,
  coalesce(r.kernel_ns, 0) AS kernel_ns,
  r.first_ns,
  r.last_ns,
  c.correlation,
  c.thread
FROM _calls AS c
LEFT JOIN replayed AS r ON c.process = r.process AND c.correlation = r.correlation
WHERE c.kind = 'graph_launch' AND NOT c.failed
ORDER BY pid, c.start_ns, c.correlation, r.gpu;
