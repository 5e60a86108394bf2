-- _changes: every opening and closing of a push/pop range, and every begin and end of a stream capture, in order.
--
-- Ordered by thread, and within an instant: ranges close, then open (longer ones first), captures begin, then end.
--
-- standalone: no
-- requires: _ranges(range_row, is_push_pop, thread, start_ns, end_ns)
-- requires: CUPTI_ACTIVITY_KIND_RUNTIME?(rowid, start, globalTid, nameId, returnValue)
-- requires: k25_call_kinds(name_id, kind)
-- column: change INTEGER place in the order, from 1
-- column: thread INTEGER globalTid
-- column: at_ns INTEGER [ns] when
-- column: phase INTEGER 0 a range closes, 1 one opens, 2 a capture begins, 3 one ends
-- column: item INTEGER row of the range, or of the call
-- index: change
WITH
  changes AS (
    SELECT
      thread,
      start_ns AS at_ns,
      1 AS phase,
      -coalesce(end_ns, 4611686018427387904) AS tie,
      range_row AS item
    FROM _ranges
    WHERE is_push_pop AND (end_ns > start_ns OR end_ns IS NULL)
    UNION ALL
    SELECT
      thread,
      end_ns AS at_ns,
      0 AS phase,
      -start_ns AS tie,
      range_row AS item
    FROM _ranges
    WHERE is_push_pop AND end_ns > start_ns
    UNION ALL
    SELECT
      a.globalTid,
      a.start,
      iif(n.kind = 'begin_capture', 2, 3),
      0,
      a.rowid
    FROM CUPTI_ACTIVITY_KIND_RUNTIME AS a
    INNER JOIN k25_call_kinds AS n ON a.nameId = n.name_id
    WHERE n.kind IN ('begin_capture', 'end_capture') AND NOT coalesce(a.returnValue <> 0, 0)
  )
SELECT
  row_number() OVER (ORDER BY thread, at_ns, phase, tie, item) AS change,
  thread,
  at_ns,
  phase,
  item
FROM changes;
