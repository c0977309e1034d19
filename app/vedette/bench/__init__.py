"""Measuring ourselves on a user's hardware: rates in one run, beside what bounds them."""
