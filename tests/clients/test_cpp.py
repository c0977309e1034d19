"""C++ programs use the client in C, also those of other releases and as an installed library."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from c_programs import CLIENT, CPP, ROOT, Built, find_compiler

FUNCTION = re.compile(r"VEDETTE_API .*?\b(vedette_\w+)\(")
CALLER = """
#include "vedette.h"
void call(vedette *v) {
    const vedette_options options{};
    vedette_stats stats;
    v = vedette_open(&options);
    vedette_get_stats(v, &stats);
    vedette_close(v, 0);
}
"""
FINDER = """
cmake_minimum_required(VERSION 3.18)
project(finder LANGUAGES CXX)
find_package(vedette 0.2 REQUIRED)
add_executable(found statuses.cpp)
target_link_libraries(found vedette::vedette)
"""


def release() -> str:
    """The project's version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def test_a_cpp_program_calls_the_functions_of_c(tmp_path: Path) -> None:
    compiler = find_compiler("c++", "g++")
    symbols = find_compiler("nm", "binutils")
    source = tmp_path / "caller.cpp"
    source.write_text(CALLER)
    made = tmp_path / "caller.o"
    strict = [*CPP, "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *strict, f"-I{CLIENT}", "-c", source, "-o", made], check=True)
    lines = subprocess.run([symbols, made], capture_output=True, text=True, check=True).stdout
    wanted = {line.split()[-1] for line in lines.splitlines() if " U " in line}
    called = {"vedette_open_sized", "vedette_get_stats_sized", "vedette_close"}
    assert called <= wanted, "names as C has them, not as C++ makes them"


def test_header_and_crate_have_the_projects_version() -> None:
    header = (CLIENT / "vedette.h").read_text()
    parts = re.findall(r"#define VEDETTE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    crate = tomllib.loads((ROOT / "clients/rust/Cargo.toml").read_text())["package"]
    assert ".".join(parts) == crate["version"] == re.sub(r"[^\d.].*", "", release())


def test_statuses_are_as_the_header_says_and_structures_have_sizes(built_fast: Built) -> None:
    program = built_fast("tests/clients/statuses.cpp")
    done = subprocess.run([program], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["ON", "OFF"])
def test_what_cmake_installs_is_found_by_cmake_and_pkg_config(
    built_fast: Built, tmp_path: Path, shared: str
) -> None:
    built_fast("tests/clients/statuses.cpp")  # it can be built here at all
    cmake = find_compiler("cmake", "cmake")
    place = tmp_path / "installed"
    build = tmp_path / "build"
    options = [f"-DBUILD_SHARED_LIBS={shared}", f"-DCMAKE_INSTALL_PREFIX={place}"]
    subprocess.run(
        [cmake, "-S", CLIENT, "-B", build, *options, "-DVEDETTE_EXAMPLES=OFF"], check=True
    )
    subprocess.run([cmake, "--build", build, "--target", "install"], check=True)

    finder = tmp_path / "finder"
    finder.mkdir()
    shutil.copy(ROOT / "tests/clients/statuses.cpp", finder)
    (finder / "CMakeLists.txt").write_text(FINDER)
    found = finder / "build"
    subprocess.run([cmake, "-S", finder, "-B", found, f"-DCMAKE_PREFIX_PATH={place}"], check=True)
    subprocess.run([cmake, "--build", found], check=True)
    subprocess.run([found / "found"], check=True, timeout=20)

    if shared == "ON":
        (library,) = place.rglob("libvedette.so")
        names = [find_compiler("nm", "binutils"), "-D", "--defined-only", library]
        shown = subprocess.run(names, capture_output=True, text=True, check=True).stdout
        public = {line.split()[-1] for line in shown.splitlines()}
        assert public == set(FUNCTION.findall((CLIENT / "vedette.h").read_text()))

    (described,) = place.rglob("vedette.pc")
    asks = [find_compiler("pkg-config", "pkg-config"), described]
    version = subprocess.run([*asks, "--modversion"], capture_output=True, text=True, check=True)
    assert version.stdout.strip() == re.sub(r"[^\d.].*", "", release())
    flags = subprocess.run(
        [*asks, "--cflags", "--libs"], capture_output=True, text=True, check=True
    )
    source = ROOT / "tests/clients/statuses.cpp"
    program = tmp_path / "by_pkg_config"
    words = [find_compiler("c++", "g++"), source, *flags.stdout.split(), "-o", program]
    subprocess.run([*words, f"-Wl,-rpath,{described.parents[1]}"], check=True)
    subprocess.run([program], check=True, timeout=20)
