-- category_share: Kernel time of each category on each GPU, and its share.
--
-- Categories are those of the classification rules. The share is of the kernel time of the same GPU; copies are not
-- in it. Busy time of a category is the length of the union of its kernels.
--
-- standalone: no
-- requires: _kernels(gpu, start_ns, end_ns, category)
-- column: gpu TEXT the GPU
-- column: category TEXT category
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- column: kernel_share REAL [share] kernel time of the category / kernel time of all kernels of the GPU
-- column: busy_ns INTEGER [ns] length of the union of the category's kernels
-- column: max_ns INTEGER [ns] longest kernel
-- order: gpu, kernel_ns DESC, category
-- oracle: k25trace.analysis.Analysis.categories
WITH
  ordered AS (
    SELECT
      gpu,
      category,
      start_ns,
      end_ns,
      max(end_ns) OVER (
        PARTITION BY gpu, category
        ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS covered_until_ns
    FROM _kernels
  )
SELECT
  gpu,
  category,
  count(*) AS kernel_count,
  sum(end_ns - start_ns) AS kernel_ns,
  coalesce(1.0 * sum(end_ns - start_ns) / nullif(sum(sum(end_ns - start_ns)) OVER (PARTITION BY gpu), 0), 0.0)
    AS kernel_share,
  sum(max(0, end_ns - max(start_ns, coalesce(covered_until_ns, start_ns)))) AS busy_ns,
  max(end_ns - start_ns) AS max_ns
FROM ordered
GROUP BY gpu, category
ORDER BY gpu, kernel_ns DESC, category;
