-- queue_time: Queue time of the kernels of each GPU, from the end of the launch call.
--
-- max(0, kernel start - launch end); the kernels of a graph replay after its first have none. Long queue times are a
-- host that is ahead; zero is a GPU that waits for the host.
--
-- In memory: a table of API calls with an index.
--
-- standalone: no
-- requires: _kernels(kernel, process, gpu, correlation, graph_node, start_ns)
-- requires: _calls(process, correlation, end_ns)
-- column: gpu TEXT the GPU
-- column: kernel_count INTEGER [count] kernels that have a queue time
-- column: unqueued_count INTEGER [count] kernels among them whose queue time is 0
-- column: queue_ns INTEGER [ns] sum of the queue times
-- column: mean_ns INTEGER [ns] queue_ns / kernel_count, rounded down
-- column: p50_ns INTEGER [ns] median, by nearest rank
-- column: max_ns INTEGER [ns] longest queue time
-- order: gpu
-- oracle: k25trace.attribution.Attribution.kernels
WITH
  numbered AS (
    SELECT
      gpu,
      process,
      correlation,
      graph_node IS NOT NULL AS is_replayed,
      start_ns,
      row_number() OVER (PARTITION BY process, correlation, gpu ORDER BY start_ns, kernel) AS place
    FROM _kernels
  ),

  queued AS (
    SELECT
      n.gpu,
      max(0, n.start_ns - c.end_ns) AS queue_ns
    FROM numbered AS n
    INNER JOIN _calls AS c ON n.process = c.process AND n.correlation = c.correlation
    WHERE n.place = 1 OR NOT n.is_replayed
  ),

  ranked AS (
    SELECT
      gpu,
      queue_ns,
      row_number() OVER (PARTITION BY gpu ORDER BY queue_ns) AS place,
      count(*) OVER (PARTITION BY gpu) AS whole
    FROM queued
  )
SELECT
  gpu,
  count(*) AS kernel_count,
  sum(queue_ns = 0) AS unqueued_count,
  sum(queue_ns) AS queue_ns,
  sum(queue_ns) / count(*) AS mean_ns,
  max(CASE WHEN place = (whole * 50 + 99) / 100 THEN queue_ns END) AS p50_ns,
  max(queue_ns) AS max_ns
FROM ranked
GROUP BY gpu
ORDER BY gpu;
