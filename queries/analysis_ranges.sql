-- analysis_ranges: NVTX paths of a saved analysis by kernel time, over all GPUs.
--
-- Over a database that k25trace attribute --save made. path is a JSON array; NULL: launched under no range.
--
-- standalone: yes
-- requires: ranges(kind, via, path, kernel_count, kernel_ns)
-- column: path TEXT NULL names from outermost to innermost
-- column: kind TEXT pushpop or startend
-- column: via TEXT launch or capture
-- column: kernel_count INTEGER [count] kernels
-- column: kernel_ns INTEGER [ns] kernel time
-- order: kernel_ns DESC, path, kind, via
SELECT
  path,
  kind,
  via,
  sum(kernel_count) AS kernel_count,
  sum(kernel_ns) AS kernel_ns
FROM ranges
GROUP BY path, kind, via
ORDER BY kernel_ns DESC, path, kind, via;
