-- processes: Processes of the report: what was recorded of each.
--
-- A process without kernels is a launcher, or one whose events were lost.
--
-- standalone: yes
-- requires: PROCESSES(globalPid, pid, name)
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(globalPid, deviceId)
-- requires: CUPTI_ACTIVITY_KIND_RUNTIME(globalTid)
-- requires: NVTX_EVENTS(globalTid)
-- column: pid INTEGER NULL operating system's process id
-- column: name TEXT NULL name of the program
-- column: device_count INTEGER [count] CUDA ordinals with kernels
-- column: kernel_count INTEGER [count] kernels
-- column: call_count INTEGER [count] CUDA API calls
-- column: nvtx_count INTEGER [count] NVTX events
-- column: process INTEGER NULL globalPid
-- order: pid, process
WITH
  kernels AS MATERIALIZED (
    SELECT
      globalPid & -16777216 AS process,
      count(*) AS kernel_count,
      count(DISTINCT deviceId) AS device_count
    FROM CUPTI_ACTIVITY_KIND_KERNEL
    GROUP BY process
  ),

  calls AS MATERIALIZED (
    SELECT
      globalTid & -16777216 AS process,
      count(*) AS call_count
    FROM CUPTI_ACTIVITY_KIND_RUNTIME
    GROUP BY process
  ),

  events AS MATERIALIZED (
    SELECT
      globalTid & -16777216 AS process,
      count(*) AS nvtx_count
    FROM NVTX_EVENTS
    GROUP BY process
  )
SELECT
  p.pid,
  p.name,
  coalesce(k.device_count, 0) AS device_count,
  coalesce(k.kernel_count, 0) AS kernel_count,
  coalesce(c.call_count, 0) AS call_count,
  coalesce(e.nvtx_count, 0) AS nvtx_count,
  p.globalPid & -16777216 AS process
FROM PROCESSES AS p
LEFT JOIN kernels AS k ON p.globalPid & -16777216 = k.process
LEFT JOIN calls AS c ON p.globalPid & -16777216 = c.process
LEFT JOIN events AS e ON p.globalPid & -16777216 = e.process
ORDER BY pid, process;
