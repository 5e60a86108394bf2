-- gpu_time: Kernel time, busy time and time without kernels of each GPU.
--
-- The window is that of all GPUs: from the start of the first kernel to the end of the last. Opaque graph replays are
-- not in it.
--
-- standalone: no
-- requires: _kernels(gpu, start_ns, end_ns)
-- requires: k25_gpus(gpu, gpu_index, gpu_name)
-- column: gpu TEXT the GPU
-- column: gpu_name TEXT NULL product name
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- column: busy_ns INTEGER [ns] length of the union of the kernel intervals
-- column: no_kernel_ns INTEGER [ns] window - busy
-- column: window_ns INTEGER [ns] length of the window
-- order: gpu
-- oracle: k25trace.analysis.Analysis.gpus
WITH
  ordered AS (
    SELECT
      gpu,
      start_ns,
      end_ns,
      max(end_ns) OVER (
        PARTITION BY gpu
        ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS covered_until_ns
    FROM _kernels
  ),

  summed AS (
    SELECT
      gpu,
      count(*) AS kernel_count,
      sum(end_ns - start_ns) AS kernel_ns,
      sum(max(0, end_ns - max(start_ns, coalesce(covered_until_ns, start_ns)))) AS busy_ns,
      max(max(end_ns)) OVER () - min(min(start_ns)) OVER () AS window_ns
    FROM ordered
    GROUP BY gpu
  ),

  used AS (
    SELECT
      gpu,
      max(gpu_name) AS gpu_name,
      min(gpu_index) AS gpu_index
    FROM k25_gpus
    GROUP BY gpu_index, gpu
  )
SELECT
  u.gpu,
  u.gpu_name,
  coalesce(s.kernel_count, 0) AS kernel_count,
  coalesce(s.kernel_ns, 0) AS kernel_ns,
  coalesce(s.busy_ns, 0) AS busy_ns,
  w.window_ns - coalesce(s.busy_ns, 0) AS no_kernel_ns,
  w.window_ns
FROM used AS u
CROSS JOIN (SELECT max(window_ns) AS window_ns FROM summed) AS w
LEFT JOIN summed AS s ON u.gpu = s.gpu
WHERE w.window_ns IS NOT NULL
ORDER BY u.gpu;
