"""Coverage-guided fuzzing of the decoders, by libFuzzer: ``fuzz_decoders.py CORPUS -runs=...``.

Whatever raises but a `ProtocolError`, `MemoryError` with it, is left as ``crash-*`` where
`-artifact_prefix` says.
"""

from __future__ import annotations

import resource
import sys

import atheris

MEMORY_BYTES = 700 << 20
# Not libFuzzer's -rss_limit_mb: the peak that it reads is also that of who started this process.
resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))

with atheris.instrument_imports(include=["vedette_protocol"]):
    from decoder_target import feed

atheris.Setup(sys.argv, feed)
atheris.Fuzz()
