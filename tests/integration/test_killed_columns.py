"""Columns that an agent and a step processor declare survive kills as the others do."""

import pytest
from counting_columns import AGENT, STEPS, wrong_rows
from counting_run import CountingRun
from daemons import Daemons

from vedette_rl.replay.export import LiveRows


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_leave_every_rows_own_columns_as_they_were_made(daemons: Daemons) -> None:
    run = CountingRun(
        daemons,
        f"actors.step_processor={STEPS}",
        agent=AGENT,
        allow=("counting_env", "counting_columns"),
    )
    run.start_manager("a", count=2)
    run.start_manager("b")
    for _ in range(3):
        run.flows()
        run.learner.kill9()
        run.start_learner()
    run.flows()
    run.managers.pop().kill9()
    run.start_manager("c")
    run.flows()
    proof, accounting = run.finish()
    with LiveRows(run.run / "replay") as live:
        columns = {name: live.column(name) for name in live.names}
    print(f"{proof.rows} rows, accounting {accounting}")
    assert columns["sum"].dtype == "f8"
    assert wrong_rows(columns) == 0
