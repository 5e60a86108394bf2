-- _steps: the steps of each process, counted from 1 by their start.
--
-- standalone: no
-- requires: _step_states(range_row)
-- requires: _ranges(range_row, process, start_ns, end_ns, name)
-- column: range_row INTEGER row of the step's range
-- column: pid INTEGER operating system's process id
-- column: step INTEGER number of the step
-- column: name TEXT name of its range
-- column: host_ns INTEGER NULL [ns] length of the range on the host; NULL if it was never closed
-- index: range_row
WITH
  used AS (
    SELECT DISTINCT range_row
    FROM _step_states
  )
SELECT
  r.range_row,
  (r.process >> 24) & 16777215 AS pid,
  row_number() OVER (PARTITION BY r.process ORDER BY r.start_ns, r.range_row) AS step,
  r.name,
  r.end_ns - r.start_ns AS host_ns
FROM used AS u
INNER JOIN _ranges AS r ON u.range_row = r.range_row;
