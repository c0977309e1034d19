"""State on disk and between processes: checkpoints, state files, latest-value maps, buffers."""
