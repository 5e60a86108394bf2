-- occupancy_limits: Which resource limits how many blocks of a kernel fit on a multiprocessor.
--
-- Theoretical occupancy by threads, registers and shared memory of each launch shape: a resource allows as many
-- blocks as fit into what a multiprocessor has; the least of them limits. Without parameters the multiprocessor is
-- that of compute capability 9.0 (H100, H200): 2048 threads, 32 blocks, 65536 registers, 233472 bytes of shared
-- memory, of which every block takes 1024 for the system. Rounding of registers to allocation units (256 a warp) is
-- included. A grid smaller than the GPU leaves multiprocessors empty whatever the occupancy: see the blocks of the
-- grid.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end, demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ,
--   registersPerThread, staticSharedMemory, dynamicSharedMemory)
-- requires: StringIds(id, value)
-- requires: ANALYSIS_DETAILS(duration)
-- param: :threads_per_sm INTEGER >=1 threads that fit on a multiprocessor; default 2048
-- param: :blocks_per_sm INTEGER >=1 blocks that fit on a multiprocessor; default 32
-- param: :registers_per_sm INTEGER >=1 registers of a multiprocessor; default 65536
-- param: :shared_per_sm_bytes INTEGER [bytes] >=1 shared memory of a multiprocessor; default 233472
-- column: name TEXT demangled name
-- column: threads_per_block INTEGER threads of a block
-- column: grid_blocks INTEGER blocks of the largest grid
-- column: registers_per_thread INTEGER registers of a thread
-- column: shared_bytes INTEGER [bytes] static and dynamic shared memory of a block
-- column: blocks_fitting INTEGER blocks that fit on a multiprocessor
-- column: limited_by TEXT threads, blocks, registers or shared memory
-- column: occupancy_share REAL [share] threads of the blocks that fit / threads that fit
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- order: kernel_ns DESC, name, threads_per_block, registers_per_thread, shared_bytes
WITH
  asked AS (
    SELECT
      coalesce(cast(nullif(:threads_per_sm, '') AS INTEGER), 2048) AS threads_per_sm,
      coalesce(cast(nullif(:blocks_per_sm, '') AS INTEGER), 32) AS blocks_per_sm,
      coalesce(cast(nullif(:registers_per_sm, '') AS INTEGER), 65536) AS registers_per_sm,
      coalesce(cast(nullif(:shared_per_sm_bytes, '') AS INTEGER), 233472) AS shared_per_sm_bytes
  ),

  bounds AS (
    SELECT
      CASE WHEN max(duration) > 0 THEN -60000000000 ELSE -4611686018427387903 END AS lowest_ns,
      CASE WHEN max(duration) > 0 THEN max(duration) + 60000000000 ELSE 4611686018427387903 END AS highest_ns
    FROM ANALYSIS_DETAILS
  ),

  shapes AS (
    SELECT
      coalesce(s.value, '<string ' || k.demangledName || '>', '<kernel without a name>') AS name,
      max(1, coalesce(k.blockX, 1) * coalesce(k.blockY, 1) * coalesce(k.blockZ, 1)) AS threads_per_block,
      coalesce(k.registersPerThread, 0) AS registers_per_thread,
      coalesce(k.staticSharedMemory, 0) + coalesce(k.dynamicSharedMemory, 0) AS shared_bytes,
      max(k.gridX * k.gridY * k.gridZ) AS grid_blocks,
      count(*) AS kernel_count,
      sum(k."end" - k.start) AS kernel_ns
    FROM bounds AS b
    CROSS JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k
    LEFT JOIN StringIds AS s ON k.demangledName = s.id
    WHERE
      k.start >= b.lowest_ns
      AND k."end" <= b.highest_ns
      AND k."end" >= k.start
      AND NOT (k.start = 0 AND k."end" = 0)
    GROUP BY name, threads_per_block, registers_per_thread, shared_bytes
  ),

  fitting AS (
    SELECT
      s.*,
      a.threads_per_sm,
      a.threads_per_sm / (32 * ((s.threads_per_block + 31) / 32)) AS by_threads,
      a.blocks_per_sm AS by_blocks,
      coalesce(
        a.registers_per_sm
        / nullif(((s.threads_per_block + 31) / 32) * 256 * ((s.registers_per_thread * 32 + 255) / 256), 0),
        a.blocks_per_sm
      ) AS by_registers,
      a.shared_per_sm_bytes / (s.shared_bytes + 1024) AS by_shared
    FROM shapes AS s
    CROSS JOIN asked AS a
  )
SELECT
  name,
  threads_per_block,
  coalesce(grid_blocks, 0) AS grid_blocks,
  registers_per_thread,
  shared_bytes,
  min(by_threads, by_blocks, by_registers, by_shared) AS blocks_fitting,
  CASE min(by_threads, by_blocks, by_registers, by_shared)
    WHEN by_threads THEN 'threads'
    WHEN by_blocks THEN 'blocks'
    WHEN by_registers THEN 'registers'
    ELSE 'shared memory'
  END AS limited_by,
  min(1.0, 1.0 * threads_per_block * min(by_threads, by_blocks, by_registers, by_shared) / threads_per_sm)
    AS occupancy_share,
  kernel_count,
  kernel_ns
FROM fitting
ORDER BY kernel_ns DESC, name, threads_per_block, registers_per_thread, shared_bytes;
