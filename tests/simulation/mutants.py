"""Mutations of window, ledger, credit and fencing, and how many seeds it takes to find each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1] / "support"))  # where this runs as a program

from mutation import Mutation

_REPEATS = 5  # searches, each from another seed on
_SEEDS_MAX = 400


_WINDOW = "vedette_protocol.send_window"
_ACCOUNT = "vedette_protocol.account"
_LEDGER = "vedette_protocol.ledger"
_GATEWAY = "vedette_services.learner.gateway.state"
_FLOW = "vedette_services.learner.gateway.flow_control"
_MANAGER = "vedette_services.actors.manager_state"
_EVALUATIONS = "vedette_services.learner.gateway.actor_evaluations"
_ADMISSION = "vedette_services.learner.gateway.admission"

MUTATIONS = {
    "window: an ack frees one batch too many": Mutation(
        _WINDOW, "range(self.base, ack.contiguous)", "range(self.base, ack.contiguous + 1)"
    ),
    "window: extras are read one too high": Mutation(
        _WINDOW, "seq + bit.bit_length() - 1", "seq + bit.bit_length()"
    ),
    "window: holds one batch too many": Mutation(
        _WINDOW, "held < self.max_batches", "held <= self.max_batches"
    ),
    "window: dropped rows are not counted": Mutation(
        _WINDOW, "        self.dropped += rows\n        return rows", "        return rows"
    ),
    "ledger: a second copy above a gap is new": Mutation(
        _ACCOUNT,
        "offset < 0 or offset >= EXTRAS_MAX or self.extras >> offset & 1",
        "offset < 0 or offset >= EXTRAS_MAX",
    ),
    "ledger: extras are not shifted": Mutation(
        _ACCOUNT,
        "            self.contiguous += 1\n            self.extras >>= 1\n",
        "            self.contiguous += 1\n",
    ),
    "ledger: the stamp misses new batches": Mutation(
        _LEDGER,
        "        entry.packed = None\n        if batch.base",
        "        if batch.base",
    ),
    "ledger: what is lost is not counted": Mutation(
        _ACCOUNT, "in_flight, missing - in_flight, ", "in_flight, 0, "
    ),
    "queue: a batch without room is settled": Mutation(
        _GATEWAY, "if self._lacks_room(batch, now):", "if False:"
    ),
    "queue: credit is of a block and no batch": Mutation(
        _FLOW, "self._most = block + batch_rows + ahead", "self._most = block + ahead"
    ),
    "fencing: any key may use any id": Mutation(
        _LEDGER, "if entry is None or not entry.key:", "if True:"
    ),
    "fencing: a learner of the same epoch is taken for an older one": Mutation(
        _MANAGER, "if run.epoch < old.epoch:", "if run.epoch <= old.epoch:"
    ),
    "fencing: who has left keeps actor numbers": Mutation(
        _GATEWAY,
        '== "gone":\n            self.actor_numbers.release(manager)\n',
        '== "gone":\n',
    ),
    "credit: a manager does not keep to its limit": Mutation(
        _WINDOW, "until = min(self.limit, seq + ", "until = max(seq, seq + "
    ),
    "credit: batches at and above the limit are taken": Mutation(
        _LEDGER, "if batch.seq >= account.limit:", "if False:"
    ),
    "rejects: a batch with an invalid header is not settled": Mutation(
        _GATEWAY, "sender.seq is None or not self.ledger.is_new(", "self.ledger.is_new("
    ),
    "rejects: batches that came before are validated after it": Mutation(
        _GATEWAY,
        "            self._validate_held(now)\n            self._handle_error(",
        "            self._handle_error(",
    ),
    "acks: a joiner waits for its first": Mutation(
        _GATEWAY,
        "        elif new:\n            self._ack_scheduler.expedite_joiner(manager)\n",
        "        elif new:\n",
    ),
    "places: an account of a living manager is closed": Mutation(
        _LEDGER,
        "            if account.gone\n        ]\n        closable = [\n            "
        "place for place in gone "
        "if now - place[-1].last_seen >= _REPLACED_S or place[-2].is_gone\n        ]",
        "        ]\n        closable = gone",
    ),
    "ids: both managers with one id stay": Mutation(
        _GATEWAY,
        "if rivals := self.fleet.pop_rivals(manager):",
        "if (rivals := self.fleet.pop_rivals(manager)) and False:",
    ),
    "ids: both managers with one id are refused": Mutation(
        _ADMISSION,
        "self._ledger.retire(later.manager, later.incarnation)",
        "[self._ledger.retire(r.manager, r.incarnation) for r in (first, later)]",
    ),
    "ids: the status does not name two managers with one id": Mutation(
        _GATEWAY, "rivals=self.admission.describe_rivals(now),", ""
    ),
    "waits: acks do not say why nothing is granted": Mutation(
        _GATEWAY, "incarnation, budget.reason)", 'incarnation, "")'
    ),
    "waits: acks do not say why batches are rejected": Mutation(
        _LEDGER, "rejected_reason=account.rejected_reason,", ""
    ),
    "waits: the status does not say why nothing is granted": Mutation(
        _GATEWAY, "limiter_reason=self._actors_wait_reason,", ""
    ),
    "waits: the gateway does not log who is silent": Mutation(
        _GATEWAY,
        'self.log_lines.add("warning", f"manager {manager} has been silent; it counts as gone")',
        "pass",
    ),
    "waits: a manager does not log that it hears nothing": Mutation(
        _MANAGER, "[*reconnecting, RemakeSockets(delay_s)]", "[RemakeSockets(delay_s)]"
    ),
    "waits: a manager does not log that it has no credit": Mutation(
        _MANAGER, "*self._log.log_no_credit(ack, now),", ""
    ),
    "waits: a manager does not log that the learner starts": Mutation(
        _MANAGER, "return self._log.log_starting(ack, now)", "return []"
    ),
    "waits: a manager does not log that its batches are rejected": Mutation(
        _MANAGER, "*self._log.log_rejected(ack, now),", ""
    ),
    "waits: a manager does not log that it has no model": Mutation(
        _MANAGER, '*self._log.log("info", "model", text, now), ', ""
    ),
    "evaluations: those of a key that is not trusted count": Mutation(
        _EVALUATIONS, "counts = self._is_trusted(member)", "counts = True"
    ),
    "evaluations: the newest model is kept, and not the one that was played": Mutation(
        _EVALUATIONS,
        "CheckedEvaluation(marked, model, counts)",
        "CheckedEvaluation(marked, self._held[-1], counts)",
    ),
    "evaluations: that of a manager that stands still is given to nobody": Mutation(
        _EVALUATIONS, "elif now - asked.progressed_at > self._timeout_s:", "elif False:"
    ),
}


def seeds_needed(first: int) -> int:
    """Return how many seeds it takes from `first` on until one fails; 0: more than `_SEEDS_MAX`."""
    from simulate import simulate  # beside this file; not before the mutation is installed

    for tried in range(1, _SEEDS_MAX + 1):
        if simulate(first + tried).error:
            return tried
    return 0


def run_mutant(number: int, repeats: int) -> list[int]:
    """Install a mutation in this process, and search it some times."""
    list(MUTATIONS.values())[number].install()
    return [seeds_needed(repeat * 100_000) for repeat in range(repeats)]


def main() -> int:
    """Search every mutation; exit status 1 if one is not found."""
    survivors = 0
    for number, name in enumerate(MUTATIONS):
        command = [sys.executable, __file__, str(number), str(_REPEATS)]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        needed = [int(word) for word in found.split()]
        survivors += 0 in needed
        print(f"{median(needed):6g} seeds ({', '.join(map(str, needed))}): {name}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*run_mutant(int(sys.argv[1]), int(sys.argv[2])))
    else:
        sys.exit(main())
