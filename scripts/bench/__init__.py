"""Benchmarks of Vedette on this machine, in one place; `scripts/bench/run --help` lists them."""
