-- kernel_shapes: Launch shapes of each kernel: grid, block, registers, shared memory.
--
-- One row for each shape that a kernel name was launched in. Several shapes of one GEMM are several problem sizes.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end, demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ,
--   registersPerThread, staticSharedMemory, dynamicSharedMemory)
-- requires: StringIds(id, value)
-- requires: ANALYSIS_DETAILS(duration)
-- column: name TEXT demangled name
-- column: grid TEXT blocks as x,y,z
-- column: block TEXT threads of a block as x,y,z
-- column: registers_per_thread INTEGER NULL registers of a thread
-- column: static_shared_bytes INTEGER NULL [bytes] static shared memory of a block
-- column: dynamic_shared_bytes INTEGER NULL [bytes] dynamic shared memory of a block
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- order: kernel_ns DESC, name, grid, block, registers_per_thread, static_shared_bytes, dynamic_shared_bytes
WITH
  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  kernels AS (
    SELECT
      coalesce(s.value, '<string ' || k.demangledName || '>', '<kernel without a name>') AS name,
      k.gridX || ',' || k.gridY || ',' || k.gridZ AS grid,
      k.blockX || ',' || k.blockY || ',' || k.blockZ AS block,
      k.registersPerThread AS registers_per_thread,
      k.staticSharedMemory AS static_shared_bytes,
      k.dynamicSharedMemory AS dynamic_shared_bytes,
      k."end" - k.start AS duration_ns
    FROM bounds AS b
    CROSS JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k
    LEFT JOIN StringIds AS s ON k.demangledName = s.id
    WHERE
      k.start >= b.lowest_ns
      AND k."end" <= b.highest_ns
      AND k."end" >= k.start
      AND NOT (k.start = 0 AND k."end" = 0)
  )
SELECT
  name,
  grid,
  block,
  registers_per_thread,
  static_shared_bytes,
  dynamic_shared_bytes,
  count(*) AS kernel_count,
  sum(duration_ns) AS kernel_ns
FROM kernels
GROUP BY name, grid, block, registers_per_thread, static_shared_bytes, dynamic_shared_bytes
ORDER BY kernel_ns DESC, name, grid, block, registers_per_thread, static_shared_bytes, dynamic_shared_bytes;
