"""Says whether the lock of a run's directory reaches the other hosts that see the directory."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.replay.budget import ROOT, mount_of

_LOCAL_NFS = ("nolock", "local_lock=all", "local_lock=flock")


def describe_local_locks(directory: Path, root: Path = ROOT) -> str:
    """Return why locks in a directory are this host's alone; "" where nothing says that they are.

    Args:
        root: where ``proc`` is looked for.
    """
    kind, options = mount_of(directory, root)
    if kind in ("nfs", "nfs4"):
        for option in filter(options.__contains__, _LOCAL_NFS):
            return f"NFS is mounted with {option}"
    if kind == "lustre" and "localflock" in options:
        return "Lustre is mounted with localflock"
    if kind == "cifs" and "nobrl" in options:
        return "CIFS is mounted with nobrl"
    if kind == "fuse.sshfs":
        return "sshfs has no locks that another host sees"
    return ""
