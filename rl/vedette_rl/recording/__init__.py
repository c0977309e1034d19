"""Recorders, which keep the numbers and texts of a run. None needs torch."""

from vedette_rl.recording.tee import TeeRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_rl.recording.text_files import CsvRecorder, JsonlRecorder

__all__ = ["CsvRecorder", "JsonlRecorder", "TeeRecorder", "TensorboardRecorder"]
