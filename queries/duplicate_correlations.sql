-- duplicate_correlations: Correlation ids that several API calls of one process share.
--
-- A correlation id is unique within a process; two processes may use the same. A runtime call and the driver call
-- inside it share one, which is no defect; other pairs make a join multiply kernels.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_RUNTIME(start, globalTid, correlationId, nameId)
-- requires: StringIds(id, value)
-- column: pid INTEGER operating system's process id
-- column: correlation INTEGER the id
-- column: call_count INTEGER [count] calls that have it
-- column: first_call TEXT name of the earliest
-- column: last_call TEXT name of the latest
-- column: first_ns INTEGER [ns] start of the earliest
-- order: pid, correlation
WITH
  calls AS (
    SELECT
      a.globalTid & -16777216 AS process,
      a.correlationId AS correlation,
      a.start AS start_ns,
      coalesce(s.value, '<string ' || a.nameId || '>') AS name
    FROM CUPTI_ACTIVITY_KIND_RUNTIME AS a
    LEFT JOIN StringIds AS s ON a.nameId = s.id
    WHERE a.globalTid IS NOT NULL AND a.correlationId IS NOT NULL
  ),

  ranked AS (
    SELECT
      process,
      correlation,
      start_ns,
      name,
      count(*) OVER (PARTITION BY process, correlation) AS call_count,
      row_number() OVER (PARTITION BY process, correlation ORDER BY start_ns, name) AS place
    FROM calls
  )
SELECT
  (process >> 24) & 16777215 AS pid,
  correlation,
  max(call_count) AS call_count,
  max(CASE WHEN place = 1 THEN name END) AS first_call,
  max(CASE WHEN place = call_count THEN name END) AS last_call,
  min(start_ns) AS first_ns
FROM ranked
WHERE call_count > 1
GROUP BY process, correlation
ORDER BY pid, correlation;
