-- kernel_percentiles: Percentiles of kernel durations by kernel name.
--
-- Nearest rank: the p-th percentile of n durations is the one at place ceil(p * n / 100). Kernels whose times cannot
-- be true are left out: both 0, an end before the start, more than 60 s outside the capture.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end, demangledName)
-- requires: StringIds(id, value)
-- requires: ANALYSIS_DETAILS(duration)
-- column: name TEXT demangled name
-- column: kernel_count INTEGER [count] kernels
-- column: p50_ns INTEGER [ns] median
-- column: p90_ns INTEGER [ns] 90th percentile
-- column: p99_ns INTEGER [ns] 99th percentile
-- column: max_ns INTEGER [ns] longest kernel
-- order: kernel_count DESC, name
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
  ),

  ranked AS (
    SELECT
      name,
      duration_ns,
      row_number() OVER (PARTITION BY name ORDER BY duration_ns) AS place,
      count(*) OVER (PARTITION BY name) AS kernel_count
    FROM kernels
  )
SELECT
  name,
  count(*) AS kernel_count,
  max(CASE WHEN place = (kernel_count * 50 + 99) / 100 THEN duration_ns END) AS p50_ns,
  max(CASE WHEN place = (kernel_count * 90 + 99) / 100 THEN duration_ns END) AS p90_ns,
  max(CASE WHEN place = (kernel_count * 99 + 99) / 100 THEN duration_ns END) AS p99_ns,
  max(duration_ns) AS max_ns
FROM ranked
GROUP BY name
ORDER BY kernel_count DESC, name;
