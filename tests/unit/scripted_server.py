"""An OpenAI-compatible server on this machine that does what a test scripts: answers, refuses, dawdles, breaks off."""

import http.server
import json
import threading
import urllib.parse
from dataclasses import dataclass, field


@dataclass
class Reply:
    """What goes over the wire; ``promised`` more bytes than are sent cut the answer off."""

    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    promised: int = 0


CLOSE = object()
"""In place of a reply: the connection is closed without a word."""


def chat(text, *, finish="stop", tokens=None, **message):
    """A completion; ``tokens`` is its length."""
    tokens = len((text or "").split()) if tokens is None else tokens
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    body = {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}
    return Reply(body=json.dumps(body).encode())


def refusal(status, message="no", **headers):
    """An error in the form of the OpenAI interface."""
    return Reply(status, json.dumps({"error": {"message": message}}).encode(), headers)


class ScriptedServer:
    """Answers each request with ``script(body, nth)``; ``nth`` counts requests for the same prompt and seed from 0."""

    def __init__(self, script):
        self.script, self.asked, self.models = script, [], ["m"]
        self._lock, self._counts = threading.Lock(), {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                self.send(Reply(body=json.dumps({"data": [{"id": name} for name in outer.models]}).encode()))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                key = json.dumps([body.get("messages"), body.get("prompt"), body.get("seed")])
                with outer._lock:
                    outer.asked.append((self.path, dict(self.headers), body))
                    nth = outer._counts[key] = outer._counts.get(key, -1) + 1
                self.send(outer.script(body, nth))

            def send(self, reply):
                if reply is CLOSE:
                    self.close_connection = True
                    return
                try:
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name.replace("_", "-"), value)
                    self.send_header("Content-Length", str(len(reply.body) + reply.promised))
                    self.end_headers()
                    self.wfile.write(reply.body)
                except OSError:  # the client did not wait for it
                    self.close_connection = True
                self.close_connection |= reply.promised > 0

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def host(self):
        """Host and port."""
        return urllib.parse.urlsplit(self.url).netloc

    def questions(self):
        """The last message of each request, in order."""
        return [body["messages"][-1]["content"] for _, _, body in self.asked]

    def stop(self):
        """End the server; further connections are refused."""
        self.server.shutdown()
        self.server.server_close()
