-- _launched: kernels, and the state of the thread that launched them at the start of the launch call.
--
-- Kernels without a launch call in the report are left out.
--
-- standalone: no
-- requires: _kernels(process, gpu, correlation, start_ns, end_ns, name, category, is_communication)
-- requires: _states(state, thread, at_ns)
-- requires: _calls(process, correlation, thread, start_ns)
-- column: gpu TEXT the GPU
-- column: name TEXT demangled name
-- column: category TEXT category
-- column: is_communication INTEGER 1 if its category is communication
-- column: start_ns INTEGER [ns] start
-- column: end_ns INTEGER [ns] end
-- column: state INTEGER NULL state of the launching thread; NULL before its first
SELECT
  k.gpu,
  k.name,
  k.category,
  k.is_communication,
  k.start_ns,
  k.end_ns,
  (
    SELECT s.state
    FROM _states AS s
    WHERE s.thread = c.thread AND s.at_ns <= c.start_ns
    ORDER BY s.at_ns DESC, s.state DESC
    LIMIT 1
  ) AS state
FROM _kernels AS k
INNER JOIN _calls AS c ON k.process = c.process AND k.correlation = c.correlation;
