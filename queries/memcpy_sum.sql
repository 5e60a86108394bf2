-- memcpy_sum: Memory copies by direction and size.
--
-- Sizes are in classes, named by their least size. Bandwidth is bytes / time of the copies, not of the link: copies
-- that run at once share it.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_MEMCPY(start, end, bytes, copyKind)
-- requires: ANALYSIS_DETAILS(duration)
-- column: direction TEXT from where to where
-- column: from_bytes INTEGER [bytes] least size of the class: 0, 1 KiB, 64 KiB, 1 MiB, 16 MiB or 256 MiB
-- column: copy_count INTEGER [count] copies
-- column: copied_bytes INTEGER [bytes] bytes copied
-- column: copy_ns INTEGER [ns] time of the copies
-- column: bytes_per_us INTEGER NULL copied bytes / microsecond of the copies, which is MB/s, rounded down
-- order: copy_ns DESC, direction, from_bytes
WITH
  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  copies AS (
    SELECT
      CASE k.copyKind
        WHEN 1 THEN 'host to device'
        WHEN 2 THEN 'device to host'
        WHEN 8 THEN 'device to device'
        WHEN 9 THEN 'host to host'
        WHEN 10 THEN 'peer to peer'
        WHEN 11 THEN 'managed host to device'
        WHEN 12 THEN 'managed device to host'
        WHEN 13 THEN 'managed device to device'
        ELSE 'kind ' || coalesce(k.copyKind, 'unknown')
      END AS direction,
      CASE
        WHEN k.bytes >= 268435456 THEN 268435456
        WHEN k.bytes >= 16777216 THEN 16777216
        WHEN k.bytes >= 1048576 THEN 1048576
        WHEN k.bytes >= 65536 THEN 65536
        WHEN k.bytes >= 1024 THEN 1024
        ELSE 0
      END AS from_bytes,
      coalesce(k.bytes, 0) AS copied_bytes,
      k."end" - k.start AS duration_ns
    FROM bounds AS b
    CROSS JOIN CUPTI_ACTIVITY_KIND_MEMCPY AS k
    WHERE
      k.start >= b.lowest_ns
      AND k."end" <= b.highest_ns
      AND k."end" >= k.start
      AND NOT (k.start = 0 AND k."end" = 0)
  )
SELECT
  direction,
  from_bytes,
  count(*) AS copy_count,
  sum(copied_bytes) AS copied_bytes,
  sum(duration_ns) AS copy_ns,
  1000 * sum(copied_bytes) / nullif(sum(duration_ns), 0) AS bytes_per_us
FROM copies
GROUP BY direction, from_bytes
ORDER BY copy_ns DESC, direction, from_bytes;
