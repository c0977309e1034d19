"""DQN in a run that draws sequences; it is never given one: nothing is trained."""

from dataclasses import replace

import vedette_rl.agents.dqn.policy as dqn
from vedette_rl.agents.dqn.config import DqnConfig

NAME = f"{__name__}:Dqn"


class SequenceDqnConfig(DqnConfig):
    learns_sequences = True
    name: str = NAME


Dqn = replace(dqn.KIND, name=NAME, config=SequenceDqnConfig)
