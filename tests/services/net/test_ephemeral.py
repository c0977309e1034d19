"""A port that the kernel gives out is warned of."""

from pathlib import Path

import pytest

from vedette_services.net.addresses import Address, ephemeral_ports, port_warning

GIVEN_OUT = range(32768, 61000)


@pytest.mark.parametrize("port", [32766, 32768, 40000, 60999])
def test_a_port_that_the_kernel_gives_out_is_warned_of(port: int) -> None:
    said = port_warning(Address("127.0.0.1", port), GIVEN_OUT)
    assert "32768 to 60999" in said
    assert "below 32766" in said
    assert "\n" not in said


@pytest.mark.parametrize("port", [5555, 32765, 61000])
def test_others_are_not(port: int) -> None:
    assert port_warning(Address("127.0.0.1", port), GIVEN_OUT) == ""


def test_where_the_kernel_does_not_say_nothing_is_warned_of(tmp_path: Path) -> None:
    assert not ephemeral_ports(tmp_path / "none")
    (tmp_path / "odd").write_text("what")
    assert not ephemeral_ports(tmp_path / "odd")
    (tmp_path / "range").write_text("1024\t65000\n")
    assert ephemeral_ports(tmp_path / "range") == range(1024, 65001)
    assert port_warning(Address("127.0.0.1", 5555), range(0)) == ""
