"""A manager's state with an outbox: which batches and reports go out, and what is deleted."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manager_rig import ROWS, RUN, Rig, logged_text, of, sent

from vedette_protocol.messages import OUTBOX, Ack, Batch, Refusal, Report, Stop
from vedette_services.actors.instructions import (
    Exit,
    Instruction,
    SendBatches,
    SendReport,
    StartActor,
)
from vedette_services.actors.outbox.files import OutboxFiles

NEWER = replace(RUN, features=(OUTBOX,))
OLDER = replace(RUN, features=())


class Host:
    """A host with an outbox, and the processes of its manager one after another."""

    def __init__(self, directory: Path, run: Any = NEWER) -> None:
        self.directory = directory
        self.run = run
        self.first = 0
        self.rig = Rig()
        self.files: OutboxFiles | None = None

    def start(self, memory_bytes: int = 1 << 20, **settings: Any) -> Rig:
        """Start a manager; it joins."""
        self.first += 100
        self.files = OutboxFiles(self.directory, max_bytes=1 << 20, memory_bytes=memory_bytes)
        self.rig = Rig(outbox=self.files, first_incarnation=self.first, **settings)
        self.rig.run = replace(self.run, actors=self.rig.run.actors)
        self.rig.state.on_connected(0.0)
        self.rig.state.on_control(self.rig.run, 0.0)
        return self.rig

    def kill(self) -> None:
        assert self.files is not None
        os.close(self.files._folder.descriptor)

    def sync(self) -> None:
        assert self.files is not None
        self.files.sync()

    def ack(self, incarnation: int, contiguous: int = 0, **fields: Any) -> list[Instruction]:
        return self.rig.ack(contiguous, incarnation=incarnation, **fields)

    @property
    def held(self) -> dict[int, list[int]]:
        """The numbers in the files, by session."""
        assert self.files is not None
        return {session.incarnation: [*session.held] for session in self.files.sessions}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "outbox")


def batches(instructions: list[Instruction]) -> list[Batch]:
    return [batch for send in of(SendBatches, instructions) for batch in send.batches]


def reports(instructions: list[Instruction]) -> dict[int, Report]:
    return {each.report.incarnation: each.report for each in of(SendReport, instructions)}


def test_a_batch_is_kept_until_it_is_safe_and_base_with_it(host: Host) -> None:
    rig = host.start()
    host.ack(100)
    for _ in range(3):
        rig.batch()
    host.ack(100, 2, safe=0)
    assert host.held == {100: [0, 1, 2]}
    report = reports(rig.state.send_report(1.0))[100]
    assert (report.base, report.sequenced, report.window_rows) == (0, 3, 4)
    assert OUTBOX in report.features
    host.ack(100, 2, safe=2)
    assert host.held == {100: [2]}
    [last] = batches(rig.batch())
    assert (last.seq, last.base) == (3, 2)


def test_an_ack_that_says_nothing_of_safe_deletes_nothing(host: Host) -> None:
    """It is the first one of a gateway that has just started, and knows no outbox of this host."""
    rig = host.start()
    host.ack(100)
    rig.batch()
    host.ack(100, 1)
    assert host.held == {100: [0]}


def test_what_is_stored_is_safe_where_the_learner_knows_no_better(host: Host) -> None:
    host.run = OLDER
    rig = host.start()
    host.ack(100)
    rig.batch()
    host.ack(100, 1)
    assert host.held == {100: []}


def test_a_process_sends_what_the_one_before_has_left_under_its_numbers(host: Host) -> None:
    rig = host.start()
    host.ack(100)
    for _ in range(3):
        rig.batch()
    host.ack(100, 1, safe=0)
    host.kill()
    rig = host.start()
    rig.batch()
    told = reports(rig.state.send_report(0.1))
    assert (told[100].ended, told[200].ended) == (True, False)
    assert (told[100].sequenced, told[100].window_rows, told[100].actors) == (3, 12, ())
    assert not of(StartActor, host.ack(100, 1, safe=0)), "its own ack numbers the actors"
    rig.state.on_connected(0.1)
    assert sent(host.ack(200)) == [0]
    left = batches(host.ack(100, 1, safe=0))
    assert [(batch.incarnation, batch.seq) for batch in left] == [(100, 1), (100, 2)]
    assert "what processes before this one" in logged_text(host.ack(100, 3, safe=1))
    host.ack(100, 3, safe=3)
    assert host.held == {200: [0]}
    assert set(reports(rig.state.send_report(0.2))) == {200}


def test_live_samples_go_beside_what_is_uploaded(host: Host) -> None:
    rig = host.start()
    for _ in range(200):
        rig.batch()
    host.kill()
    rig = host.start()
    for _ in range(200):
        rig.batch()
    host.ack(200, credit=500)
    rig.state.on_control(rig.run, 0.1)
    both = batches(host.ack(100, credit=500))
    assert {batch.incarnation for batch in both} == {100, 200}


def test_the_log_says_how_long_it_will_take_until_the_learner_has_what_was_left(
    host: Host,
) -> None:
    rig = host.start()
    for _ in range(100):
        rig.batch()
    host.kill()
    rig = host.start()
    rig.tick(1.0)
    assert rig.state.stats(1.0)["from_before"] == 400
    assert sent(host.ack(100, 60, safe=0, credit=20)) == [*range(60, 80)]
    host.ack(100, 64, safe=0)  # it had 240 of the rows; 16 more have come in 30 s
    said = logged_text(rig.tick(32.0))
    assert "144 samples from before are still to be sent: about 4:30 min at the rate of" in said
    assert "144 samples from before wait for the learner" in logged_text(rig.tick(63.0))
    host.ack(100, 80, safe=0)
    assert "80 samples from before are still to be sent: about 38 s at" in logged_text(
        rig.tick(94.0)
    )
    rig.state.on_connected(95.0)
    assert sent(host.ack(100, 80, safe=0, credit=20)) == [*range(80, 100)]
    host.ack(100, 90, safe=0)  # fewer than in the 30 s before: both count
    said = logged_text(rig.tick(125.0))
    assert "40 samples from before are still to be sent: about 23 s at the rate of" in said
    host.ack(100, 100, safe=100)
    assert "from before" not in logged_text(rig.tick(160.0))
    assert rig.state.stats(1.0)["from_before"] == 0


def test_another_learner_is_sent_again_what_the_one_before_had_stored(host: Host) -> None:
    rig = host.start()
    host.ack(100)
    for _ in range(3):
        rig.batch()
    host.ack(100, 3, safe=1)
    assert sent(host.ack(100, 1, epoch=2, learner=5, safe=1)) == [1, 2]
    assert sent(host.ack(100, 0, epoch=1)) == [], "the former one does not count any more"
    host.ack(100, 3, epoch=2, learner=5, safe=3)
    assert host.held == {100: []}


def test_after_a_new_connection_an_ack_says_what_is_sent_again(host: Host) -> None:
    rig = host.start()
    rig.batch()
    host.kill()
    rig = host.start()
    host.ack(200)
    rig.batch()
    assert sent(host.ack(100)) == [0]
    rig.state.on_disconnected()
    assert not sent(rig.state.on_connected(1.0))
    assert not sent(rig.batch()), "the learner has not said what it has"
    assert sent(host.ack(200, 1, safe=0)) == [1]
    assert sent(host.ack(100, safe=0)) == [0]


def test_a_session_that_had_no_ack_yet_believes_no_former_learner(host: Host) -> None:
    rig = host.start()
    rig.batch()
    host.kill()
    rig = host.start()
    rig.batch()
    host.ack(200, epoch=2, learner=5)
    host.ack(100, 1, epoch=1, safe=1)
    assert host.held[100] == [0]


def test_an_older_learner_sees_one_session_at_a_time_the_oldest_first(host: Host) -> None:
    host.run = OLDER
    for _ in range(2):
        host.start().batch()
        host.kill()
    rig = host.start()
    rig.batch()
    assert set(reports(rig.state.send_report(0.1))) == {100}
    first = host.ack(100)
    assert [batch.incarnation for batch in batches(first)] == [100]
    assert of(StartActor, first), "actors play meanwhile"
    host.ack(100, 1)
    assert set(reports(rig.state.send_report(0.2))) == {200}
    host.ack(200)
    host.ack(200, 1)
    assert set(reports(rig.state.send_report(0.3))) == {300}
    assert sent(host.ack(300)) == [0]


def test_a_file_that_lost_its_tail_takes_acks_of_more(host: Host) -> None:
    rig = host.start()
    host.ack(100)
    for _ in range(3):
        rig.batch()
    host.kill()
    [path] = host.directory.glob("*.outbox")
    os.truncate(path, path.stat().st_size - 5)
    host.start()
    assert host.held == {100: [0, 1], 200: []}
    host.ack(100, 3, safe=3)
    assert host.held == {200: []}


def test_a_session_that_was_numbered_further_elsewhere_is_ended(host: Host) -> None:
    """This machine was put back with its memory."""
    rig = host.start()
    host.ack(100)
    rig.batch()
    done = host.ack(100, 5, safe=0)
    assert "put back, or copied, with its memory" in logged_text(done)
    assert {number: report.ended for number, report in reports(done).items()} == {
        100: True,
        101: False,
    }
    rig.batch()
    assert sent(host.ack(101, safe=0)) == [0]
    assert host.held == {100: [0], 101: [0]}


def test_a_refusal_of_what_is_left_ends_nobody_and_deletes_nothing(host: Host) -> None:
    host.start().batch()
    host.kill()
    rig = host.start()
    done = rig.state.on_control(Refusal("m1", 100, "id", "it was replaced"), 1.0)
    assert not of(Exit, done)
    assert "its 4 samples stay there" in logged_text(done)
    assert set(reports(rig.state.send_report(1.0))) == {200}
    assert set(reports(rig.state.send_report(70.0))) == {100, 200}
    assert host.held[100] == [0]


def test_rows_of_another_run_stay_and_are_named(host: Host) -> None:
    host.start().batch()
    host.kill()
    host.run = replace(NEWER, run_id="r2")
    rig = Rig(outbox=OutboxFiles(host.directory, max_bytes=1 << 20), first_incarnation=200)
    rig.state.on_connected(0.0)
    text = logged_text(rig.state.on_control(host.run, 0.0))
    assert "holds 4 samples that run r2 does not take, of run r1" in text
    assert set(reports(rig.state.send_report(1.0))) == {200}


def test_batches_that_are_larger_than_the_run_takes_are_not_sent(host: Host) -> None:
    host.start().batch()
    host.kill()
    host.run = replace(NEWER, batch_rows=3)
    rig = host.start()
    assert set(reports(rig.state.send_report(1.0))) == {200}
    assert host.held[100] == [0]


def test_another_run_ends_the_session(host: Host) -> None:
    rig = host.start()
    rig.batch()
    done = rig.state.on_control(replace(rig.run, run_id="r2"), 1.0)
    assert "4 samples of the last are left in the outbox" in logged_text(done)
    assert host.held == {100: [0], 101: []}


def test_epochs_of_one_run_say_nothing_of_another(host: Host) -> None:
    rig = host.start()
    host.ack(100, epoch=7)
    rig.run = replace(rig.run, run_id="r2")
    rig.state.on_control(rig.run, 1.0)
    rig.batch()
    assert sent(rig.ack(incarnation=101, epoch=1)) == [0]


def test_an_older_learner_numbers_the_actors_by_the_session_that_it_sees(host: Host) -> None:
    host.run = OLDER
    host.start().batch()
    host.kill()
    rig = host.start()
    assert len(reports(rig.state.send_report(0.1))[100].actors) == 2
    [first, _] = of(StartActor, host.ack(100, first_actor=6))
    assert first.number == 6


def test_a_full_outbox_makes_actors_wait(tmp_path: Path) -> None:
    rig = Rig(outbox=OutboxFiles(tmp_path, max_bytes=2000))
    rig.state.on_control(NEWER, 0.0)
    while rig.state.has_room_for(16):
        rig.batch()
    rig.run = NEWER
    rig.ack(safe=0)
    rig.ack(3, safe=3)
    assert rig.state.has_room_for(16)


def test_the_log_says_that_actors_wait_for_room_and_who_takes_it(tmp_path: Path) -> None:
    def start(files: OutboxFiles, run_id: str, first: int) -> Rig:
        rig = Rig(outbox=files, first_incarnation=first)
        rig.state.on_connected(0.0)
        rig.state.on_control(replace(NEWER, run_id=run_id, actors=rig.run.actors), 0.0)
        rig.run = replace(NEWER, run_id=run_id)
        return rig

    files = OutboxFiles(tmp_path, max_bytes=3000)
    rig = start(files, "r1", 100)
    rig.state.on_disconnected()
    while rig.state.has_room_for(16):
        rig.batch()
    text = logged_text(rig.state.on_no_room(16, 1.0))
    assert f"the outbox {tmp_path} is full: actors wait for room in its 3 kB" in text
    assert "other runs" not in text
    assert rig.state.on_no_room(16, 2.0) == []  # it is said now and then
    files.close()
    rig = start(OutboxFiles(tmp_path, max_bytes=3000), "r2", 200)
    text = logged_text(rig.state.on_no_room(16, 1.0))
    assert ", of which other runs take" in text
    assert "remove their files, or start this manager with a larger --outbox-mib" in text


def test_a_batch_that_no_outbox_of_this_size_takes_is_named(tmp_path: Path) -> None:
    rig = Rig(outbox=OutboxFiles(tmp_path, max_bytes=3000))
    rig.state.on_control(NEWER, 0.0)
    text = logged_text(rig.state.on_no_room(5000, 1.0))
    assert "a batch of 5 kB is larger than the outbox" in text
    assert "with a larger --outbox-mib, or lower actors.n_buffer" in text


def test_new_samples_that_are_dropped_for_want_of_room_are_named(tmp_path: Path) -> None:
    rig = Rig(outbox=OutboxFiles(tmp_path, max_bytes=500), on_full="drop_oldest")
    rig.run = replace(NEWER, actors=rig.run.actors)
    rig.state.on_control(rig.run, 0.0)
    rig.state.on_connected(0.0)
    rig.batch()
    text = logged_text(rig.state.on_tick(1.0))
    assert "new samples are dropped: a batch of 16 B has no room in 500 B" in text
    assert "a larger --outbox-mib, or remove the files of other runs" in text


def test_actors_wait_for_credit_while_the_learner_answers_and_not_while_it_is_away(
    host: Host,
) -> None:
    rig = host.start()
    host.ack(100)
    host.ack(100, limit=0)
    while rig.state.has_room_for(16):
        rig.batch()
        assert len(host.held[100]) < 100, "what waits grows older"
    assert rig.state.on_no_room(16, 1.0) == []
    rig.state.on_disconnected()
    assert rig.state.has_room_for(16)


def test_a_full_outbox_drops_the_oldest_where_it_is_to(tmp_path: Path) -> None:
    files = OutboxFiles(tmp_path, max_bytes=2000)
    rig = Rig(outbox=files, on_full="drop_oldest")
    rig.run = replace(NEWER, actors=rig.run.actors)
    rig.state.on_control(rig.run, 0.0)
    rig.state.on_connected(0.0)
    for _ in range(40):
        assert rig.state.has_room_for(16)
        rig.batch()
    report = reports(rig.state.send_report(1.0))[100]
    assert report.dropped > 0
    assert report.produced == 160 == report.dropped + report.window_rows
    assert report.base == report.sequenced > 0
    assert sum(path.stat().st_size for path in tmp_path.glob("*.outbox")) <= 2000


def test_a_manager_that_leaves_keeps_what_the_learner_lacks(host: Host) -> None:
    rig = host.start()
    host.ack(100)
    rig.batch()
    rig.state.leave("asked to stop", 0.0)
    done = rig.tick(11.0)
    assert "4 samples that the learner does not have stay in the outbox" in logged_text(done)
    assert reports(done)[100].dropped == 0
    host.kill()
    host.start()
    assert host.held[100] == [0]


def test_at_the_end_of_the_run_a_manager_waits_until_all_is_safe(host: Host) -> None:
    rig = host.start()
    host.ack(100)
    rig.batch()
    host.ack(100, 1, safe=0)
    rig.state.on_control(Stop("r1", 1, "max_opts", final=True), 0.0)
    for index in range(2):
        rig.exited(index)
    assert not of(Exit, rig.tick(5.0))
    assert of(Exit, host.ack(100, 1, safe=1))


def test_acks_of_other_managers_are_not_ours(host: Host) -> None:
    host.start().batch()
    host.kill()
    host.start()
    ack = Ack("r1", 1, 77, "other", 100, 1, 0, 0, 0, 9, 0, 0, safe=1)
    host.rig.state.on_control(ack, 1.0)
    assert host.held[100] == [0]


def test_samples_that_are_damaged_on_the_disk_are_named_and_counted_as_dropped(host: Host) -> None:
    host.start().batch()
    host.kill()
    rig = host.start()
    [path] = host.directory.glob("*.outbox")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert sent(host.ack(100)) == []
    text = logged_text(rig.state.on_tick(1.0))
    assert f"{host.directory}: 4 samples cannot be read and are dropped" in text
    assert "samples cannot be kept" not in text
    assert host.held == {200: []}


def test_each_file_that_is_damaged_is_named(host: Host) -> None:
    for _ in range(4):
        host.start().batch()
        host.kill()
    *unread, cut = sorted(host.directory.glob("*.outbox"))
    for path in unread:
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data + bytes(500))
    cut.write_bytes(cut.read_bytes()[:-1])
    rig = host.start()
    text = logged_text(rig.state.on_tick(1.0))
    for path in unread:
        kept = path.with_suffix(".damaged")
        assert kept.exists()
        assert f"it is now {kept.name}" in text
    assert f"outbox: {cut} is not whole" in text
    assert "more)" not in text


def test_sessions_that_wait_for_safe_do_not_keep_others_from_being_sent(host: Host) -> None:
    """A learner with a snapshot has stored them long before they are safe."""
    for _ in range(5):
        rig = host.start()
        host.ack(host.first)
        rig.batch()
        host.kill()
    rig = host.start()
    for session in (100, 200, 300):
        host.ack(session, 1, safe=0)
    assert {400, 500} < set(reports(rig.state.send_report(1.0)))
    for session in (400, 500):
        host.ack(session, 1, safe=0)
    assert {100, 200, 300} < set(reports(rig.state.send_report(2.0)))
    assert host.held == {100: [0], 200: [0], 300: [0], 400: [0], 500: [0], 600: []}


def test_a_report_to_a_later_learner_says_that_all_is_held_until_its_ack(host: Host) -> None:
    """Else what the former learner had stored would count as lost."""
    rig = host.start()
    host.ack(100)
    for _ in range(3):
        rig.batch()
    host.ack(100, 2, safe=0)
    later = replace(rig.run, epoch=rig.run.epoch + 1, learner=rig.run.learner + 1)
    told = rig.state.on_control(later, 2.0)
    assert reports(told)[100].window_batches == 3
    assert not batches(told), "its ack says what it has"


def test_live_samples_do_not_wait_for_files_that_are_away_and_those_are_sent_once_they_are_back(
    host: Host,
) -> None:
    """A learner takes no number that is far above a gap, so they go in another session."""
    rig = host.start(memory_bytes=50)
    host.ack(100, credit=0)
    for _ in range(4):
        rig.batch()
    host.sync()
    rig.batch()  # two of those before it are in files alone
    away = host.directory.rename(host.directory.with_name("away"))
    host.sync()
    said = logged_text(rig.tick(1.0))
    assert f"the outbox {host.directory} is away (it is not there)" in said
    assert "4 samples are in memory alone, kept no better than without an outbox" in said
    assert "8 samples in its files are sent once it is back" in said
    assert sent(host.ack(100, credit=8)) == [2, 3, 4], "which are in memory"
    assert reports(rig.tick(2.0))[101].produced == 0
    assert host.held == {100: [0, 1, 2, 3, 4], 101: []}
    host.ack(101)
    host.ack(100, credit=8)
    live = batches(rig.batch())
    assert [(batch.incarnation, batch.seq) for batch in live] == [(101, 0)]
    assert logged_text(rig.tick(2.5)).count("is away") == 0, "one line says it"
    away.rename(host.directory)
    host.sync()
    done = rig.tick(2.9)
    assert logged_text(done).count("is back") == 1
    left = {(batch.incarnation, batch.seq) for batch in batches(done + host.ack(100, credit=8))}
    assert {(100, 0), (100, 1)} <= left
    host.ack(100, 5, safe=5)
    host.ack(101, 1, safe=1)
    assert host.held == {101: []}
    assert rig.state.stats(2.9)["dropped"] == 0


def test_actors_wait_while_memory_is_full_and_the_outbox_is_away(host: Host) -> None:
    rig = host.start(memory_bytes=100)
    host.ack(100, credit=0)
    host.directory.rename(host.directory.with_name("away"))
    host.sync()
    rig.tick(1.0)
    assert host.files is not None
    made = 0
    while host.files.has_room(16):
        rig.batch()
        made += 1
    assert made == 6, "payloads of 16 bytes in 100"
    assert reports(rig.state.send_report(1.0))[100].memory_rows == 6 * ROWS
    assert rig.state.stats(1.0)["memory_rows"] == 6 * ROWS
    assert not rig.state.has_room_for(16)
    assert "actors wait until it is back" in logged_text(rig.state.on_no_room(16, 1.0))
    said = logged_text(rig.state.leave("asked to stop", 2.0) + rig.tick(30.0))
    assert "24 samples that the learner does not have could not be written to" in said


def test_the_oldest_samples_in_memory_go_while_the_outbox_is_away_where_they_are_to(
    host: Host,
) -> None:
    rig = host.start(memory_bytes=100, on_full="drop_oldest")
    host.ack(100, credit=0)
    rig.batch()
    host.sync()
    host.directory.rename(host.directory.with_name("away"))
    host.sync()
    rig.tick(1.0)
    for _ in range(10):
        rig.batch()
    assert host.held[100] == [0, *range(5, 11)], "what is on the disk is kept"


def test_what_is_in_memory_alone_is_kept_as_without_an_outbox_and_counted_until_it_is_written(
    host: Host,
) -> None:
    """It is freed once the learner has stored it, and a kill loses it: `memory_rows` says so."""
    rig = host.start()
    host.ack(100, credit=8)
    rig.batch()
    host.sync()
    away = host.directory.rename(host.directory.with_name("away"))
    host.sync()
    rig.tick(1.0)
    for _ in range(3):
        rig.batch()
    assert reports(rig.state.send_report(1.0))[100].memory_rows == 3 * ROWS
    assert rig.state.stats(1.0)["memory_rows"] == 3 * ROWS
    host.ack(100, 2, safe=0)
    assert host.held == {100: [0, 2, 3]}, "what is in a file waits until it is safe"
    assert reports(rig.state.send_report(1.1))[100].memory_rows == 2 * ROWS
    away.rename(host.directory)
    host.sync()
    rig.tick(2.5)
    assert reports(rig.state.send_report(2.5))[100].memory_rows == 0
    host.directory.rename(away)
    host.sync()
    rig.tick(3.0)
    rig.batch()
    away.rename(host.directory)
    host.kill()
    rig = host.start()
    assert host.held == {100: [0, 2, 3], 200: []}, "as the table says: a kill meanwhile loses it"


def test_a_disk_that_takes_no_writes_is_named_with_the_samples_that_it_lacks(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = host.start()
    host.ack(100, credit=0)

    def full(descriptor: int, parts: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    for _ in range(2):
        rig.batch()
    said = logged_text(rig.tick(1.0))
    assert f"samples cannot be kept in {host.directory}: No space left" in said
    assert "8 samples are in memory alone, kept no better than without an outbox" in said
    assert "lost if this manager is killed, and freed once the learner has stored them" in said
    rig.batch()
    assert "in memory alone" not in logged_text(rig.tick(20.0)), "it is not said at each change"
    assert "12 samples are in memory alone" in logged_text(rig.tick(40.0))
