"""gRPC: each producer streams packed batches, the server's handlers insert under a lock."""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
from workload import PRODUCERS, Load, Ring, asked, count_for, packed, unpacked

METHOD = "/bench.Replay/Push"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def produce(port: int, load: Load) -> None:
    batches = load.batches()

    def endless() -> Iterator[bytes]:
        turn = 0
        while True:
            yield packed(batches[turn % len(batches)]).tobytes()
            turn += 1

    with grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel:
        channel.stream_unary(METHOD)(endless(), wait_for_ready=True)


def main() -> None:
    load, seconds = asked()
    ring = Ring(load)
    lock = threading.Lock()
    example = load.batches()[0]
    up: mp.Queue[int] = mp.Queue()
    # Producers are forked before gRPC starts its threads here.
    producers = [
        mp.Process(target=lambda: produce(up.get(), load), daemon=True) for _ in range(PRODUCERS)
    ]
    for producer in producers:
        producer.start()

    def push(stream: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
        for payload in stream:
            batch = unpacked(np.frombuffer(payload, np.uint8), example)
            with lock:
                ring.insert(batch)
        return b""

    server = grpc.server(ThreadPoolExecutor(PRODUCERS), options=OPTIONS)
    method = grpc.stream_unary_rpc_method_handler(push)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("bench.Replay", {"Push": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    for _ in producers:
        up.put(port)
    count_for(seconds, lambda: ring.inserted)
    for producer in producers:
        producer.kill()
    os._exit(0)  # its handlers are still in their streams


if __name__ == "__main__":
    main()
