"""The contracts of agents, policies, step processors, replay buffers and recorders.

Nothing here imports torch: the gateway and slim actors use these names too.
"""

from vedette_rl.core.acting import (
    ColumnPolicy,
    Evaluation,
    LoadedPolicy,
    Policy,
    RememberingPolicy,
    Step,
    StepProcessor,
    TdErrorPolicy,
    act_of,
)
from vedette_rl.core.columns import Columns, RowColumn, empty_columns, row_dtype, select_part
from vedette_rl.core.learning import (
    Agent,
    ModelInfo,
    OptResult,
    Record,
    Recorder,
    ReplayBuffer,
    Sample,
    SequenceAgent,
    State,
    Total,
)
from vedette_rl.core.protocols import implements

__all__ = [
    "Agent",
    "ColumnPolicy",
    "Columns",
    "Evaluation",
    "LoadedPolicy",
    "ModelInfo",
    "OptResult",
    "Policy",
    "Record",
    "Recorder",
    "RememberingPolicy",
    "ReplayBuffer",
    "RowColumn",
    "Sample",
    "SequenceAgent",
    "State",
    "Step",
    "StepProcessor",
    "TdErrorPolicy",
    "Total",
    "act_of",
    "empty_columns",
    "implements",
    "row_dtype",
    "select_part",
]
