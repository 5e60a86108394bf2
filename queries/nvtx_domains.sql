-- nvtx_domains: NVTX domains of each process, and how many ranges and marks each has.
--
-- Domain ids are a process's own: the same number may be another domain elsewhere.
--
-- standalone: yes
-- requires: NVTX_EVENTS(rowid, eventType, globalTid, text, textId, domainId)
-- requires: StringIds(id, value)
-- column: pid INTEGER operating system's process id
-- column: domain_id INTEGER number of the domain
-- column: name TEXT NULL its name; NULL: its creation is not in the report, and 0 is the default domain
-- column: range_count INTEGER [count] push/pop and start/end ranges
-- column: mark_count INTEGER [count] marks
-- order: pid, domain_id
WITH
  events AS (
    SELECT
      e.rowid AS place,
      e.globalTid & -16777216 AS process,
      coalesce(e.domainId, 0) AS domain_id,
      e.eventType AS event_type,
      coalesce(e.text, s.value, '<string ' || e.textId || '>', '') AS name
    FROM NVTX_EVENTS AS e
    LEFT JOIN StringIds AS s ON e.textId = s.id
    WHERE e.globalTid IS NOT NULL
  ),

  created AS (
    SELECT
      process,
      domain_id,
      name,
      max(place) AS place
    FROM events
    WHERE event_type = 75
    GROUP BY process, domain_id
  )
SELECT
  (e.process >> 24) & 16777215 AS pid,
  e.domain_id,
  max(c.name) AS name,
  sum(e.event_type IN (59, 60)) AS range_count,
  sum(e.event_type = 34) AS mark_count
FROM events AS e
LEFT JOIN created AS c ON e.process = c.process AND e.domain_id = c.domain_id
GROUP BY e.process, e.domain_id
ORDER BY pid, e.domain_id;
