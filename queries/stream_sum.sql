-- stream_sum: Kernels and kernel time of each stream of each process.
--
-- A stream runs its kernels one after the other, unless they are launched programmatically dependent: then they
-- overlap.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, globalPid, streamId)
-- requires: ANALYSIS_DETAILS(duration)
-- column: pid INTEGER NULL operating system's process id
-- column: device INTEGER CUDA ordinal
-- column: stream INTEGER NULL stream
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- column: overlap_count INTEGER [count] kernels that start before the one ahead of them on the stream ends
-- column: first_ns INTEGER [ns] start of the first kernel
-- column: last_ns INTEGER [ns] end of the last kernel
-- order: pid, device, stream
WITH
  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  kernels AS (
    SELECT
      k.globalPid & -16777216 AS process,
      coalesce(k.deviceId, 0) AS device,
      k.streamId AS stream,
      k.start AS start_ns,
      k."end" AS end_ns
    FROM bounds AS b
    CROSS JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k
    WHERE
      k.start >= b.lowest_ns
      AND k."end" <= b.highest_ns
      AND k."end" >= k.start
      AND NOT (k.start = 0 AND k."end" = 0)
  ),

  ordered AS (
    SELECT
      process,
      device,
      stream,
      start_ns,
      end_ns,
      lag(end_ns) OVER (PARTITION BY process, device, stream ORDER BY start_ns, end_ns) AS ahead_ns
    FROM kernels
  )
SELECT
  (process >> 24) & 16777215 AS pid,
  device,
  stream,
  count(*) AS kernel_count,
  sum(end_ns - start_ns) AS kernel_ns,
  sum(coalesce(start_ns < ahead_ns, 0)) AS overlap_count,
  min(start_ns) AS first_ns,
  max(end_ns) AS last_ns
FROM ordered
GROUP BY process, device, stream
ORDER BY pid, device, stream;
