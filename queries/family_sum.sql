-- family_sum: Kernel time of each family of kernels, over all GPUs.
--
-- The family is the finer name that the classification rules give: which library's kernel it is.
--
-- standalone: no
-- requires: _kernels(gpu, start_ns, end_ns, category, family)
-- column: category TEXT category
-- column: family TEXT family
-- column: gpu_count INTEGER [count] GPUs on which it ran
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- order: kernel_ns DESC, category, family
-- oracle: k25trace.analysis.Analysis.families
SELECT
  category,
  family,
  count(DISTINCT gpu) AS gpu_count,
  count(*) AS kernel_count,
  sum(end_ns - start_ns) AS kernel_ns
FROM _kernels
GROUP BY category, family
ORDER BY kernel_ns DESC, category, family;
