"""Coverage-guided fuzzing of the decoders, by libFuzzer: ``fuzz_decoders.py CORPUS -runs=...``.

Whatever raises but a `ProtocolError`, or takes more memory than `-rss_limit_mb`, is left as
``crash-*`` where `-artifact_prefix` says.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["vedette_protocol"]):
    from decoder_target import feed

atheris.Setup(sys.argv, feed)
atheris.Fuzz()
