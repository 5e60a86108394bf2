-- kernel_sum: Kernel time by kernel name, over all GPUs.
--
-- Kernel time is the sum of durations; kernels that run at once count each. The share is of the kernel time of all
-- kernels. Kernels whose times cannot be true are left out: both 0, an end before the start, more than 60 s outside
-- the capture.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end, demangledName)
-- requires: StringIds(id, value)
-- requires: ANALYSIS_DETAILS(duration)
-- column: name TEXT demangled name
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- column: kernel_share REAL [share] kernel time of the name / kernel time of all
-- column: mean_ns INTEGER [ns] kernel_ns / kernel_count, rounded down
-- column: min_ns INTEGER [ns] shortest kernel
-- column: max_ns INTEGER [ns] longest kernel
-- order: kernel_ns DESC, name
-- oracle: k25trace.analysis.Analysis.kernels
WITH
  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  kernels AS (
    SELECT
      coalesce(s.value, '<string ' || k.demangledName || '>', '<kernel without a name>') AS name,
      k."end" - k.start AS duration_ns
    FROM bounds AS b
    CROSS JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k
    LEFT JOIN StringIds AS s ON k.demangledName = s.id
    WHERE
      k.start >= b.lowest_ns
      AND k."end" <= b.highest_ns
      AND k."end" >= k.start
      AND NOT (k.start = 0 AND k."end" = 0)
  )
SELECT
  name,
  count(*) AS kernel_count,
  sum(duration_ns) AS kernel_ns,
  coalesce(1.0 * sum(duration_ns) / nullif(sum(sum(duration_ns)) OVER (), 0), 0.0) AS kernel_share,
  sum(duration_ns) / count(*) AS mean_ns,
  min(duration_ns) AS min_ns,
  max(duration_ns) AS max_ns
FROM kernels
GROUP BY name
ORDER BY kernel_ns DESC, name;
