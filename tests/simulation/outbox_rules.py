"""The rules of the outbox. Each can be taken out, and the model has to miss it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of `docs/decisions/outbox.md`; False takes one out."""

    # The outbox

    appended_before_sent: bool = True
    """A batch is in the file before it is sent."""
    numbered_when_appended: bool = True
    """A batch has its session and number from its first byte in the file on. Taken out: what an
    ended session has not sent gets a number of the session that sends it."""
    session_ends_with_process: bool = True
    """No process adds to a session that it did not begin."""
    session_is_random: bool = True
    """A session's name is drawn at random, and is no count."""
    session_keeps_manager: bool = True
    """Batches are sent under the manager's id of their session, whatever the id is now."""
    synced_in_time: bool = True
    """The file is synced at intervals."""
    written_again_after_failed_sync: bool = True
    """What a sync that failed was to write is written again, elsewhere. Taken out: the next sync,
    which succeeds, is believed."""
    torn_append_is_cut: bool = True
    """What an append that failed left behind is cut off before anything is appended behind it."""
    folder_is_locked: bool = True
    """A process that finds another one in its folder ends."""
    deleted_when_safe: bool = True
    """A batch is deleted when it is safe. Taken out: when it is stored."""
    base_is_lowest_held: bool = True
    """`base` is the lowest number in the file. Taken out: the lowest that is not stored."""
    stored_is_of_one_learner: bool = True
    """What a learner has stored is forgotten when another one answers."""
    knows_more_than_the_file: bool = True
    """An ack above the numbers of an ended session is no error: its file may have lost its tail."""
    ended_sessions_ask_until_safe: bool = True
    """An ended session is reported as long as it has a file. Taken out: until all is stored."""
    bounded: bool = True
    """A full outbox makes actors wait, or drops its oldest batch."""
    lower_epochs_ignored: bool = True
    """Acks of a lower epoch are ignored while a higher one answers."""
    one_session_for_older_learners: bool = True
    """A learner without the feature sees one session at a time, the oldest first."""
    older_by_its_run: bool = True
    """A learner is older if its run does not list the feature. Taken out: if an ack has no `safe`,
    which the first ack of a learner has not, as it has read no report yet."""
    refused_is_kept: bool = True
    """A refusal of an ended session deletes nothing: it may have been for the process before."""

    # The ledger

    ended_is_no_rival: bool = True
    """A report of an ended session does not make its sender a second manager with that id."""
    rival_stays_open: bool = True
    """A process that is refused, because another one has its id, loses no account: its session is
    sent as an ended one. Taken out: its account is closed for good."""
    held_is_replaced: bool = True
    """A report of an ended session says what is held, also where its counts are smaller."""
    dropped_is_of_missing: bool = True
    """`dropped` is a share of what is missing. Taken out: it is added to what was inserted."""
    never_forgotten: bool = True
    """An account of a session that is closed stays known. Taken out: only its sums do."""
    archive_is_synced: bool = True
    """An account leaves the stamp when the disk has it in the archive."""
    closed_with_gaps: bool = True
    """A closed account keeps its numbers above a gap."""
    older_learner_refuses_archive: bool = True
    """An older release does not open a ledger that a newer one has opened."""

    # Safe

    safe_is_synced: bool = True
    """Without a snapshot, safe is what the last sync has. Taken out: the last commit."""
    snapshot_is_synced: bool = True
    """A snapshot takes what the last sync has. Taken out: the last commit."""
    snapshot_is_of_one_moment: bool = True
    """Rows and ledger of a snapshot are of one commit."""
    safe_after_creation: bool = True
    """Nothing is called safe before its generation is there."""
    created_exclusively: bool = True
    """A generation whose number is taken is not written."""
    newest_is_compared: bool = True
    """Who has copied looks once more before it creates: the newest is the one that it continues."""
    created_from_aside: bool = True
    """It looks once a generation is written aside, in the directory, and links that. So what is put
    in the place of the directory behind the look has nothing to link."""
    chain_is_checked: bool = True
    """A generation continues one that is there; else it has all rows."""
    descent_is_checked: bool = True
    """Who is no descendant of the newest generation writes none."""
    descent_by_start: bool = True
    """Descent is told by the start that wrote the generation. Taken out: by the number of rows."""
    start_is_in_snapshot: bool = True
    """A start from a snapshot writes a generation before it answers anybody."""
    epoch_exceeds_reserved: bool = True
    """A start from a snapshot takes an epoch above all that earlier starts may use."""


ALL = Rules()
