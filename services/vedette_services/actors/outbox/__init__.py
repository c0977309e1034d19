"""A manager's batches in files of its host, kept until they are safe at the learner.

`records` is the format of a file, `files` the folder: it appends, syncs, reads and deletes.
`window` says which batches are sent, and `outbox` which incarnations. `docs/decisions/outbox.md`
has the rules.
"""
