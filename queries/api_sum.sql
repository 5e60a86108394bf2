-- api_sum: CUDA API calls by name: how often, how long, how many failed.
--
-- Time of the calls on the host. A runtime call contains the driver calls that it makes, where those are recorded.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_RUNTIME(start, end, nameId, returnValue)
-- requires: StringIds(id, value)
-- column: name TEXT name of the call
-- column: call_count INTEGER [count] calls
-- column: failed_count INTEGER [count] calls that returned an error
-- column: call_ns INTEGER [ns] their time
-- column: mean_ns INTEGER [ns] call_ns / call_count, rounded down
-- column: max_ns INTEGER [ns] the longest call
-- order: call_ns DESC, name
-- oracle: k25trace.trace.Trace.launches
WITH
  calls AS (
    SELECT
      coalesce(s.value, '<string ' || a.nameId || '>') AS name,
      a."end" - a.start AS duration_ns,
      coalesce(a.returnValue <> 0, 0) AS failed
    FROM CUPTI_ACTIVITY_KIND_RUNTIME AS a
    LEFT JOIN StringIds AS s ON a.nameId = s.id
  )
SELECT
  name,
  count(*) AS call_count,
  sum(failed) AS failed_count,
  sum(duration_ns) AS call_ns,
  sum(duration_ns) / count(*) AS mean_ns,
  max(duration_ns) AS max_ns
FROM calls
GROUP BY name
ORDER BY call_ns DESC, name;
