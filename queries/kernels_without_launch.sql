-- kernels_without_launch: Kernels whose launch call is not in the report, by process and name.
--
-- A sign of lost events, or of a recording that began between launch and kernel.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end, globalPid, correlationId, demangledName)
-- requires: CUPTI_ACTIVITY_KIND_RUNTIME(globalTid, correlationId)
-- requires: StringIds(id, value)
-- requires: ANALYSIS_DETAILS(duration)
-- column: pid INTEGER NULL operating system's process id
-- column: name TEXT demangled name
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- order: kernel_ns DESC, pid, name
-- oracle: k25trace.attribution.Attribution.kernels
WITH
  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  calls AS MATERIALIZED (
    SELECT DISTINCT
      globalTid & -16777216 AS process,
      correlationId AS correlation
    FROM CUPTI_ACTIVITY_KIND_RUNTIME
    WHERE globalTid IS NOT NULL AND correlationId IS NOT NULL
  ),

  kernels AS (
    SELECT
      k.globalPid & -16777216 AS process,
      k.correlationId AS correlation,
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
  (k.process >> 24) & 16777215 AS pid,
  k.name,
  count(*) AS kernel_count,
  sum(k.duration_ns) AS kernel_ns
FROM kernels AS k
LEFT JOIN calls AS c ON k.process = c.process AND k.correlation = c.correlation
WHERE c.correlation IS NULL
GROUP BY k.process, k.name
ORDER BY kernel_ns DESC, pid, name;
