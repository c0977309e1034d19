"""A trainer by itself: the other parts of its run do nothing."""

from __future__ import annotations

from vedette_rl.core import ModelInfo
from vedette_services.status.records import EndedEvaluations, GatewayStatus, TrainerStatus
from vedette_services.status.status import Eval


class NoPeers:
    """The other parts of a run, of which there are none."""

    def read_status(self, *, fresh: bool = False) -> tuple[GatewayStatus, Eval]:
        return GatewayStatus(), Eval()

    def publish_status(self, status: TrainerStatus) -> None: ...

    def mark_turn(self) -> None: ...

    def publish_model(self, model: ModelInfo) -> None: ...

    def synced_rows(self) -> int:
        return 1 << 60

    def end_production(self) -> None: ...

    def end_evaluation(self, exit_reason: str) -> None: ...

    def read_ended_evaluations(self) -> EndedEvaluations:
        return EndedEvaluations()

    def is_stopped(self) -> bool:
        return False
