-- _step_states: the step in which the thread of each state is.
--
-- A step is a push/pop range whose name matches the pattern, NCCL's own left out. Of nested ones the outermost counts:
-- the first range of the stack that is one.
--
-- standalone: no
-- requires: _ranges(range_row, is_push_pop, name, domain)
-- requires: _states(state, stack)
-- param: :step TEXT pattern (GLOB) of the names of the step ranges; default *step*
-- column: state INTEGER number of the state
-- column: range_row INTEGER row of the step's range
-- index: state
WITH
  asked AS (
    SELECT coalesce(nullif(:step, ''), '*step*') AS step
  ),

  steps AS MATERIALIZED (
    SELECT r.range_row
    FROM _ranges AS r
    CROSS JOIN asked AS a
    WHERE r.is_push_pop AND r.domain <> 'NCCL' AND r.name GLOB a.step
  ),

  -- min() makes SQLite take the other columns from the same row: the outermost.
  outermost AS (
    SELECT
      s.state,
      t.range_row,
      min(j.key) AS place
    FROM _states AS s
    INNER JOIN json_each('[' || replace(trim(s.stack, '/'), '/', ',') || ']') AS j
    INNER JOIN steps AS t ON j.value = t.range_row
    GROUP BY s.state
  )
SELECT
  state,
  range_row
FROM outermost;
