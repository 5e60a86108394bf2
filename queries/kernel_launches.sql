-- kernel_launches: Calls that launch kernels: how many, and how many kernels they started.
--
-- By process and name of the call. Calls during a stream capture start nothing; one graph launch starts many.
--
-- In memory: a table of API calls with an index.
--
-- standalone: no
-- requires: _calls(process, correlation, start_ns, end_ns, name, kind)
-- requires: _kernels(process, correlation, start_ns, end_ns)
-- column: pid INTEGER operating system's process id
-- column: call TEXT name of the call
-- column: call_count INTEGER [count] calls
-- column: call_ns INTEGER [ns] time of the calls
-- column: without_kernel_count INTEGER [count] calls of which no kernel is recorded
-- column: kernel_count INTEGER [count] kernels that they started
-- column: kernel_ns INTEGER [ns] kernel time of those
-- order: pid, call_ns DESC, call
-- oracle: k25trace.attribution.Attribution.kernels
WITH
  started AS MATERIALIZED (
    SELECT
      process,
      correlation,
      count(*) AS kernel_count,
      sum(end_ns - start_ns) AS kernel_ns
    FROM _kernels
    GROUP BY process, correlation
  )
SELECT
  (c.process >> 24) & 16777215 AS pid,
  c.name AS call,
  count(*) AS call_count,
  sum(c.end_ns - c.start_ns) AS call_ns,
  sum(s.kernel_count IS NULL) AS without_kernel_count,
  coalesce(sum(s.kernel_count), 0) AS kernel_count,
  coalesce(sum(s.kernel_ns), 0) AS kernel_ns
FROM _calls AS c
LEFT JOIN started AS s ON c.process = s.process AND c.correlation = s.correlation
WHERE c.kind IN ('kernel_launch', 'graph_launch')
GROUP BY c.process, c.name
ORDER BY pid, call_ns DESC, call;
