-- _operations: GPU operations (kernels, copies, sets) with usable times, and their GPU.
--
--
-- standalone: no
-- requires: _kernels(process, gpu, stream, correlation, graph_node, start_ns, end_ns)
-- requires: CUPTI_ACTIVITY_KIND_MEMCPY?(start, end, deviceId, streamId, correlationId, globalPid, graphNodeId?)
-- requires: CUPTI_ACTIVITY_KIND_MEMSET?(start, end, deviceId, streamId, correlationId, globalPid, graphNodeId?)
-- requires: ANALYSIS_DETAILS?(duration)
-- requires: k25_gpus(process, device, gpu)
-- column: kind TEXT kernel, memcpy or memset
-- column: process INTEGER NULL globalPid
-- column: gpu TEXT the GPU
-- column: stream INTEGER NULL stream
-- column: correlation INTEGER NULL correlation id, unique within the process
-- column: graph_node INTEGER NULL graph node of a replayed operation
-- column: start_ns INTEGER [ns] start
-- column: end_ns INTEGER [ns] end
WITH
  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  copies AS (
    SELECT
      'memcpy' AS kind,
      globalPid & -16777216 AS process,
      coalesce(deviceId, 0) AS device,
      streamId AS stream,
      correlationId AS correlation,
      graphNodeId AS graph_node,
      start AS start_ns,
      "end" AS end_ns
    FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL
    SELECT
      'memset' AS kind,
      globalPid & -16777216 AS process,
      coalesce(deviceId, 0) AS device,
      streamId AS stream,
      correlationId AS correlation,
      graphNodeId AS graph_node,
      start AS start_ns,
      "end" AS end_ns
    FROM CUPTI_ACTIVITY_KIND_MEMSET
  )
SELECT
  c.kind,
  c.process,
  g.gpu,
  c.stream,
  c.correlation,
  c.graph_node,
  c.start_ns,
  c.end_ns
FROM bounds AS b
CROSS JOIN copies AS c
LEFT JOIN k25_gpus AS g ON c.device = g.device AND g.process IS c.process
WHERE
  c.start_ns >= b.lowest_ns
  AND c.end_ns <= b.highest_ns
  AND c.end_ns >= c.start_ns
  AND NOT (c.start_ns = 0 AND c.end_ns = 0)
UNION ALL
SELECT
  'kernel' AS kind,
  process,
  gpu,
  stream,
  correlation,
  graph_node,
  start_ns,
  end_ns
FROM _kernels;
