"""Which mounts keep locks to one host."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette_services.run.shared_locks import describe_local_locks


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        ("rw - ext4 /dev/x rw", ""),
        ("rw - nfs4 host:/a rw,vers=4.2,local_lock=none", ""),
        ("rw - nfs host:/a rw,vers=3,nolock,local_lock=all", "NFS is mounted with nolock"),
        ("rw - nfs host:/a rw,local_lock=flock", "NFS is mounted with local_lock=flock"),
        ("rw - nfs host:/a rw,local_lock=posix", ""),
        ("rw - lustre m@tcp:/a rw,flock", ""),
        ("rw - lustre m@tcp:/a rw,localflock", "Lustre is mounted with localflock"),
        ("rw - cifs //host/a rw,nobrl", "CIFS is mounted with nobrl"),
        ("rw - fuse.sshfs me@host: rw", "sshfs has no locks that another host sees"),
    ],
)
def test_a_mount_that_keeps_locks_to_this_host_is_known(
    tmp_path: Path, mount: str, why: str
) -> None:
    file = tmp_path / "proc" / "self" / "mountinfo"
    file.parent.mkdir(parents=True)
    file.write_text(f"1 0 8:1 / / rw - ext4 /dev/y rw\n2 1 0:9 / {tmp_path}/runs {mount}\n")
    (tmp_path / "runs").mkdir()
    assert describe_local_locks(tmp_path / "runs" / "one", tmp_path) == why
