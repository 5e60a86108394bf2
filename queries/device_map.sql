-- device_map: Which process used which GPU, under which ordinal.
--
-- The GPU is that of the report's device map where it has one; else ordinals are taken as physical, and where several
-- processes use ordinal 0 alone each is taken to have a GPU of its own. The rank is known where an NVTX event of the
-- process says rank=N.
--
-- standalone: no
-- requires: k25_gpus(process, pid, rank, device, gpu, gpu_index, gpu_name)
-- requires: _kernels(process, device, start_ns, end_ns)
-- column: gpu TEXT the GPU
-- column: gpu_name TEXT NULL product name
-- column: pid INTEGER NULL operating system's process id
-- column: rank INTEGER NULL rank
-- column: device INTEGER CUDA ordinal as the process saw it
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- column: gpu_index INTEGER place of the GPU among those of the report
-- order: gpu_index, pid, device
-- oracle: k25trace.analysis.Analysis.processes
WITH
  ran AS MATERIALIZED (
    SELECT
      process,
      device,
      count(*) AS kernel_count,
      sum(end_ns - start_ns) AS kernel_ns
    FROM _kernels
    GROUP BY process, device
  )
SELECT
  g.gpu,
  g.gpu_name,
  g.pid,
  g.rank,
  g.device,
  coalesce(r.kernel_count, 0) AS kernel_count,
  coalesce(r.kernel_ns, 0) AS kernel_ns,
  g.gpu_index
FROM k25_gpus AS g
LEFT JOIN ran AS r ON r.process IS g.process AND g.device = r.device
ORDER BY g.gpu_index, g.pid, g.device;
