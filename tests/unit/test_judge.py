"""A judge behind an OpenAI-compatible endpoint: a real server on this machine, with the answers that a test scripts."""

import http.server
import json
import math
import threading

import pytest

from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.errors import ConfigError, InputError, PrerequisiteError, RewardError
from gdpo_nemo.method import Method
from gdpo_nemo.rewards.judge import Judge, UnusableReplyError
from gdpo_nemo.types import Rollout, Row

ROW = Row("row1", {"question": "2 + 2 = {?}"}, "4")
ROLLOUT = Rollout("row1", 0, "It is {4}.", 3)
PROMPT = {"system": "Be strict.", "user": "Q: {question}\nA: {response}\nGold: {gold}"}


def chat(content):
    return 200, {"choices": [{"message": {"role": "assistant", "content": content}}]}


class Endpoint:
    """Answers one request after the other from ``answers``, the last one for ever; keeps what it was asked."""

    def __init__(self):
        self.answers, self.asked = [chat("1")], []
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.asked.append((self.path, dict(self.headers), body))
                status, answer = endpoint.answers[min(len(endpoint.asked), len(endpoint.answers)) - 1]
                if status is None:
                    answer.wait(30)
                    return
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def judge(self, **options):
        return Judge(**{"url": self.url, "model": "m", "prompt": PROMPT, "backoff_s": 0.001} | options)

    def ask(self, bounds=(0.0, 10.0), timeout_s=30.0, **options):
        return self.judge(**options).scorer(bounds, timeout_s)(ROW, ROLLOUT)


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


def test_a_sample_is_one_request_with_the_filled_templates(endpoint, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sesame")
    endpoint.answers = [chat("Good.\n 7.5 \n")]
    assert endpoint.ask(api_key_env="JUDGE_KEY", options={"temperature": 0.0, "max_tokens": 5}) == 7.5
    [(path, headers, body)] = endpoint.asked
    assert path == "/v1/chat/completions" and headers["Authorization"] == "Bearer sesame"
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be strict."},
            {"role": "user", "content": "Q: 2 + 2 = {?}\nA: It is {4}.\nGold: 4"},
        ],
        "temperature": 0.0,
        "max_tokens": 5,
    }


def test_without_a_key_none_is_sent(endpoint):
    endpoint.ask()
    assert "Authorization" not in endpoint.asked[0][1]


def test_a_reward_model_gives_a_number_at_a_path(endpoint):
    endpoint.answers = [(200, {"data": [{"index": 0, "data": [1.5e-05]}]})]
    prompt = {"user": "{question}", "assistant": "{response}"}
    assert endpoint.ask(path="/pooling", reply="data.0.data.-1", prompt=prompt) == 1.5e-05
    [(path, _, body)] = endpoint.asked
    assert path == "/v1/pooling"
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("content", "options", "value"),
    [
        ("3", {}, 3.0),
        ("First 2\n1\nthen\n4\n", {}, 4.0),
        ("Score: 8/10", {"score": r"Score: (\d+)"}, 8.0),
        ('{"score": 6}', {"score": r'"score": (\d+)'}, 6.0),
    ],
)
def test_the_last_match_is_the_score(content, options, value, endpoint):
    endpoint.answers = [chat(content)]
    assert endpoint.ask(**options) == value


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (chat("8/10"), "no score in the reply '8/10'"),
        (chat("I cannot say."), "no score in the reply"),
        (chat("11"), r"score 11 in the reply is outside \[0, 10\]"),
        ((200, {"choices": []}), "no choices.0.message.content"),
        ((200, {"error": "x"}), "no choices.0.message.content"),
        ((200, b"<html>"), "no choices.0.message.content"),
        ((200, [1, 2]), "no choices.0.message.content"),
        (chat(None), "no score in the reply 'null'"),
        ((400, {"error": "too long"}), "answers 400 Bad Request: .*too long"),
    ],
)
def test_a_reply_without_a_usable_score_is_a_failure_of_its_sample(answer, words, endpoint):
    endpoint.answers = [answer]
    with pytest.raises(UnusableReplyError, match=words):
        endpoint.ask()
    assert len(endpoint.asked) == 1, "asking again gives the same"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(status, endpoint):
    endpoint.answers = [(status, {}), (status, {}), chat("5")]
    assert endpoint.ask() == 5.0
    assert len(endpoint.asked) == 3


def test_the_number_of_attempts_is_limited(endpoint):
    endpoint.answers = [(503, {"error": "busy"})]
    with pytest.raises(UnusableReplyError, match="answers 503 Service Unavailable"):
        endpoint.ask(retries=2)
    assert len(endpoint.asked) == 3


def test_no_attempt_begins_after_the_time_out(endpoint):
    endpoint.answers = [(503, {})]
    with pytest.raises(UnusableReplyError):
        endpoint.ask(timeout_s=5, backoff_s=1000, retries=9)
    assert len(endpoint.asked) == 1


def test_a_server_that_is_not_there_is_a_failure_of_the_sample(endpoint):
    endpoint.server.shutdown()
    endpoint.server.server_close()
    with pytest.raises(OSError, match="refused"):
        endpoint.ask(retries=1)


def test_a_server_that_hangs_is_let_go_at_the_time_out(endpoint):
    done = threading.Event()
    endpoint.answers = [(None, done)]
    with pytest.raises(TimeoutError):
        endpoint.ask(timeout_s=0.2)
    done.set()


@pytest.mark.parametrize("status", [301, 302, 307, 401, 403, 404])
def test_a_wrong_address_or_key_stops(status, endpoint, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sesame")
    endpoint.answers = [(status, {"error": "nope"})]
    with pytest.raises(PrerequisiteError, match=rf"answers {status} .*nope.*; look at url") as error:
        endpoint.ask(api_key_env="JUDGE_KEY")
    assert "sesame" not in str(error.value)
    assert len(endpoint.asked) == 1, "a redirect is not followed: it would carry the key along"


def test_a_template_that_asks_for_an_unknown_field_stops(endpoint):
    with pytest.raises(InputError, match=r"unknown placeholder 'questoin'. Did you mean 'question'\?"):
        endpoint.ask(prompt={"user": "{questoin} {response}"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "localhost:8000"}, "expected http://"),
        ({"url": "http://me:pw@host/v1"}, "api_key_env"),
        ({"score": "("}, "is no regular expression"),
        ({"score": r"\d+"}, "has 0 groups; expected one"),
        ({"prompt": {"user": "Rate it."}}, "shows the judge no {response}"),
        ({"prompt": {"user": '{"score": 1} {response}'}}, "Write {{ and }} for braces"),
    ],
)
def test_a_wrong_judge_is_refused_at_once(options, words):
    with pytest.raises(InputError) as error:
        Judge(**{"url": "http://localhost/v1", "model": "m", "prompt": PROMPT} | options)
    assert words in str(error.value)


def block(endpoint, **options):
    judge = {"url": endpoint.url, "model": "m", "prompt": PROMPT, "backoff_s": 0.001} | options
    return validate(GdpoConfig, {"rewards": {"rating": {"judge": judge, "range": [0, 10], "concurrency": 1}}})


def test_a_judge_is_a_reward_like_any_other(endpoint, caplog):
    endpoint.answers = [chat("9"), chat("dunno"), chat("0")]
    method = Method(block(endpoint))
    vectors = method.score([ROW] * 3, [Rollout("row1", i, f"answer {i}", 1) for i in range(3)])
    assert [vectors[0]["rating"], vectors[2]["rating"]] == [9.0, 0.0] and math.isnan(vectors[1]["rating"])
    assert vectors[1].reasons == {"rating": ("error:UnusableReplyError",)}
    assert "'rating' of row 'row1', rollout 1 raised UnusableReplyError: no score in the reply 'dunno'" in caplog.text
    assert method.failures(vectors) == {"reward/rating/frac_failed": pytest.approx(1 / 3)}


def test_a_refused_key_ends_the_run_with_the_name_of_the_reward(endpoint):
    endpoint.answers = [(401, {})]
    with pytest.raises(RewardError, match=r"reward 'rating' of row 'row1', rollout 0 .* answers 401"):
        Method(block(endpoint)).score([ROW], [ROLLOUT])


def test_a_missing_key_is_noticed_before_anything_is_asked(endpoint, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(PrerequisiteError, match="environment variable JUDGE_KEY"):
        Method(block(endpoint, api_key_env="JUDGE_KEY"))
    assert endpoint.asked == []


def test_the_configuration_holds_the_name_of_the_key_and_not_the_key(endpoint, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sesame")
    config = block(endpoint, api_key_env="JUDGE_KEY")
    assert GdpoConfig.model_validate(config.model_dump(mode="json")) == config
    assert "sesame" not in config.model_dump_json()


def test_a_typo_in_the_block_is_explained(endpoint):
    with pytest.raises(ConfigError, match=r"Did you mean 'gdpo.rewards.rating.judge.retries'\?"):
        block(endpoint, retrys=3)


def test_batched_does_not_go_with_a_judge(endpoint):
    rewards = {"rating": block(endpoint).rewards["rating"].model_dump(mode="json") | {"batched": True}}
    with pytest.raises(ConfigError, match="batched belongs to fn"):
        validate(GdpoConfig, {"rewards": rewards})
