"""Makes our modules see another operating system: with this folder on PYTHONPATH, Python runs it.

``VEDETTE_TEST_SYSTEM`` names a file with the platform, the names that each module of the standard
library lacks there, and the modules that it lacks altogether. Only Vedette's own modules see less:
other libraries were installed for this system. For all there is no ``/proc`` and no ``/sys``.
"""

import builtins
import io
import json
import os
import sys
import types
from pathlib import Path

_FOUND = json.loads(Path(os.environ["VEDETTE_TEST_SYSTEM"]).read_text("utf-8"))
_MISSING_NAMES = {name: frozenset(names) for name, names in _FOUND["names"].items()}
_MISSING_MODULES = frozenset(_FOUND["modules"])
_HIDDEN = ("/proc", "/sys")


class _Without(types.ModuleType):
    """A module without some of its names; what is set is set in the module itself."""

    def __init__(self, module, missing):
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_missing", missing)

    def __getattribute__(self, name):
        if name in object.__getattribute__(self, "_missing"):
            raise AttributeError(f"{name}: not on {_FOUND['platform']}")
        if name == "platform" and object.__getattribute__(self, "_module") is sys:
            return _FOUND["platform"]
        return getattr(object.__getattribute__(self, "_module"), name)

    def __setattr__(self, name, value):
        setattr(object.__getattribute__(self, "_module"), name, value)


_real_import = builtins.__import__
_proxies = {}


def _is_ours(namespace):
    spec = namespace.get("__spec__")
    name = spec.name if spec is not None else namespace.get("__name__", "")
    return name.startswith("vedette")


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    if level or globals is None or not _is_ours(globals):
        return _real_import(name, globals, locals, fromlist, level)
    if name in _MISSING_MODULES:
        raise ImportError(f"No module named {name!r} on {_FOUND['platform']}")
    module = _real_import(name, globals, locals, fromlist, level)
    if name not in _MISSING_NAMES:
        return module
    return _proxies.setdefault(name, _Without(module, _MISSING_NAMES[name]))


def _hide(module, name):
    real = getattr(module, name)

    def call(path=".", *arguments, **named):
        if isinstance(path, str | os.PathLike):
            text = os.fspath(path)
            if isinstance(text, str) and text.startswith(_HIDDEN):
                raise FileNotFoundError(2, "No such file or directory", text)
            if str(text).startswith("/dev/fd/") and name == "open" and module is not os:
                path = os.dup(int(text.rpartition("/")[2]))  # as macOS has it: one offset for both
        return real(path, *arguments, **named)

    setattr(module, name, call)


builtins.__import__ = _import
for _module, _name in (
    (io, "open"),
    (builtins, "open"),
    (os, "open"),
    (os, "stat"),
    (os, "scandir"),
    (os, "listdir"),
):
    _hide(_module, _name)
