"""Recorders: where the numbers and texts of a run go. None needs torch."""

from vedette_rl.recording.csv import CsvRecorder
from vedette_rl.recording.jsonl import JsonlRecorder
from vedette_rl.recording.null import NullRecorder
from vedette_rl.recording.tee import TeeRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder

__all__ = ["CsvRecorder", "JsonlRecorder", "NullRecorder", "TeeRecorder", "TensorboardRecorder"]
