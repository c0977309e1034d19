"""Recorders, which keep the numbers and texts of a run. None needs torch."""

from vedette_rl.recording.file_recorder import CsvRecorder, JsonlRecorder
from vedette_rl.recording.registry import TeeRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder

__all__ = ["CsvRecorder", "JsonlRecorder", "TeeRecorder", "TensorboardRecorder"]
