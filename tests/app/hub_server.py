"""As much of the Hugging Face Hub as a push and a pull talk to: repositories, commits, LFS."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_tests"


class HubServer:
    """The files of each repository, and how it answers."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.messages: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.claimed_size: int | None = None
        self.status = 200
        self.url = ""

    def post(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if self.status != 200:
            return self.status, {"error": "the Hub of the tests does not want to"}
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path.endswith("/objects/batch"):
            oids = [found["oid"] for found in json.loads(body)["objects"]]
            return 200, {"objects": [self.offer(oid) for oid in oids]}
        repository = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            return 200, {"files": [self.mode(name) for name in names]}
        return self.commit(repository, [json.loads(line) for line in body.splitlines()])

    def create(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.files:
            return 409, {"error": "You already created this", "url": f"{self.url}/{name}"}
        self.files[name] = {}
        self.private[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
        return 200, {"url": f"{self.url}/{name}", "name": name}

    def mode(self, name: str) -> dict[str, Any]:
        kind = "lfs" if name.endswith(".safetensors") else "regular"
        return {"path": name, "uploadMode": kind, "shouldIgnore": False}

    def offer(self, oid: str) -> dict[str, Any]:
        return {"oid": oid, "size": 0, "actions": {"upload": {"href": f"{self.url}/lfs/{oid}"}}}

    def commit(self, name: str, lines: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    self.messages.append(value["summary"])
                case "file":
                    self.files[name][value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    self.files[name][value["path"]] = self.objects[value["oid"]]
        oid = hashlib.sha1(repr(self.files[name]).encode()).hexdigest()
        return 200, {"commitUrl": f"{self.url}/{name}/commit/{oid}", "commitOid": oid}

    def get(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of ``/USER/NAME/resolve/REVISION/FILE``, or of what is known
        of ``/api/models/USER/NAME``."""
        if path.startswith("/api/models/"):
            name = path.removeprefix("/api/models/")
            if self.status != 200 or name not in self.private:
                return 404, b"", {"X-Error-Code": "RepoNotFound"}
            known = {"id": name, "private": self.private[name]}
            return 200, json.dumps(known).encode(), {"Content-Type": "application/json"}
        name, _, rest = unquote(path).lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        if self.status != 200:
            return self.status, b"", {}
        if name not in self.files:
            return 404, b"", {"X-Error-Code": "RepoNotFound"}
        if revision != "main":
            return 404, b"", {"X-Error-Code": "RevisionNotFound"}
        if file not in self.files[name]:
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        body = self.files[name][file]
        etag = hashlib.sha256(body).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": etag[:40]}
        if self.claimed_size is not None:
            headers["X-Linked-Size"] = str(self.claimed_size)
        return 200, body, headers


@contextmanager
def serving() -> Iterator[HubServer]:
    """A server, which knows its own address."""
    state = HubServer()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:  # http.server's name
            self.reply(*state.get(urlsplit(self.path).path), with_body=False)

        def do_GET(self) -> None:  # likewise
            self.reply(*state.get(urlsplit(self.path).path))

        def do_PUT(self) -> None:  # likewise
            oid = self.path.rpartition("/")[2]
            state.objects[oid] = self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(200, b"", {})

        def do_POST(self) -> None:  # likewise
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.reply(401, b'{"error": "Invalid username or password."}', {})
                return
            status, answer = state.post(urlsplit(self.path).path, body)
            self.reply(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

        def reply(
            self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool = True
        ) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
