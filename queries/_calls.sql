-- _calls: one CUDA API call for each process and correlation id.
--
-- Of several calls with one id (the runtime calls the driver) the launch call is meant, else the earliest.
--
-- standalone: no
-- requires: CUPTI_ACTIVITY_KIND_RUNTIME(rowid, start, end, globalTid, correlationId, nameId, returnValue)
-- requires: k25_call_kinds(name_id, name, kind)
-- column: process INTEGER globalPid
-- column: correlation INTEGER correlation id
-- column: thread INTEGER globalTid
-- column: start_ns INTEGER [ns] start
-- column: end_ns INTEGER [ns] end
-- column: name TEXT NULL name of the call
-- column: kind TEXT NULL kind of the call
-- column: failed INTEGER 1 if it returned an error
-- index: process, correlation
WITH
  ranked AS (
    SELECT
      a.globalTid & -16777216 AS process,
      a.correlationId AS correlation,
      a.globalTid AS thread,
      a.start AS start_ns,
      a."end" AS end_ns,
      n.name,
      n.kind,
      coalesce(a.returnValue <> 0, 0) AS failed,
      row_number() OVER (
        PARTITION BY a.globalTid & -16777216, a.correlationId
        ORDER BY coalesce(n.kind IN ('kernel_launch', 'graph_launch'), 0) DESC, a.start, a.rowid
      ) AS place
    FROM CUPTI_ACTIVITY_KIND_RUNTIME AS a
    LEFT JOIN k25_call_kinds AS n ON a.nameId = n.name_id
    WHERE a.correlationId IS NOT NULL AND a.globalTid IS NOT NULL
  )
SELECT
  process,
  correlation,
  thread,
  start_ns,
  end_ns,
  name,
  kind,
  failed
FROM ranked
WHERE place = 1;
