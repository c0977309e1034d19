"""Type checkers of those who use the packages believe their annotations."""

from importlib import resources

import pytest


@pytest.mark.parametrize(
    "package", ["vedette", "vedette_protocol", "vedette_rl", "vedette_services"]
)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert resources.files(package).joinpath("py.typed").is_file()
