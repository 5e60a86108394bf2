-- _states: what is open on a thread from each instant on: push/pop ranges, and the stream capture in progress.
--
-- Every opening and closing of a range, and every begin and end of a stream capture, makes the state of its thread
-- anew: one step of the recursion each. `stack` is the rows of the open ranges of all domains, outermost first, as
-- /12/40/. Ranges of different domains may cross, so a closing one may lie anywhere in it. The state at an instant is
-- the last one of the thread that is not after it.
--
-- standalone: no
-- requires: _changes(change, thread, at_ns, phase, item)
-- column: state INTEGER number of the state
-- column: thread INTEGER globalTid
-- column: at_ns INTEGER [ns] since when
-- column: stack TEXT rows of the open ranges, outermost first
-- column: began_ns INTEGER NULL [ns] start of the call that began the stream capture in progress
-- index: state
-- index: thread, at_ns, state
WITH RECURSIVE
  walk AS (
    SELECT
      0 AS state,
      NULL AS thread,
      NULL AS at_ns,
      '/' AS stack,
      '/' AS begun
    UNION ALL
    SELECT
      c.change,
      c.thread,
      c.at_ns,
      CASE c.phase
        WHEN 1 THEN iif(c.thread = w.thread, w.stack, '/') || c.item || '/'
        WHEN 0 THEN replace(w.stack, '/' || c.item || '/', '/')
        ELSE iif(c.thread = w.thread, w.stack, '/')
      END AS stack,
      CASE c.phase
        WHEN 2 THEN iif(c.thread = w.thread, w.begun, '/') || c.at_ns || '/'
        WHEN 3 THEN '/' || ltrim(rtrim(rtrim(iif(c.thread = w.thread, w.begun, ''), '/'), '-0123456789'), '/')
        ELSE iif(c.thread = w.thread, w.begun, '/')
      END AS begun
    FROM walk AS w
    INNER JOIN _changes AS c ON w.state + 1 = c.change
  )
SELECT
  state,
  thread,
  at_ns,
  stack,
  cast(nullif(substr(begun, length(rtrim(rtrim(begun, '/'), '-0123456789')) + 1), '/') AS INTEGER) AS began_ns
FROM walk
WHERE state > 0;
