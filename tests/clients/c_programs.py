"""Builds programs with the C client, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "c"
FLAGS = [
    "-DSTANDALONE",
    "-DNO_WINDOW",
    "-DFOLLOW_S=2.0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O1",
    "-g",
]
C = ["-std=c11"]
CPP = ["-std=c++17", "-Wpedantic", "-Wconversion", "-Wshadow"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

Built = Callable[[str], Path]
"""Builds a source file of the repository with the client; returns the program."""


def find_compiler(name: str, package: str) -> str:
    """The compiler; skips the test where there is none."""
    compiler = shutil.which(name)
    if compiler is None:
        pytest.skip(f"not tested: there is no {name} (apt-get install {package})")
    return compiler


def make_builder(folder: Path, *, sanitized: bool = True) -> Built:
    """Compile the client once; skips the test, with the reason, where that is not possible.

    Args:
        sanitized: under AddressSanitizer and UndefinedBehaviorSanitizer, which takes longer.
    """
    compiler = find_compiler("cc", "gcc")
    flags = [*FLAGS, *(SANITIZERS if sanitized else ["-O0"])]
    probe = folder / "probe.c"
    probe.write_text('#include <zmq.h>\nint main(void) { return !zmq_has("curve"); }\n')
    command = [compiler, *C, *flags]
    made = subprocess.run([*command, probe, "-o", folder / "probe", "-lzmq"], capture_output=True)
    if made.returncode:
        pytest.skip(
            "the C client is not tested: libzmq's header or a sanitizer is missing "
            f"(apt-get install libzmq3-dev): {made.stderr.decode().strip().splitlines()[-1]}"
        )
    objects: list[Path] = []
    for source in sorted(CLIENT.glob("*.c")):
        objects.append(folder / f"{source.stem}.o")
        subprocess.run([*command, "-c", source, "-o", objects[-1]], check=True)
    programs: dict[str, Path] = {}

    def build(source: str) -> Path:
        program = folder / Path(source).stem
        if source not in programs:
            libraries = ["-lzmq", "-lpthread", "-lm"]
            files = [f"-I{CLIENT}", ROOT / source, *objects, "-o", program, *libraries]
            is_cpp = source.endswith(".cpp")
            compiling = [find_compiler("c++", "g++"), *CPP, *flags] if is_cpp else command
            subprocess.run([*compiling, *files], check=True)
            programs[source] = program
        return program

    return build


DEBIAN_CRATES = Path("/usr/share/cargo/registry")
"""The crates of Debian's packages librust-...-dev."""


def build_rust(folder: Path) -> Path:
    """Build and test the Rust binding; skips the test where cargo or the crate `cc` is missing."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("the Rust binding is not tested: there is no cargo (rustup.rs)")
    if not (Path("/usr/include/zmq.h").exists() or shutil.which("pkg-config")):
        pytest.skip("the Rust binding is not tested: no libzmq (apt-get install libzmq3-dev)")
    options: list[str] = []
    if list(DEBIAN_CRATES.glob("cc-*")):
        source = f'source.debian.directory="{DEBIAN_CRATES}"'
        options = ["--config", 'source.crates-io.replace-with="debian"', "--config", source]
    manifest = ["--manifest-path", ROOT / "clients/rust/Cargo.toml", "--target-dir", folder]
    fetched = subprocess.run(
        [cargo, *options, "fetch", *manifest[:2]], capture_output=True, text=True, timeout=120
    )
    if fetched.returncode:
        why = fetched.stderr.strip().splitlines()[-1]
        pytest.skip(f"the Rust binding is not tested: no crates (librust-cc-dev): {why}")
    subprocess.run([cargo, *options, "test", "--offline", *manifest], check=True)
    subprocess.run([cargo, *options, "build", "--offline", "--examples", *manifest], check=True)
    return folder
