"""Recorded episodes: our files, Minari and LeRobot data sets."""
