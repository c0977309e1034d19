"""As much of an MLflow tracking server as a recorder talks to, with MLflow's own limits."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class MlflowServer:
    """What was logged, and whether it answers."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.authorizations: set[str | None] = set()
        self.away = False
        self.logged = threading.Event()

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.away:
            return 503, {}
        match path:
            case "experiments/get-by-name" if asked["experiment_name"] in self.experiments:
                return 200, {"experiment": {"experiment_id": self.experiments["mine"]}}
            case "experiments/get-by-name":
                return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no experiment"}
            case "experiments/create":
                self.experiments[asked["name"]] = "7"
                return 200, {"experiment_id": "7"}
            case "runs/create":
                run_id = f"run{len(self.runs)}"
                self.runs[run_id] = {**asked, "metrics": [], "params": {}, "tags": {}}
                return 200, {"run": {"info": {"run_id": run_id}}}
            case "runs/get" if asked["run_id"] in self.runs:
                return 200, {"run": {"info": {"run_id": asked["run_id"]}}}
        if asked.get("run_id") not in self.runs:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"}
        return self.log(path, asked, self.runs[asked["run_id"]])

    def log(
        self, path: str, asked: dict[str, Any], run: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        match path:
            case "runs/log-batch":
                metrics, params = asked.get("metrics", []), asked.get("params", [])
                changed = [
                    p for p in params if run["params"].get(p["key"], p["value"]) != p["value"]
                ]
                if len(metrics) > 1000 or len(params) > 100 or changed:
                    return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "no"}
                run["metrics"] += metrics
                run["params"].update({p["key"]: p["value"] for p in params})
                self.logged.set()
            case "runs/set-tag":
                run["tags"][asked["key"]] = asked["value"]
            case "runs/update":
                run["status"] = asked["status"]
        return 200, {}


@contextmanager
def serving() -> Iterator[tuple[MlflowServer, str]]:
    """A server, and its address."""
    state = MlflowServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
            self.reply(query)

        def do_POST(self) -> None:  # http.server's name
            self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def reply(self, asked: dict[str, Any]) -> None:
            state.authorizations.add(self.headers.get("Authorization"))
            path = urlsplit(self.path).path.removeprefix("/api/2.0/mlflow/")
            status, answer = state.answer(path, asked)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
