-- sync_sum: Time that host threads spent in synchronisation, by what they waited for.
--
-- From the synchronisation records of CUPTI. Two of one thread may be one inside the other.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start, end, deviceId, globalPid, syncType)
-- column: pid INTEGER NULL operating system's process id
-- column: device INTEGER NULL CUDA ordinal
-- column: waits_for TEXT event, stream, context, or stream wait event (which does not block the host)
-- column: sync_count INTEGER [count] synchronisations
-- column: sync_ns INTEGER [ns] their time
-- column: max_ns INTEGER [ns] the longest
-- order: sync_ns DESC, pid, device, waits_for
WITH
  syncs AS (
    SELECT
      globalPid & -16777216 AS process,
      deviceId AS device,
      CASE syncType
        WHEN 1 THEN 'event'
        WHEN 2 THEN 'stream wait event'
        WHEN 3 THEN 'stream'
        WHEN 4 THEN 'context'
        ELSE 'unknown'
      END AS waits_for,
      "end" - start AS duration_ns
    FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION
    WHERE "end" >= start
  )
SELECT
  (process >> 24) & 16777215 AS pid,
  device,
  waits_for,
  count(*) AS sync_count,
  sum(duration_ns) AS sync_ns,
  max(duration_ns) AS max_ns
FROM syncs
GROUP BY process, device, waits_for
ORDER BY sync_ns DESC, pid, device, waits_for;
