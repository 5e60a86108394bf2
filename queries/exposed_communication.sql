-- exposed_communication: Communication time of each GPU, exposed and hidden.
--
-- Communication is exposed while no other kernel runs on the GPU: |communication or other| - |other|, lengths of
-- unions. For NCCL's own kernels alone, custom collectives are others. Where a report has opaque graph replays, what
-- seems exposed may be hidden by kernels that were not recorded.
--
-- standalone: no
-- requires: _kernels(gpu, start_ns, end_ns, is_communication, is_nccl)
-- column: gpu TEXT the GPU
-- column: communication_ns INTEGER [ns] length of the union of the communication kernels
-- column: exposed_communication_ns INTEGER [ns] part of it during which no other kernel runs
-- column: hidden_communication_ns INTEGER [ns] communication - exposed
-- column: nccl_ns INTEGER [ns] length of the union of NCCL's own kernels
-- column: exposed_nccl_ns INTEGER [ns] part of it during which no other kernel runs
-- order: gpu
-- oracle: k25trace.analysis.Analysis.gpus
WITH
  -- At every start and end: how many kernels of each kind run from then on, and for how long that stays so.
  edges AS (
    SELECT
      gpu,
      start_ns AS at_ns,
      1 AS step,
      is_communication,
      is_nccl
    FROM _kernels
    WHERE end_ns > start_ns
    UNION ALL
    SELECT
      gpu,
      end_ns AS at_ns,
      -1 AS step,
      is_communication,
      is_nccl
    FROM _kernels
    WHERE end_ns > start_ns
  ),

  instants AS (
    SELECT
      gpu,
      at_ns,
      sum(step) AS kernel_step,
      sum(step * is_communication) AS communication_step,
      sum(step * is_nccl) AS nccl_step
    FROM edges
    GROUP BY gpu, at_ns
  ),

  segments AS (
    SELECT
      gpu,
      lead(at_ns, 1, at_ns) OVER by_time - at_ns AS segment_ns,
      sum(kernel_step) OVER by_time AS kernels,
      sum(communication_step) OVER by_time AS communication,
      sum(nccl_step) OVER by_time AS nccl
    FROM instants
    WINDOW by_time AS (PARTITION BY gpu ORDER BY at_ns)
  )
SELECT
  gpu,
  sum(segment_ns * (communication > 0)) AS communication_ns,
  sum(segment_ns * (communication > 0 AND communication = kernels)) AS exposed_communication_ns,
  sum(segment_ns * (communication > 0 AND communication < kernels)) AS hidden_communication_ns,
  sum(segment_ns * (nccl > 0)) AS nccl_ns,
  sum(segment_ns * (nccl > 0 AND nccl = kernels)) AS exposed_nccl_ns
FROM segments
GROUP BY gpu
ORDER BY gpu;
