-- kernel_concurrency: For how long how many kernels ran at once on each GPU.
--
-- Sum of running_ns over all numbers of kernels: busy time. Sum of kernels_at_once * running_ns: kernel time.
--
-- standalone: no
-- requires: _kernels(gpu, start_ns, end_ns)
-- column: gpu TEXT the GPU
-- column: kernels_at_once INTEGER kernels that run at once
-- column: running_ns INTEGER [ns] time during which exactly so many ran
-- column: busy_share REAL [share] of the busy time of the GPU
-- order: gpu, kernels_at_once
-- oracle: k25trace.analysis.Analysis.gpus
WITH
  edges AS (
    SELECT
      gpu,
      start_ns AS at_ns,
      1 AS step
    FROM _kernels
    WHERE end_ns > start_ns
    UNION ALL
    SELECT
      gpu,
      end_ns AS at_ns,
      -1 AS step
    FROM _kernels
    WHERE end_ns > start_ns
  ),

  instants AS (
    SELECT
      gpu,
      at_ns,
      sum(step) AS step
    FROM edges
    GROUP BY gpu, at_ns
  ),

  segments AS (
    SELECT
      gpu,
      lead(at_ns, 1, at_ns) OVER by_time - at_ns AS segment_ns,
      sum(step) OVER by_time AS kernels_at_once
    FROM instants
    WINDOW by_time AS (PARTITION BY gpu ORDER BY at_ns)
  )
SELECT
  gpu,
  kernels_at_once,
  sum(segment_ns) AS running_ns,
  1.0 * sum(segment_ns) / sum(sum(segment_ns)) OVER (PARTITION BY gpu) AS busy_share
FROM segments
WHERE kernels_at_once > 0
GROUP BY gpu, kernels_at_once
ORDER BY gpu, kernels_at_once;
