"""Dashboards of a real learner with keys: over the network and from its directory."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

import pytest
from daemons import Daemon, Daemons, free_address, status, wait_for

from vedette_services.net.keys import ClientKeys, make_keys


def data_of(opener: urllib.request.OpenerDirector, url: str) -> Any:
    """What the page's script draws."""
    with opener.open(url, timeout=30) as page:
        text = page.read().decode().partition('type="application/json">')[2]
    return json.loads(text.partition("</script>")[0])


def last_x(data: Any) -> float:
    """The highest env step of any curve; 0 if there is none."""
    return max((x for column in data.get("xs", ()) for x in column.get("env", ())), default=0.0)


@pytest.mark.slow
def test_dashboards_follow_a_run_with_keys(daemons: Daemons) -> None:
    address = free_address()
    keys = daemons.place / "keys"
    run = daemons.place / "run"
    make_keys(keys, ["gpu-2"])
    client = ClientKeys.read(keys)
    learner = daemons.start(
        "learner",
        "learner",
        "--bind",
        address,
        "--keys",
        keys,
        "--out",
        run,
        "stop.target_return=1000",
    )
    daemons.start("actors", "actors", "--learner", address, "--keys", keys, "--count", 1)
    wait_for(lambda: status(address, keys=client).get("opt_steps", 0) > 20, "optimization step")
    how = ("--learner", address, "--keys", keys)
    remote = daemons.start("remote", "dashboard", *how, "--port", 0)
    local = daemons.start("local", "dashboard", run, "--port", 0)
    assert_grows(remote, "?token=")
    assert_grows(local, "/ ")
    assert learner.stop(60.0) == 0
    assert remote.stop() == local.stop() == 0


def assert_grows(dashboard: Daemon, end: str) -> None:
    """The page at the URL that is printed draws curves, and more of them a while later."""
    wait_for(lambda: "(Ctrl-C ends it)" in dashboard.log, "URL")
    assert end in dashboard.log
    (url,) = re.findall(r"http://\S+", dashboard.log)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    seen = wait_for(lambda: last_x(data_of(opener, url)), "curve")
    wait_for(lambda: last_x(data_of(opener, url)) > seen, "curve to grow")
