-- analysis_categories: Categories of a saved analysis: shares of kernel time and of wall time.
--
-- Over a database that k25trace attribute --save made. gpu is all for the sum over all GPUs.
--
-- standalone: yes
-- requires: categories(gpu, category, kernel_count, kernel_ns, kernel_share, wall_ns, wall_share)
-- column: gpu TEXT the GPU, or all
-- column: category TEXT category
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- column: kernel_share REAL [share] kernel time / kernel time of all kernels of the GPU
-- column: wall_ns INTEGER [ns] time of the wall partition
-- column: wall_share REAL [share] wall time / window
-- order: gpu, kernel_ns DESC, category
SELECT
  gpu,
  category,
  kernel_count,
  kernel_ns,
  kernel_share,
  wall_ns,
  wall_share
FROM categories
ORDER BY gpu, kernel_ns DESC, category;
