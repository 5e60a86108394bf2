-- nvtx_ranges: NVTX ranges by process and name: how many, how long on the host.
--
-- Push/pop and start/end ranges; their time on the host says nothing of the GPU. Ranges of one name may lie inside
-- each other. A range that was never closed has no length.
--
-- standalone: yes
-- requires: NVTX_EVENTS(start, end, eventType, globalTid, text, textId)
-- requires: StringIds(id, value)
-- column: pid INTEGER operating system's process id
-- column: kind TEXT pushpop or startend
-- column: name TEXT name, empty if it has none
-- column: range_count INTEGER [count] ranges
-- column: open_count INTEGER [count] ranges that were never closed
-- column: host_ns INTEGER [ns] sum of their lengths
-- column: min_ns INTEGER NULL [ns] shortest
-- column: max_ns INTEGER NULL [ns] longest
-- column: first_ns INTEGER [ns] start of the first
-- order: pid, host_ns DESC, kind, name
-- oracle: k25trace.trace.Trace.ranges
WITH
  ranges AS (
    SELECT
      e.globalTid & -16777216 AS process,
      iif(e.eventType = 59, 'pushpop', 'startend') AS kind,
      coalesce(e.text, s.value, '<string ' || e.textId || '>', '') AS name,
      e.start AS start_ns,
      e."end" AS end_ns
    FROM NVTX_EVENTS AS e
    LEFT JOIN StringIds AS s ON e.textId = s.id
    WHERE e.eventType IN (59, 60) AND e.globalTid IS NOT NULL
  )
SELECT
  (process >> 24) & 16777215 AS pid,
  kind,
  name,
  count(*) AS range_count,
  sum(end_ns IS NULL) AS open_count,
  coalesce(sum(end_ns - start_ns), 0) AS host_ns,
  min(end_ns - start_ns) AS min_ns,
  max(end_ns - start_ns) AS max_ns,
  min(start_ns) AS first_ns
FROM ranges
GROUP BY process, kind, name
ORDER BY pid, host_ns DESC, kind, name;
