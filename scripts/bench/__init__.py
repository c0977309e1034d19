"""Benchmarks of an installation: rates in one run, beside their upper bounds."""
