-- capture_health: Signs that a report is not whole, and how often each occurs.
--
-- Zero is a good sign, and no proof: nsys loses events and exits with 0. NULL: the report lacks the table that would
-- tell. The codes are those of the warnings of k25trace attribute, where there is one of that meaning.
--
-- In memory: a table of API calls with an index.
--
-- standalone: no
-- requires: k25_tables(name)
-- requires: CUPTI_ACTIVITY_KIND_KERNEL?(globalPid)
-- requires: _kernels?(process, correlation)
-- requires: _calls?(process, correlation, kind, failed)
-- requires: NVTX_EVENTS?(end, eventType, globalTid)
-- requires: DIAGNOSTIC_EVENT?(severity)
-- column: sign TEXT code of the sign
-- column: unit TEXT what is counted
-- column: found_count INTEGER NULL [count] how many; NULL: nothing in the report tells
-- order: sign
-- oracle: k25trace.analysis.Analysis.warnings
WITH
  there AS (
    SELECT
      max(name = 'CUPTI_ACTIVITY_KIND_KERNEL') AS kernels,
      max(name = 'CUPTI_ACTIVITY_KIND_RUNTIME') AS calls,
      max(name = 'NVTX_EVENTS') AS ranges,
      max(name = 'DIAGNOSTIC_EVENT') AS messages
    FROM k25_tables
  ),

  signs AS (
    SELECT
      'unusable-times' AS sign,
      'kernels' AS unit,
      CASE WHEN t.kernels THEN all_kernels.n - usable.n END AS found_count
    FROM there AS t
    CROSS JOIN (SELECT count(globalPid) + coalesce(sum(globalPid IS NULL), 0) AS n FROM CUPTI_ACTIVITY_KIND_KERNEL)
      AS all_kernels
    CROSS JOIN (SELECT count(process) + coalesce(sum(process IS NULL), 0) AS n FROM _kernels) AS usable
    UNION ALL
    SELECT
      'kernels-without-launch',
      'kernels',
      CASE WHEN t.kernels AND t.calls THEN (
        SELECT count(*)
        FROM _kernels AS k
        LEFT JOIN _calls AS c ON k.process = c.process AND k.correlation = c.correlation
        WHERE c.correlation IS NULL
      ) END
    FROM there AS t
    UNION ALL
    SELECT
      'failed-calls',
      'launch calls',
      CASE WHEN t.calls THEN (
        SELECT coalesce(sum(failed), 0)
        FROM _calls
        WHERE kind IN ('kernel_launch', 'graph_launch')
      ) END
    FROM there AS t
    UNION ALL
    SELECT
      'ranges-without-end',
      'ranges',
      CASE WHEN t.ranges THEN (
        SELECT count(*)
        FROM NVTX_EVENTS
        WHERE eventType IN (59, 60) AND "end" IS NULL AND globalTid IS NOT NULL
      ) END
    FROM there AS t
    UNION ALL
    SELECT
      'diagnostics',
      'messages of level warning or worse',
      CASE WHEN t.messages THEN (
        SELECT count(*)
        FROM DIAGNOSTIC_EVENT
        WHERE severity > 1
      ) END
    FROM there AS t
  )
SELECT
  sign,
  unit,
  found_count
FROM signs
ORDER BY sign;
