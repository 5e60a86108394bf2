-- _ranges: NVTX ranges with their names and domains.
--
-- A domain that was never created in the recording is NCCL's if the names of all its ranges begin with nccl.
--
-- standalone: no
-- requires: NVTX_EVENTS(rowid, start, end, eventType, globalTid, text, textId?, domainId?)
-- requires: StringIds?(id, value)
-- column: range_row INTEGER row of the export
-- column: is_push_pop INTEGER 1 for push/pop, 0 for start/end
-- column: process INTEGER globalPid
-- column: thread INTEGER globalTid of the thread that opened it
-- column: start_ns INTEGER [ns] start
-- column: end_ns INTEGER NULL [ns] end; NULL if it was never closed
-- column: name TEXT its name, empty if it has none
-- column: domain TEXT its domain
-- index: range_row
WITH
  events AS (
    SELECT
      e.rowid AS range_row,
      e.eventType AS event_type,
      e.globalTid & -16777216 AS process,
      e.globalTid AS thread,
      coalesce(e.domainId, 0) AS domain_id,
      e.start AS start_ns,
      e."end" AS end_ns,
      coalesce(e.text, s.value, '<string ' || e.textId || '>', '') AS name
    FROM NVTX_EVENTS AS e
    LEFT JOIN StringIds AS s ON e.textId = s.id
    WHERE e.eventType IN (59, 60, 75) AND e.globalTid IS NOT NULL
  ),

  -- max() makes SQLite take the other columns from the same row: the last creation.
  created AS (
    SELECT
      process,
      domain_id,
      name AS domain,
      max(range_row) AS last_row
    FROM events
    WHERE event_type = 75
    GROUP BY process, domain_id
  ),

  used AS (
    SELECT
      process,
      domain_id,
      min(name GLOB 'nccl*') AS all_nccl
    FROM events
    WHERE event_type <> 75
    GROUP BY process, domain_id
  ),

  domains AS (
    SELECT
      u.process,
      u.domain_id,
      CASE
        WHEN c.domain IS NOT NULL THEN c.domain
        WHEN u.domain_id = 0 THEN 'default'
        WHEN u.all_nccl THEN 'NCCL'
        ELSE 'domain ' || u.domain_id
      END AS domain
    FROM used AS u
    LEFT JOIN created AS c ON u.process = c.process AND u.domain_id = c.domain_id
  )
SELECT
  e.range_row,
  e.event_type = 59 AS is_push_pop,
  e.process,
  e.thread,
  e.start_ns,
  e.end_ns,
  e.name,
  d.domain
FROM events AS e
INNER JOIN domains AS d ON e.process = d.process AND e.domain_id = d.domain_id
WHERE e.event_type <> 75;
