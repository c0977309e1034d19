"""Python imports this first where its path names the folder: a fault in one part of a benchmark."""

import bench_faults

bench_faults.put_fault_in_part()
