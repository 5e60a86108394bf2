-- analysis_wall: The wall partition of a saved analysis: every nanosecond of the window, in one row each.
--
-- Over a database that k25trace attribute --save made.
--
-- standalone: yes
-- requires: wall(gpu, row, wall_ns, wall_share)
-- column: gpu TEXT the GPU
-- column: row TEXT row of the partition
-- column: wall_ns INTEGER [ns] its time
-- column: wall_share REAL [share] of the window
-- order: gpu, wall_ns DESC, row
SELECT
  gpu,
  "row",
  wall_ns,
  wall_share
FROM wall
ORDER BY gpu, wall_ns DESC, "row";
