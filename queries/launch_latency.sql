-- launch_latency: Launch latency of the kernels of each GPU.
--
-- From the start of the launch call to the start of the kernel. -- Percentiles by nearest rank. Negative values come
-- from the conversion of clocks: they are counted and never clipped. For a graph replay, only the first kernel on
-- each GPU says something of the launch; the others are left out.
--
-- In memory: a table of API calls with an index.
--
-- standalone: no
-- requires: _kernels(kernel, process, gpu, correlation, graph_node, start_ns)
-- requires: _calls(process, correlation, start_ns)
-- column: gpu TEXT the GPU
-- column: launched_by TEXT kernel launch or graph launch
-- column: kernel_count INTEGER [count] kernels
-- column: negative_count INTEGER [count] kernels that seem to start before their launch
-- column: min_ns INTEGER [ns] least launch latency
-- column: p50_ns INTEGER [ns] median
-- column: p90_ns INTEGER [ns] 90th percentile
-- column: p99_ns INTEGER [ns] 99th percentile
-- column: max_ns INTEGER [ns] greatest launch latency
-- order: gpu, launched_by
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

  latencies AS (
    SELECT
      n.gpu,
      iif(n.is_replayed, 'graph launch', 'kernel launch') AS launched_by,
      n.start_ns - c.start_ns AS latency_ns
    FROM numbered AS n
    INNER JOIN _calls AS c ON n.process = c.process AND n.correlation = c.correlation
    WHERE n.place = 1 OR NOT n.is_replayed
  ),

  ranked AS (
    SELECT
      gpu,
      launched_by,
      latency_ns,
      row_number() OVER (PARTITION BY gpu, launched_by ORDER BY latency_ns) AS place,
      count(*) OVER (PARTITION BY gpu, launched_by) AS whole
    FROM latencies
  )
SELECT
  gpu,
  launched_by,
  count(*) AS kernel_count,
  sum(latency_ns < 0) AS negative_count,
  min(latency_ns) AS min_ns,
  max(CASE WHEN place = (whole * 50 + 99) / 100 THEN latency_ns END) AS p50_ns,
  max(CASE WHEN place = (whole * 90 + 99) / 100 THEN latency_ns END) AS p90_ns,
  max(CASE WHEN place = (whole * 99 + 99) / 100 THEN latency_ns END) AS p99_ns,
  max(latency_ns) AS max_ns
FROM ranked
GROUP BY gpu, launched_by
ORDER BY gpu, launched_by;
