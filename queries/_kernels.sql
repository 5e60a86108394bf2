-- _kernels: kernels with usable times, their GPU, name and category.
--
-- Times that cannot be true are left out: both 0, an end before the start, more than 60 s outside the capture.
--
-- standalone: no
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(rowid, start, end, deviceId, streamId, correlationId, globalPid,
--   demangledName, graphNodeId?)
-- requires: ANALYSIS_DETAILS?(duration)
-- requires: k25_kernel_names(name_id, name, category, family, is_communication, is_nccl)
-- requires: k25_gpus(process, device, gpu)
-- column: kernel INTEGER row of the export
-- column: process INTEGER NULL globalPid
-- column: device INTEGER CUDA ordinal as that process saw it
-- column: gpu TEXT the GPU
-- column: stream INTEGER NULL stream
-- column: correlation INTEGER NULL correlation id, unique within the process
-- column: graph_node INTEGER NULL graph node of a replayed kernel
-- column: start_ns INTEGER [ns] start
-- column: end_ns INTEGER [ns] end
-- column: name TEXT demangled name
-- column: category TEXT category
-- column: family TEXT family
-- column: is_communication INTEGER 1 if its category is communication
-- column: is_nccl INTEGER 1 if it is one of NCCL's own
WITH
  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  )
SELECT
  k.rowid AS kernel,
  k.globalPid & -16777216 AS process,
  coalesce(k.deviceId, 0) AS device,
  g.gpu,
  k.streamId AS stream,
  k.correlationId AS correlation,
  k.graphNodeId AS graph_node,
  k.start AS start_ns,
  k."end" AS end_ns,
  coalesce(n.name, '<kernel without a name>') AS name,
  coalesce(n.category, 'unclassified') AS category,
  coalesce(n.family, 'unclassified') AS family,
  coalesce(n.is_communication, 0) AS is_communication,
  coalesce(n.is_nccl, 0) AS is_nccl
FROM bounds AS b
CROSS JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k
LEFT JOIN k25_gpus AS g
  ON coalesce(k.deviceId, 0) = g.device AND g.process IS (k.globalPid & -16777216)
LEFT JOIN k25_kernel_names AS n ON k.demangledName = n.name_id
WHERE
  k.start >= b.lowest_ns
  AND k."end" <= b.highest_ns
  AND k."end" >= k.start
  AND NOT (k.start = 0 AND k."end" = 0);
