"""The dashboard's server: it shows runs to whom it may, and nothing else to anybody."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import re
import shutil
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from run_folders import BEGAN_S, Clock, write_summary
from served import make_started_run, serving

from vedette.dashboard import Dashboard, DirectorySource, server, sources
from vedette.reports.charts import page_data
from vedette.reports.configurations import group_runs
from vedette.reports.record import read_record
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.errors import NotARunError
from vedette_services.run.directory import RunDirectory
from vedette_services.status.schema import declared
from vedette_services.status.status import Status

HOSTILE = '</td><script>alert(1)</script><img src="http://evil/x" onerror=alert(1)>'
TOKEN = "t" * 32


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs, one of them in a folder, and what is none."""
    make_started_run(tmp_path / "runs" / "one", seed=1)
    make_started_run(tmp_path / "runs" / "deep" / "two", seed=2, height=2.0)
    (tmp_path / "runs" / "notes").mkdir()
    make_started_run(tmp_path / "secret")
    return tmp_path / "runs"


def drawn(*runs: Path) -> Any:
    """What the report draws of these runs."""
    data = page_data(group_runs([read_record(run) for run in runs]))
    return json.loads(json.dumps(data))


def test_the_list_has_every_run_and_leads_to_its_page(runs: Path) -> None:
    with serving(runs) as served:
        home = served.get()
        assert home.status == 200
        assert f"<h1>Runs in {runs}</h1>" in home.text
        assert "2 runs of 1 configuration" in home.text
        assert sorted(home.runs) == ["deep/two", "one"]
        for name, path in home.runs.items():
            page = served.get(path)
            assert page.status == 200
            assert str(runs / name) in page.text
            assert '<a href="/">All runs in' in page.text


def test_the_curves_are_those_of_the_report(runs: Path) -> None:
    with serving(runs) as served:
        home = served.get()
        for name, path in home.runs.items():
            assert served.get(path).data == drawn(runs / name)
    assert home.data == drawn(*(runs / name for name in home.runs))


def test_a_page_is_sent_again_only_if_its_run_has_changed(runs: Path) -> None:
    with serving(runs) as served:
        for path in ("/", served.get().runs["one"]):
            etag = served.get(path).headers["ETag"]
            again = served.get(path, If_None_Match=etag)
            assert (again.status, again.text) == (304, "")
            write_summary(runs / "one", best=8.0, env_steps=501)
            new = served.get(path, If_None_Match=etag)
            assert new.status == 200
            assert new.headers["ETag"] != etag
            write_summary(runs / "one", best=8.0)


def test_what_a_run_has_recorded_since_is_on_the_page(runs: Path) -> None:
    recorder = TensorboardRecorder(runs / "one" / "tensorboard", clock=Clock(BEGAN_S + 500))
    with serving(runs / "one") as served:
        assert "Runs in" not in served.get().text
        assert served.get().data["charts"][0]["lines"][0]["y"] == [1, 2, 3, 4, 5]
        recorder.write({"eval/mean_reward": 9.0}, 600)
        recorder.close()
        assert served.get().data["charts"][0]["lines"][0]["y"] == [1, 2, 3, 4, 5, 9]


def test_a_run_that_begins_or_is_removed_is_seen(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        empty = served.get()
        assert "There is no run yet." in empty.text
        assert empty.data == {"charts": []}
        make_started_run(tmp_path / "late")
        home = served.get(If_None_Match=empty.headers["ETag"])
        assert list(home.runs) == ["late"]
        shutil.rmtree(tmp_path / "late")
        assert served.get(home.runs["late"]).status == 404
        assert served.get().runs == {}


def test_marked_runs_are_drawn_alone(runs: Path) -> None:
    with serving(runs) as served:
        key = served.get().runs["one"].rpartition("/")[2]
        page = served.get(f"/?run={key}&run=unknown")
    assert len(page.runs) == 2
    assert page.text.count(" checked></td>") == 1
    assert page.data == drawn(runs / "one")


def test_only_so_many_runs_are_drawn_and_reading_them_keeps_nobody_waiting(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3, 25):
        make_started_run(runs / f"{seed}", seed=seed, points=2)
    monkeypatch.setattr(server, "READ_S", -1.0)
    with serving(runs) as served:
        first = served.get()
        assert "19 more of them are being read" in " ".join(first.text.split())
        assert 'data-wait="0.1"' in first.text
        monkeypatch.setattr(server, "READ_S", 30.0)
        page = served.get(If_None_Match=first.headers["ETag"])
    assert "20 runs of 1 configuration" in page.text
    assert "4 more of them are not drawn" in page.text
    assert 'data-wait="3.0"' in page.text


@pytest.mark.parametrize(
    "path",
    [
        "/run/",
        "/run/0123456789abcdef",
        "/run/../../secret",
        "/run/%2e%2e%2f%2e%2e%2fsecret",
        "/run/one",
        "/one/config.toml",
        "//run/one",
        "/../secret/config.toml",
        "/plotly/../writing.py",
        "/plotly/LICENSE",
        "/report.html",
        "/live.html",
        "/etc/passwd",
        "/%00",
    ],
)
def test_no_path_leads_out_of_the_list(path: str, runs: Path) -> None:
    with serving(runs) as served:
        answer = served.get(path)
    assert answer.status == 404
    assert answer.text == "there is no such page; all runs are at /"


def test_the_key_of_a_run_elsewhere_is_none(runs: Path) -> None:
    key = hashlib.sha256(str(runs.parent / "secret").encode()).hexdigest()[:16]
    with serving(runs) as served:
        assert served.get(f"/run/{key}").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(method: str, runs: Path) -> None:
    with serving(runs) as served:
        answer = served.get("/", method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"


def test_a_head_request_has_no_body(runs: Path) -> None:
    with serving(runs) as served:
        answer = served.get("/", "HEAD")
    assert (answer.status, answer.text) == (200, "")
    assert int(answer.headers["Content-Length"]) > 1000


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8600", "[::1]:8600", "10.1.2.3"])
def test_a_name_that_cannot_be_rebound_is_let_in(host: str, runs: Path) -> None:
    with serving(runs) as served:
        assert served.get(Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8600", "", "[::1", "a b"])
def test_any_other_name_is_refused_without_a_token(host: str, runs: Path) -> None:
    with serving(runs) as served:
        for path in ("/", "/report.js"):
            answer = served.get(path, Host=host)
            assert answer.status == 403
            assert "localhost" in answer.text


def test_who_has_the_token_gets_a_cookie_and_comes_in(runs: Path) -> None:
    with serving(Dashboard(DirectorySource(runs), TOKEN)) as served:
        for path in ("/", "/report.js", "/?token=", "/?token=wrong", f"/?token={TOKEN}x", "/x"):
            answer = served.get(path)
            assert answer.status == 403
            assert TOKEN not in answer.text
        answer = served.get(f"/?token={TOKEN}", Host="gpu.example.org:8600")
        assert answer.status == 303
        assert answer.headers["Location"] == "/"
        cookie = answer.headers["Set-Cookie"]
        assert cookie == f"vedette-{served.port}={TOKEN}; HttpOnly; SameSite=Lax; Path=/"
        own = cookie.partition(";")[0]
        assert served.get(Cookie=own, Host="gpu.example.org:8600").status == 200
        assert served.get("/report.js", Cookie=f"other=1; {own}").status == 200
        for foreign in ('prefs={"a":1}', "a b=1", "=", "\xff", own[:-1]):
            assert served.get(Cookie=f"{foreign}; {own}").status == 200
            assert served.get(Cookie=f"{own};{foreign}").status == 200
        for other in (
            f"x{own}",
            own[:-1],
            own.replace(str(served.port), "1"),
            "=",
            "\xff",
            "a=\x01",
        ):
            assert served.get(Cookie=other).status == 403


def test_the_token_leads_to_a_page_of_this_server_alone(runs: Path) -> None:
    with serving(Dashboard(DirectorySource(runs), TOKEN)) as served:
        for path, place in (
            ("//evil.example/x", "/evil.example/x"),
            ("/%0d%0aSet-Cookie:x", "/%0D%0ASet-Cookie%3Ax"),
        ):
            assert served.get(f"{path}?token={TOKEN}").headers["Location"] == place


def test_pages_may_run_our_own_scripts_alone_and_be_framed_by_nobody(runs: Path) -> None:
    with serving(runs) as served:
        page = served.get()
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; connect-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "<script>" not in page.text
    assert "http-equiv" not in page.text


def test_what_came_over_the_network_is_never_markup(runs: Path) -> None:
    actor = {"id": 0, "restarts": 1, "error": HOSTILE}
    manager = {"id": HOSTILE, "host": HOSTILE, "state": HOSTILE, "actors": [actor]}
    write_summary(
        runs / "one",
        best=1.0,
        exit_reason=HOSTILE,
        env=HOSTILE,
        agent=HOSTILE,
        managers=[manager],
        waits=HOSTILE,
    )
    (runs / "one" / "config.toml").write_text("")
    (runs / "one").rename(runs / "<b>one")
    with serving(runs) as served:
        home = served.get()
        pages = [home.text, *(served.get(path).text for path in home.runs.values())]
    assert len(pages) == 3
    for text in pages:
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "<b>one" not in text
    assert "&lt;b&gt;one" in home.text


def test_a_damaged_run_has_a_page_and_keeps_no_other_from_the_list(runs: Path) -> None:
    (runs / "one" / "summary.json").write_text("{")
    (runs / "one" / "config.toml").write_bytes(b"\xff")
    (runs / "one" / "run.json").write_text("[")
    with serving(runs) as served:
        home = served.get()
        assert sorted(home.runs) == ["deep/two", "one"]
        assert "summary.json holds no summary" in served.get(home.runs["one"]).text


def test_a_page_that_cannot_be_made_is_one_line_and_the_next_is_made(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(runs) as served:
        path = served.get().runs["one"]
        with monkeypatch.context() as patched:
            patched.setattr(server, "page_contents", lambda *_, **__: 1 / 0)
            answer = served.get(path)
            assert answer.status == 500
            assert answer.text.startswith("this page could not be made: ZeroDivisionError")
            assert "\n" not in answer.text
        assert served.get(path).status == 200


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (sources, "read_overview"),
        (sources, "read_record"),
        (server, "page_contents"),
    ],
)
def test_an_error_of_one_run_is_in_the_list_and_keeps_no_other_from_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    made = getattr(module, name)

    def fail_for_one(what: Any, *args: Any, **kwargs: Any) -> Any:
        if "runs/one" in str(what):
            raise ValueError("odd")
        return made(what, *args, **kwargs)

    with serving(runs) as served:
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fail_for_one)
            home = served.get()
            assert home.status == 200
            assert sorted(home.runs) == ["deep/two", "one"]
            assert home.text.count('<td class="bad">unreadable: ValueError: odd') == 1
            assert home.data["charts"]
        later = served.get(If_None_Match=home.headers["ETag"])
        assert later.status == 200
        assert "unreadable" not in later.text


def test_a_lock_that_cannot_be_asked_counts_as_held(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(RunDirectory, "check_free", fail)
    with serving(runs) as served:
        home = served.get()
        assert home.status == 200
        assert home.text.count(">running</td>") >= 2
        assert "It is running" in served.get(home.runs["one"]).text


def test_too_many_parts_of_a_query_are_refused(runs: Path) -> None:
    with serving(runs) as served:
        assert served.get("/?" + "run=0&" * 600).status == 400


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="there is no such folder"):
        DirectorySource(tmp_path / "nowhere")


def test_a_run_without_its_identity_is_shown_by_itself(runs: Path) -> None:
    (runs / "one" / "run.json").unlink()  # such as one of which only the curves were copied
    with serving(runs / "one") as served:
        assert served.get().data == drawn(runs / "one")


def test_the_assets_are_the_reports_own(runs: Path) -> None:
    with serving(runs) as served:
        script = served.get("/report.js")
        plotly = served.get("/plotly/plotly-basic.min.js", Accept_Encoding="gzip", method="HEAD")
        again = served.get("/report.js", If_None_Match=script.headers["ETag"])
    assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert "function draw(plot)" in script.text
    assert plotly.headers["Content-Encoding"] == "gzip"
    assert again.status == 304


def test_every_recorded_number_of_a_chart_is_served(runs: Path) -> None:
    """The button of a panel that leaves points out leads there."""
    with serving(runs) as served:
        key = served.get().runs["one"].rpartition("/")[2]
        found = served.get(f"/numbers.csv?run={key}&tag=train/loss")
        other = served.get("/numbers.csv?run=0000&tag=train/loss")
    head, *lines = found.text.splitlines()
    assert head == "run,seed,tag,env_steps,opt_steps,seconds,value"
    assert len(lines) == 5
    assert all(",train/loss," in line for line in lines)
    assert (found.status, other.status) == (200, 404)


def test_asking_is_cheap_while_nothing_changes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(runs) as served:
        etag = served.get().headers["ETag"]
        for name in ("fill_page", "page_contents", "group_runs"):
            monkeypatch.setattr(server, name, None)  # none of them is called
        assert served.get(If_None_Match=etag).status == 304
        assert served.get().data["several"] is True


@pytest.mark.slow
def test_twenty_long_runs_are_cheap_to_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = make_started_run(tmp_path / "0", seed=0, points=1)
    shutil.rmtree(first / "tensorboard")
    status = {tag: 1.0 for _, number in declared(Status) for tag in number.tags}
    recorder = TensorboardRecorder(first / "tensorboard")
    for second in range(1, 10_001):
        recorder.write({name: math.sin(second / 300) for name in status}, second * 100)
        recorder.write({"train/loss": 1 / second, "train/q_mean": 1.0}, second * 10)
    recorder.close()
    for seed in range(1, 20):
        run = shutil.copytree(first, tmp_path / f"{seed}")
        config = (run / "config.toml").read_text()
        (run / "config.toml").write_text(config.replace("seed = 0", f"seed = {seed}"))
    begun_s = time.process_time()
    with serving(tmp_path) as served:
        home = served.get()
        while 'data-wait="0.1"' in home.text:
            home = served.get()
        read_s = time.process_time()
        etag = home.headers["ETag"]
        assert served.get(If_None_Match=etag).status == 304
        same_s = time.process_time()
        with (next((first / "tensorboard").iterdir())).open("ab") as file:
            again = TensorboardRecorder(tmp_path / "other")
            again.write({"eval/mean_reward": 9.0}, 2_000_000)
            again.close()
            file.write(again.path.read_bytes())
        assert served.get(If_None_Match=etag).status == 200
        grown_s = time.process_time()
    with capsys.disabled():
        print(
            f"\nCPU time: read {read_s - begun_s:.2f} s, unchanged {same_s - read_s:.3f} s, "
            f"grown {grown_s - same_s:.2f} s"
        )
    assert same_s - read_s < 0.2
    assert grown_s - same_s < 3.0


def test_the_videos_of_a_run_are_shown_and_nothing_else_is_served(tmp_path: Path) -> None:
    run = make_started_run(tmp_path / "runs" / "one")
    make_started_run(tmp_path / "runs" / "two")
    (run / "videos").mkdir()
    (run / "videos" / "at 100.mp4").write_bytes(b"mp4")
    (run / "best.gif").write_bytes(b"gif")
    (run / "videos" / "huge.mp4").write_bytes(bytes(9 << 20))
    with serving(tmp_path / "runs") as served:
        path = served.get().runs["one"]
        page = served.get(path)
        sources = re.findall('src="(/video[^"]*)"', page.text)
        found = [served.get(source.replace("&amp;", "&")) for source in sources]
        assert [answer.status for answer in found] == [200, 200]
        assert "videos/huge.mp4 (9.44 MB) is too large to be shown here." in page.text
        assert [answer.headers["Content-Type"].partition(";")[0] for answer in found] == [
            "image/gif",
            "video/mp4",
        ]
        assert [answer.text for answer in found] == ["gif", "mp4"]
        assert "media-src 'self'" in page.headers["Content-Security-Policy"]
        key = path.rpartition("/")[2]
        for name in ("config.toml", "videos/huge.mp4", "../two/config.toml", "", "videos"):
            assert served.get(f"/video?run={key}&name={name}").status == 404
        for unknown in ("nothing", "", "../one", str(run)):
            answer = served.get(f"/video?run={unknown}&name=best.gif")
            assert (answer.status, "no such video" in answer.text) == (404, True)
        (run / "videos" / "later.mp4").write_bytes(b"mp4")
        assert "later.mp4" in served.get(path).text
