"""A vLLM server on the CPU with SmolLM2-135M-Instruct, started once."""

import http.client
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONPATH": str(ROOT),
    "no_proxy": "127.0.0.1",
}
CONTEXT = 512
START_S = 900  # a busy machine takes its time


def is_installed():
    """Whether there is a vllm that is more than this folder, which pytest puts on the path."""
    spec = importlib.util.find_spec("vllm")
    return spec is not None and spec.origin is not None


def pytest_runtest_setup(item):
    if item.get_closest_marker("vllm") and not is_installed():
        pytest.skip("vLLM is not installed here; make test-vllm sets it up")


@pytest.fixture(scope="session")
def environment():
    return os.environ | ENVIRONMENT


@pytest.fixture(scope="session")
def model():
    """The weights in Hugging Face format, which vLLM reads; made once, as reading the package's own takes minutes."""
    from gdpo_nemo.models.pretrained import load_pretrained, save

    folder = ROOT / "build" / "smollm2"
    if not folder.exists():
        partial = folder.with_name(f"smollm2.{os.getpid()}")
        loaded, tokenizer = load_pretrained("smollm2")
        save(loaded.bfloat16(), tokenizer, partial)
        partial.rename(folder)
    return folder


class Server:
    """One server process; it can be killed and started again on the same port."""

    def __init__(self, model, environment, log):
        self.model, self.environment, self.log, self.process = model, environment, log, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def start(self):
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model)]
        command += ["--served-model-name", "smollm2", "--dtype", "bfloat16", "--enforce-eager"]
        command += ["--max-model-len", str(CONTEXT), "--host", "127.0.0.1", "--port", str(self.port)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not self.is_up():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"no server after {START_S} s:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.5)

    def is_up(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def server(model, environment, tmp_path_factory):
    server = Server(model, environment, tmp_path_factory.mktemp("server") / "log")
    try:
        server.start()
        yield server
    finally:
        server.kill()
