-- step_collectives: Communication kernels of each step on each GPU, by category.
--
-- A step is a push/pop range whose name matches the pattern, NCCL's own left out; of nested ones the outermost. A
-- kernel belongs to the step in which its launch call began. Steps are counted from 1 by their start, for each
-- process. Whether ranks agree on how many collectives a step has is the first thing to look at when they do not pair
-- up.
--
-- In memory: tables of API calls, of ranges and of states, each with an index.
--
-- standalone: no
-- requires: _launched(gpu, category, is_communication, start_ns, end_ns, state)
-- requires: _step_states(state, range_row)
-- requires: _steps(range_row, pid, step, name)
-- param: :step TEXT pattern (GLOB) of the names of the step ranges; default *step*
-- column: pid INTEGER operating system's process id
-- column: step INTEGER number of the step
-- column: name TEXT name of its range
-- column: gpu TEXT the GPU
-- column: category TEXT category of the collective
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time, waiting for other ranks included
-- column: max_ns INTEGER [ns] longest kernel
-- order: pid, step, gpu, category
SELECT
  n.pid,
  n.step,
  n.name,
  k.gpu,
  k.category,
  count(*) AS kernel_count,
  sum(k.end_ns - k.start_ns) AS kernel_ns,
  max(k.end_ns - k.start_ns) AS max_ns
FROM _launched AS k
INNER JOIN _step_states AS s ON k.state = s.state
INNER JOIN _steps AS n ON s.range_row = n.range_row
WHERE k.is_communication
GROUP BY n.range_row, k.gpu, k.category
ORDER BY pid, step, gpu, category;
