"""The contracts of agents, policies, step processors, replay buffers and recorders.

Nothing here imports torch: the gateway and slim actors use these names too.
"""

from vedette_rl.core.acting import Policy, Step, StepProcessor, TdErrorPolicy
from vedette_rl.core.columns import Columns, empty_columns, row_dtype, select_part
from vedette_rl.core.evaluation import Evaluation, Evaluator
from vedette_rl.core.learning import Agent, ModelInfo, OptResult, State, SyncModel
from vedette_rl.core.recording import Record, Recorder
from vedette_rl.core.replay_buffer import ReplayBuffer, Sample

__all__ = [
    "Agent",
    "Columns",
    "Evaluation",
    "Evaluator",
    "ModelInfo",
    "OptResult",
    "Policy",
    "Record",
    "Recorder",
    "ReplayBuffer",
    "Sample",
    "State",
    "Step",
    "StepProcessor",
    "SyncModel",
    "TdErrorPolicy",
    "empty_columns",
    "row_dtype",
    "select_part",
]
