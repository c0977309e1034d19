"""A policy goes to the Hub with its card and comes back, and what comes back is not trusted."""

import io
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import configured
from hub_server import TOKEN, HubServer, serving
from safetensors.numpy import load, save
from starts import train_in_process

import vedette
from vedette.cli.app import main
from vedette.hub import (
    POLICY,
    HubError,
    Repository,
    pull_policy,
    write_folder,
)
from vedette_rl.errors import (
    ImportNotAllowedError,
    ModelMismatchError,
    PolicyFileError,
    UnknownAgentError,
)
from vedette_services.errors import UsageError
from vedette_services.run.provenance import public_command, public_config

hub = pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # its own
REPOSITORY = "me/cart-dqn"
SETTINGS = ["preset=none", "stop.max_opts=40", "agent.hidden_sizes=[16]", "actors.n_buffer=16"]
SETTINGS += ["learner.warmup_period=64", "learner.eval_interval=20", "evaluation.episodes=2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, which nobody changes."""
    place = tmp_path_factory.mktemp("hub") / "mine"
    train_in_process(configured(*SETTINGS), place)
    return place


def direct_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have huggingface_hub take this address for the Hub's, as HF_ENDPOINT would."""
    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)  # of retries


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub of our own, which huggingface_hub takes for the only one."""
    with serving() as state:
        direct_to(state.url, monkeypatch)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield state


def test_a_push_has_the_policy_the_configuration_and_a_card(run: Path, server: HubServer) -> None:
    url = vedette.push_policy(run, REPOSITORY, private=True)
    assert url == f"{server.url}/{REPOSITORY}"
    assert server.private[REPOSITORY]
    pushed = server.files[REPOSITORY]
    assert sorted(pushed) == [
        "README.md",
        "config.toml",
        POLICY,
        "provenance.json",
        "summary.json",
    ]
    config = tomllib.loads(pushed["config.toml"].decode())
    assert (config["env"]["id"], config["agent"]["hidden_sizes"]) == ("CartPole-v1", [16])
    assert json.loads(pushed["summary.json"])["exit_reason"] == "max_opts"
    assert server.messages == ["version 40 of mine"] or server.messages == ["version 20 of mine"]


def test_a_private_push_to_a_public_repository_is_refused(run: Path, server: HubServer) -> None:
    server.files[REPOSITORY] = {}
    server.private[REPOSITORY] = False
    with pytest.raises(HubError, match="it is there already and public, so nothing is pushed"):
        vedette.push_policy(run, REPOSITORY, private=True, episodes=1)
    assert not server.files[REPOSITORY]
    server.private[REPOSITORY] = True
    vedette.push_policy(run, REPOSITORY, private=True, episodes=1)
    assert POLICY in server.files[REPOSITORY]


def test_a_push_names_no_machine_and_no_folder(run: Path, tmp_path: Path) -> None:
    write_folder(run, tmp_path, REPOSITORY)
    provenance = (run / "provenance.json").read_text()
    (start,) = json.loads(provenance)
    texts = "".join(path.read_text("utf-8") for path in tmp_path.glob("*.[jtm]*"))
    assert start["host"] not in texts
    assert start["directory"] not in texts
    assert json.loads((tmp_path / "summary.json").read_text())["managers"] == []
    assert json.loads((tmp_path / "provenance.json").read_text())[0]["seeds"] == start["seeds"]


def test_a_push_has_no_paths_of_the_command_line_or_the_replay(run: Path, tmp_path: Path) -> None:
    mine, look = tmp_path / "mine", tmp_path / "look"
    shutil.copytree(run, mine)
    look.mkdir()
    replay = tmp_path / "replay"
    starts = json.loads((mine / "provenance.json").read_text())
    starts[0]["command"] = (
        f"/home/me/bin/vedette run env.id=CartPole-v1 --out {mine} --keys /home/me/keys seed=3 "
        f"replay.directory={replay} 'env.kwargs.xml_file=\"/home/me/a.xml\"' /home/me/run.toml"
    )
    (mine / "provenance.json").write_text(json.dumps(starts))
    config = (
        (mine / "config.toml").read_text().replace("[replay]", f'[replay]\ndirectory="{replay}"')
    )
    (mine / "config.toml").write_text(config)
    write_folder(mine, look, REPOSITORY, episodes=1)
    pushed = {path.name: path.read_text("utf-8") for path in look.glob("*.[jtm]*")}
    for text in pushed.values():
        assert str(tmp_path) not in text
        assert "/home/me" not in text
    (start,) = json.loads(pushed["provenance.json"])
    assert start["command"] == "vedette run env.id=CartPole-v1 seed=3"
    assert f"\n{start['command']}\n" in pushed["README.md"]
    assert "directory" not in tomllib.loads(pushed["config.toml"])["replay"]


@pytest.mark.parametrize(
    ("command", "public"),
    [
        ("train.py --data /home/me", "train.py"),
        ("vedette", "vedette"),
        ("vedette run host=me.lan agent.name=dqn", "vedette run agent.name=dqn"),
        ("", ""),
        ("vedette 'run", ""),
    ],
)
def test_the_program_and_the_settings_of_a_command_line_are_public(
    command: str, public: str
) -> None:
    assert public_command(command) == public


def test_the_card_has_the_metadata_by_which_the_hub_ranks(run: Path, tmp_path: Path) -> None:
    found = write_folder(run, tmp_path, REPOSITORY)
    card = hub.ModelCard.load(tmp_path / "README.md")
    data = card.data.to_dict()
    assert (data["library_name"], data["pipeline_tag"]) == ("vedette", "reinforcement-learning")
    assert {"CartPole-v1", "dqn", "vedette"} <= set(data["tags"])
    (result,) = card.data.eval_results
    assert (result.dataset_name, result.metric_type) == ("CartPole-v1", "mean_reward")
    assert result.metric_value == f"{found.return_mean:.2f} +/- {found.return_std:.2f}"
    assert card.data.model_name == "cart-dqn"
    assert f'load_policy("hf://{REPOSITORY}")' in card.text
    assert "{{" not in card.content
    assert "\n\n\n\n" not in card.text


def test_the_card_is_of_other_episodes_than_those_that_chose_the_model(
    run: Path, tmp_path: Path
) -> None:
    found = write_folder(run, tmp_path, REPOSITORY, episodes=3)
    assert (found.seed, found.episodes) == (1_010_000, 3)
    assert "from seed 1010000" in (tmp_path / "README.md").read_text()


def test_a_pulled_policy_acts_and_is_evaluated_as_the_run_is(run: Path, server: HubServer) -> None:
    vedette.push_policy(run, REPOSITORY)
    policy = vedette.load_policy(f"hf://{REPOSITORY}")
    assert policy.act({"obs": np.zeros((3, 4), np.float32)}, explore=False).shape == (3,)
    assert vedette.evaluate(f"hf://{REPOSITORY}") == vedette.evaluate(run)
    other = vedette.evaluate(f"hf://{REPOSITORY}@main", episodes=1, seed=3)
    assert other.returns == vedette.evaluate(run, episodes=1, seed=3).returns


def test_a_second_push_makes_a_revision_of_the_same_repository(
    run: Path, server: HubServer
) -> None:
    for _ in range(2):
        vedette.push_policy(run, REPOSITORY, episodes=1)
    assert len(server.messages) == 2


def test_the_commands_push_and_evaluate(
    run: Path, server: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in [
        (["push", run, REPOSITORY, "--out", tmp_path / "look"], str(tmp_path / "look" / POLICY)),
        (["push", run, REPOSITORY], f"{server.url}/{REPOSITORY}"),
        (["eval", f"hf://{REPOSITORY}", "--episodes", "2"], "over 2 episodes"),
        (["eval", tmp_path / "look" / POLICY, "--json"], '"episodes": 2'),
    ]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        assert not left.value.code
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("cart", "write USER/NAME"),
        ("a/b/c", "write USER/NAME"),
        ("me/ca rt", "write USER/NAME"),
        ("me/cart@v2", "leave @v2 out"),
    ],
)
def test_a_name_that_is_none_is_refused(run: Path, place: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        vedette.push_policy(run, place)


def test_without_a_token_nothing_is_evaluated_or_pushed(
    run: Path, server: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr("vedette.hub.evaluate_run", lambda *_, **__: pytest.fail("evaluated"))
    with pytest.raises(HubError, match="no token to push with; run `hf auth login`"):
        vedette.push_policy(run, REPOSITORY)
    assert server.files == {}


def test_without_the_extra_it_is_refused_with_what_to_install(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedette.hub.find_spec", lambda name: None)
    for use in (lambda: vedette.push_policy(run, REPOSITORY), lambda: pull_policy("hf://me/x")):
        with pytest.raises(UsageError, match=r"pip install 'vedette\[hub\]'"):
            use()


def test_what_the_hub_refuses_is_a_line(
    run: Path, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.status = 403
    with pytest.raises(HubError, match=r"does not want to.*; run `hf auth login`"):
        vedette.push_policy(run, REPOSITORY, episodes=1)
    server.status = 200
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(HubError, match=r"hf://me/cart-dqn: .*; run `hf auth login`"):
        vedette.push_policy(run, REPOSITORY, episodes=1)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("hf://nobody/none", "there is none, or this token may not see it"),
        (f"hf://{REPOSITORY}@v9", "has no revision 'v9'"),
        (f"hf://{REPOSITORY}", f"has no {POLICY}; `vedette push` writes it"),
    ],
)
def test_what_is_not_on_the_hub_is_said(server: HubServer, place: str, said: str) -> None:
    server.files[REPOSITORY] = {"README.md": b"# mine"}
    with pytest.raises(HubError, match=said):
        vedette.load_policy(place)


def test_a_hub_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    direct_to("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(HubError, match="the Hub cannot be reached"):
        vedette.load_policy("hf://me/away")


def test_a_file_of_many_gigabytes_is_not_downloaded(server: HubServer) -> None:
    server.files[REPOSITORY] = {POLICY: b"x"}
    server.claimed_size = 1 << 40
    with pytest.raises(HubError, match=r"policy.safetensors has 1.1 TB, more than 2"):
        vedette.load_policy(f"hf://{REPOSITORY}")


def test_a_repository_is_named_with_and_without_the_scheme() -> None:
    assert Repository.parse("me/x") == Repository("me/x")
    assert Repository.parse("hf://me/x@v1") == Repository("me/x", "v1")


# What is pulled is not trusted


def tampered(run: Path, place: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A policy whose header says something else."""
    vedette.export_policy(run, place, format="safetensors")
    data = place.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["header"])
    change(header)
    metadata = {"format": "vedette policy", "header": json.dumps(header)}
    place.write_bytes(save(load(data), metadata))
    return place


def _import(header: dict[str, Any]) -> None:
    header["agent"]["name"] = "antigravity:Agent"


def _import_environment(header: dict[str, Any]) -> None:
    header["meta"]["played"]["env"]["id"] = "antigravity:Env-v0"


def _import_wrapper(header: dict[str, Any]) -> None:
    header["meta"]["played"]["env"]["wrappers"] = [{"name": "antigravity:Wrapper"}]


def _import_by_our_own_function(header: dict[str, Any]) -> None:
    name = "vedette_rl.import_by_name:import_named_module"
    header["meta"]["played"]["env"].update(id=name, kwargs={"module": "antigravity"})


@pytest.mark.parametrize(
    "change", [_import, _import_environment, _import_wrapper, _import_by_our_own_function]
)
def test_nothing_that_it_names_is_imported(
    run: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    path = tampered(run, tmp_path / POLICY, change)
    with pytest.raises((PolicyFileError, ImportNotAllowedError), match="--allow-import"):
        vedette.evaluate(path)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", ["antigravity:Agent-v0", "antigravity:a:b", "antigravity:A.b"])
def test_an_agent_of_another_form_than_module_name_is_not_imported(
    run: Path, tmp_path: Path, name: str
) -> None:
    path = tampered(run, tmp_path / POLICY, lambda header: header["agent"].update(name=name))
    with pytest.raises(UnknownAgentError, match="not of the form module:Name"):
        vedette.load_policy(path)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["observation"].update(shape=[1_000_000_000]),
        lambda header: header["observation"].update(shape="four"),
        lambda header: header["action"].update(kind="Graph"),
        lambda header: header["agent"].update(learning_rate="fast"),
        lambda header: header["agent"].update(name="nope"),
        lambda header: header.update(agent=[]),
        lambda header: header.update(meta=None),
        lambda header: header["meta"].pop("played"),
        lambda header: header["meta"]["played"].update(env={"id": 3}),
        lambda header: header["meta"]["played"].update(episodes="many"),
        lambda header: header["meta"]["played"]["env"].update(id="MountainCar-v0"),
    ],
)
def test_a_header_that_lies_is_refused_in_a_line(
    run: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises((PolicyFileError, UnknownAgentError)):
        vedette.evaluate(tampered(run, tmp_path / POLICY, change))


def test_arrays_of_another_network_are_refused(run: Path, tmp_path: Path) -> None:
    def policy(*hidden_sizes: int) -> Path:
        sizes = {"hidden_sizes": [*hidden_sizes]}
        return tampered(run, tmp_path / POLICY, lambda header: header["agent"].update(sizes))

    with pytest.raises(ModelMismatchError, match=r"model array 'q.0"):
        vedette.evaluate(policy(10**4))
    with pytest.raises(PolicyFileError, match=r"its agent's hidden_sizes.0: .* equal to 16384$"):
        vedette.evaluate(policy(10**9))


def test_a_pickle_under_the_name_of_a_policy_is_not_loaded(
    run: Path, server: HubServer, tmp_path: Path
) -> None:
    file = io.BytesIO()
    np.savez(file, header=np.array([{"a": 1}], object), allow_pickle=True)
    server.files[REPOSITORY] = {POLICY: file.getvalue()}
    with pytest.raises(PolicyFileError, match="safetensors"):
        vedette.load_policy(f"hf://{REPOSITORY}")


def test_importing_vedette_loads_no_hub() -> None:
    code = "import sys, vedette.hub; sys.exit('huggingface_hub' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_absolute_paths_in_the_environments_arguments_are_not_pushed(tmp_path: Path) -> None:
    env = {
        "id": "CartPole-v1",
        "kwargs": {"file": "/home/me/data.npz", "more": [r"C:\\Users\\me\\a.xml", "~/b"], "n": 3},
    }
    config = configured(table={"env": env})
    assert public_config(config).env.kwargs == {"file": "data.npz", "more": ["a.xml", "b"], "n": 3}
