-- gpu_busy: Busy time of each device ordinal inside a window.
--
-- Busy time is the length of the union of all kernel intervals on a device, over every stream and process, clipped to
-- the window: kernels that run at once count once. One ordinal is taken for one GPU. Where each process sees a GPU of
-- its own as ordinal 0 (CUDA_VISIBLE_DEVICES set for each rank), they all are in one row, whose busy time is of no GPU:
-- ask gpu_time instead. Kernels whose times cannot be true are left out: both 0, an end before the start, more than
-- 60 s outside the capture.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId)
-- requires: ANALYSIS_DETAILS(duration)
-- param: :window_start_ns INTEGER [ns] first instant of the window; default: start of the first kernel
-- param: :window_end_ns INTEGER [ns] end of the window; default: end of the last kernel
-- column: device INTEGER CUDA ordinal
-- column: kernel_count INTEGER [count] kernels in the window
-- column: kernel_ns INTEGER [ns] kernel time in the window
-- column: busy_ns INTEGER [ns] length of the union of the kernel intervals
-- order: device
-- oracle: k25trace.analysis.Analysis.gpus
WITH
  asked AS (
    SELECT
      cast(nullif(:window_start_ns, '') AS INTEGER) AS start_ns,
      cast(nullif(:window_end_ns, '') AS INTEGER) AS end_ns
  ),

  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  clipped AS (
    SELECT
      coalesce(k.deviceId, 0) AS device,
      max(k.start, coalesce(a.start_ns, k.start)) AS start_ns,
      min(k."end", coalesce(a.end_ns, k."end")) AS end_ns
    FROM bounds AS b
    CROSS JOIN asked AS a
    CROSS JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k
    WHERE
      k.start >= b.lowest_ns
      AND k."end" <= b.highest_ns
      AND k."end" >= k.start
      AND NOT (k.start = 0 AND k."end" = 0)
      AND coalesce(a.start_ns <= a.end_ns, 1)
      AND k.start < coalesce(a.end_ns, k.start + 1)
      AND (k."end" > coalesce(a.start_ns, k.start - 1) OR k.start >= a.start_ns)
  ),

  -- How far the kernels before each one reach: what of it lies beyond that is new.
  ordered AS (
    SELECT
      device,
      start_ns,
      end_ns,
      max(end_ns) OVER (
        PARTITION BY device
        ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS covered_until_ns
    FROM clipped
  )
SELECT
  device,
  count(*) AS kernel_count,
  sum(end_ns - start_ns) AS kernel_ns,
  sum(max(0, end_ns - max(start_ns, coalesce(covered_until_ns, start_ns)))) AS busy_ns
FROM ordered
GROUP BY device
ORDER BY device;
