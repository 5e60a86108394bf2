-- capture_health: Signs that a report is not whole, and how often each occurs.
--
-- Zero is a good sign, and no proof: nsys loses events and exits with 0. The codes are those of the warnings of
-- k25trace attribute, where there is one of that meaning.
--
-- In memory: a table of API calls with an index.
--
-- standalone: no
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(globalPid)
-- requires: _kernels(process, correlation)
-- requires: _calls(process, correlation, kind, failed)
-- requires: NVTX_EVENTS?(end, eventType, globalTid)
-- requires: DIAGNOSTIC_EVENT?(severity)
-- column: sign TEXT code of the sign
-- column: unit TEXT what is counted
-- column: found_count INTEGER [count] how many
-- order: sign
-- oracle: k25trace.analysis.Analysis.warnings
WITH
  signs AS (
    SELECT
      'unusable-times' AS sign,
      'kernels' AS unit,
      all_kernels.n - usable.n AS found_count
    FROM (SELECT count(globalPid) + sum(globalPid IS NULL) AS n FROM CUPTI_ACTIVITY_KIND_KERNEL) AS all_kernels
    CROSS JOIN (SELECT count(process) + coalesce(sum(process IS NULL), 0) AS n FROM _kernels) AS usable
    UNION ALL
    SELECT
      'kernels-without-launch',
      'kernels',
      count(*)
    FROM _kernels AS k
    LEFT JOIN _calls AS c ON k.process = c.process AND k.correlation = c.correlation
    WHERE c.correlation IS NULL
    UNION ALL
    SELECT
      'failed-calls',
      'launch calls',
      coalesce(sum(failed), 0)
    FROM _calls
    WHERE kind IN ('kernel_launch', 'graph_launch')
    UNION ALL
    SELECT
      'ranges-without-end',
      'ranges',
      count(*)
    FROM NVTX_EVENTS
    WHERE eventType IN (59, 60) AND "end" IS NULL AND globalTid IS NOT NULL
    UNION ALL
    SELECT
      'diagnostics',
      'messages of level warning or worse',
      count(*)
    FROM DIAGNOSTIC_EVENT
    WHERE severity > 1
  )
SELECT
  sign,
  unit,
  coalesce(found_count, 0) AS found_count
FROM signs
ORDER BY sign;
