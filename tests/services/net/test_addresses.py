"""Addresses are read and checked, and a port that the kernel gives out is warned of."""

from pathlib import Path

import pytest

from vedette_services.errors import AddressError, UsageError
from vedette_services.net.addresses import Address, ephemeral_ports, port_warning


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:6000", "127.0.0.1", 6000),
        ("gpu.example.org", "gpu.example.org", 5555),
        ("my_host:1", "my_host", 1),
        ("[::1]:6000", "::1", 6000),
        ("[::1]", "::1", 5555),
        ("*:6000", "0.0.0.0", 6000),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not an address",
        "host:",
        "host:x",
        "host:0",
        "host:65534",
        "host:1:2",
        "::1",
        "[::1",
        "[host]:1",
        "tcp://host:5555",
        "300.1.1.1",
        "host:٣",
        "-x:1",
        ":5555",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(AddressError, match=r"127\.0\.0\.1:5555"):
        Address.parse(text)


def test_its_three_endpoints_are_ports_in_a_row() -> None:
    address = Address("::1", 6000)
    assert address.samples == "tcp://[::1]:6000"
    assert (address.control, address.models) == ("tcp://[::1]:6001", "tcp://[::1]:6002")
    assert Address.parse(str(address)) == address


def test_an_open_address_is_bound_only_on_the_word_insecure() -> None:
    address = Address.parse("0.0.0.0:6000")
    with pytest.raises(UsageError, match="--insecure"):
        address.to_bind(insecure=False)
    assert address.to_bind(insecure=True) == address


def test_a_name_is_resolved_before_it_is_bound() -> None:
    assert Address.parse("localhost:6000").to_bind(insecure=False).loopback


def test_a_name_is_every_address_that_it_has_and_ipv4_is_bound_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(0, 0, 0, "", ("::1", 6000, 0, 0)), (0, 0, 0, "", ("127.0.0.1", 6000))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [*found, *found])
    both = [Address("::1", 6000), Address("127.0.0.1", 6000)]
    assert Address("name", 6000).resolved() == both
    assert Address("name", 6000).to_bind(insecure=False) == both[1]
    assert Address("10.0.0.1", 1).resolved() == [Address("10.0.0.1", 1)]


def test_a_file_names_the_learner_and_is_read_anew_each_time(tmp_path: Path) -> None:
    place = tmp_path / "address"
    with pytest.raises(AddressError, match="cannot be read"):
        Address.find(f"@{place}")
    place.write_text("gpu-1:6000\n")
    assert Address.find(f"@{place}") == Address("gpu-1", 6000)
    place.write_text("gpu-2")
    assert Address.find(f"@{place}") == Address("gpu-2", 5555)
    assert Address.find("gpu-3") == Address("gpu-3", 5555)


@pytest.mark.parametrize("text", ["", "two words", "a" * 5000, "\xff"])
def test_a_file_with_no_address_in_it_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "address").write_text(text)
    with pytest.raises(AddressError):
        Address.find(f"@{tmp_path / 'address'}")


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
