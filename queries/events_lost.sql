-- events_lost: Innermost NVTX ranges of each process, and how many of them hold no API call.
--
-- nsys loses events and exits with 0. Then ranges go on while the calls inside them stop: in captures that lost most
-- kernels, over 90 % of the innermost ranges were empty, in whole ones up to 63 % (ranges around host code alone are
-- empty, too). Push/pop ranges of all domains; innermost is one inside which no other opens on its thread.
--
-- In memory: tables of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _ranges(range_row, is_push_pop, process, thread, start_ns, end_ns)
-- requires: _states(stack)
-- requires: CUPTI_ACTIVITY_KIND_RUNTIME(start, globalTid)
-- column: pid INTEGER operating system's process id
-- column: innermost_count INTEGER [count] innermost ranges
-- column: empty_count INTEGER [count] innermost ranges without an API call
-- column: empty_share REAL [share] empty_count / innermost_count
-- column: call_count INTEGER [count] API calls of the process
-- order: pid
WITH
  -- Whatever is above another range in some state is not innermost.
  outer_ranges AS MATERIALIZED (
    SELECT DISTINCT cast(j.value AS INTEGER) AS range_row
    FROM _states AS s
    INNER JOIN json_each(
      '[' || replace(trim(rtrim(rtrim(s.stack, '/'), '0123456789'), '/'), '/', ',') || ']'
    ) AS j
  ),

  innermost AS (
    SELECT
      r.process,
      r.thread,
      r.start_ns,
      coalesce(r.end_ns, 4611686018427387904) AS end_ns
    FROM _ranges AS r
    LEFT JOIN outer_ranges AS o ON r.range_row = o.range_row
    WHERE r.is_push_pop AND o.range_row IS NULL AND (r.end_ns > r.start_ns OR r.end_ns IS NULL)
  ),

  -- Ranges and calls in one order, last first: the next call after a range's start is inside it, or none is.
  moments AS (
    SELECT
      thread,
      start_ns AS at_ns,
      0 AS is_call,
      process,
      end_ns
    FROM innermost
    UNION ALL
    SELECT
      globalTid,
      start,
      1,
      globalTid & -16777216,
      NULL
    FROM CUPTI_ACTIVITY_KIND_RUNTIME
    WHERE globalTid IS NOT NULL
  ),

  followed AS (
    SELECT
      process,
      is_call,
      end_ns,
      min(CASE WHEN is_call THEN at_ns END) OVER (
        PARTITION BY thread
        ORDER BY at_ns DESC, is_call DESC
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS next_call_ns
    FROM moments
  )
SELECT
  (process >> 24) & 16777215 AS pid,
  sum(NOT is_call) AS innermost_count,
  sum(NOT is_call AND coalesce(next_call_ns >= end_ns, 1)) AS empty_count,
  1.0 * sum(NOT is_call AND coalesce(next_call_ns >= end_ns, 1)) / sum(NOT is_call) AS empty_share,
  sum(is_call) AS call_count
FROM followed
GROUP BY process
HAVING sum(NOT is_call) > 0
ORDER BY pid;
