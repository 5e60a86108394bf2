-- gpu_gaps: Maximal intervals in which a GPU runs no kernel, copy or set.
--
-- Inside the window of all GPUs, from the start of the first kernel to the end of the last. Where the report has no
-- opaque graph replays, the gaps of a GPU add up to its idle time; with them, the GPU may have worked in a gap.
--
-- standalone: no
-- requires: _operations(kind, gpu, start_ns, end_ns)
-- requires: k25_gpus(gpu)
-- param: :min_gap_ns INTEGER [ns] >=0 shortest gap shown; default 1
-- column: gpu TEXT the GPU
-- column: start_ns INTEGER [ns] start of the gap
-- column: end_ns INTEGER [ns] end of the gap
-- column: gap_ns INTEGER [ns] its length
-- order: gap_ns DESC, gpu, start_ns
-- oracle: k25trace.analysis.Analysis.gpus
WITH
  asked AS (
    SELECT coalesce(cast(nullif(:min_gap_ns, '') AS INTEGER), 1) AS min_gap_ns
  ),

  whole AS (
    SELECT
      min(start_ns) AS start_ns,
      max(end_ns) AS end_ns
    FROM _operations
    WHERE kind = 'kernel'
  ),

  -- An empty interval at either end of the window, so that the gaps there have two sides, too.
  bounded AS (
    SELECT
      gpu,
      start_ns,
      end_ns
    FROM _operations
    UNION ALL
    SELECT DISTINCT
      g.gpu,
      w.start_ns,
      w.start_ns
    FROM k25_gpus AS g
    CROSS JOIN whole AS w
    UNION ALL
    SELECT DISTINCT
      g.gpu,
      w.end_ns,
      w.end_ns
    FROM k25_gpus AS g
    CROSS JOIN whole AS w
  ),

  ordered AS (
    SELECT
      b.gpu,
      min(b.start_ns, w.end_ns) AS end_ns,
      max(
        w.start_ns,
        max(b.end_ns) OVER (
          PARTITION BY b.gpu
          ORDER BY b.start_ns, b.end_ns
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
      ) AS start_ns
    FROM bounded AS b
    CROSS JOIN whole AS w
  )
SELECT
  o.gpu,
  o.start_ns,
  o.end_ns,
  o.end_ns - o.start_ns AS gap_ns
FROM ordered AS o
CROSS JOIN asked AS a
WHERE o.end_ns > o.start_ns AND o.end_ns - o.start_ns >= a.min_gap_ns
ORDER BY gap_ns DESC, gpu, start_ns;
