"""The engine without a network: conversations of several turns, pace, progress, numbers, and models in this process."""

import asyncio
import io
import json
import math

import numpy as np
import pytest

from gdpo_nemo.errors import InputError, PrerequisiteError, RunDirError, UnknownNameError
from gdpo_nemo.evaluation.benchmark import Benchmark, mean_number
from gdpo_nemo.evaluation.checkpoint import model_folder
from gdpo_nemo.evaluation.command_line import numbers_table
from gdpo_nemo.evaluation.engine import IncompleteError, Settings, evaluate, header
from gdpo_nemo.evaluation.grading import rescore
from gdpo_nemo.evaluation.pacing import Pace, Pacer
from gdpo_nemo.evaluation.progress import Progress
from gdpo_nemo.evaluation.samplers.endpoint import seconds_until
from gdpo_nemo.evaluation.sampling import (
    Completion,
    ContextOverflowError,
    RejectedError,
    SamplingParams,
    TransientError,
)
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.types import RewardVector


class Countdown(Benchmark):
    """The model is told to go on from its own number until it says 0; how many turns that takes is up to it."""

    name, hashes, graders = "countdown", {}, ("exact", "broken")

    def questions(self):
        return [{"row_id": str(n), "messages": [{"role": "user", "content": str(n)}], "gold": n} for n in (1, 3)]

    async def answer(self, question, ask):
        messages, turns = list(question["messages"]), []
        while not turns or turns[-1] != "0":
            try:
                turns.append((await ask(messages, max_tokens=10 + len(turns))).text)
            except ContextOverflowError:
                turns.append("0")
            messages += [{"role": "assistant", "content": turns[-1]}, {"role": "user", "content": turns[-1]}]
        return {"response": turns[-1], "turns": turns}

    def grade(self, samples, grader):
        for question, generation in samples:
            if grader == "broken":
                raise ValueError("a fault of the grader")
            yield RewardVector({"turns": float(len(generation["turns"]) == question["gold"])})


class Decrement:
    """A model that says one less than the last message, and does what ``script`` says first."""

    def __init__(self, script=lambda messages, params: None):
        self.script, self.asked = script, []

    def describe(self):
        return {"kind": "decrement"}

    async def complete(self, messages, params):
        self.asked.append((messages[-1]["content"], params))
        self.script(messages, params)
        return Completion(str(int(messages[-1]["content"]) - 1), "length" if len(messages) == 3 else "stop", 2, 5)

    async def close(self):
        pass


@pytest.fixture
def run(tmp_path):
    """Evaluate the countdown in a folder of the test's own: numbers and store."""

    def call(sampler, **options):
        settings = Settings(2, SamplingParams(seed=1), Pace(2, 1, backoff_s=0.0), **options)
        benchmark = Countdown()
        store = EvaluationStore.create(tmp_path / "countdown", header(benchmark, sampler, settings, {}))
        with asyncio.Runner() as runner:
            return evaluate(benchmark, sampler, store, settings, runner), store

    return call


def raising(error, where):
    def script(messages, params):
        if where(messages):
            raise error

    return script


def test_a_conversation_of_several_turns_is_one_sample(run):
    sampler = Decrement()
    [number], store = run(sampler)
    rows = {(row["row_id"], row["index"]): row for row in store.generations()}
    assert sorted(rows) == [("1", 0), ("1", 1), ("3", 0), ("3", 1)]
    assert rows["3", 1]["turns"] == ["2", "1", "0"]
    assert (rows["3", 1]["calls"], rows["3", 1]["length_tokens"], rows["3", 1]["prompt_tokens"]) == (3, 15, 6)
    assert rows["3", 0]["truncated"] and not rows["1", 0]["truncated"], "any turn that the limit cut"
    assert len({params.seed for _, params in sampler.asked}) == len(sampler.asked) == 8
    assert sorted({params.max_tokens for _, params in sampler.asked}) == [10, 11, 12]
    assert (number.name, number.value, number.num_samples) == ("turns avg@2", 1.0, 4)


def test_a_failure_in_a_later_turn_leaves_the_sample_failed(run):
    sampler = Decrement(raising(RejectedError("no"), lambda messages: messages[-1]["content"] == "2"))
    with pytest.raises(IncompleteError, match="2 samples have no answer \\(2 rejected\\)"):
        run(sampler)
    numbers, store = run(sampler, allow_incomplete=True)
    assert [(row["row_id"], row["calls"]) for row in store.failures()] == [("3", 1), ("3", 1)]
    assert (numbers[0].num_questions, numbers[0].failed) == (1, 2)
    numbers, store = run(Decrement())
    assert numbers[0].num_samples == 4 and store.state() == "complete"


def test_a_benchmark_may_answer_for_an_overflow(run):
    sampler = Decrement(raising(ContextOverflowError("too long"), lambda messages: len(messages) == 3))
    numbers, store = run(sampler)
    assert {row["row_id"]: row["turns"] for row in store.generations()} == {"1": ["0"], "3": ["2", "0"]}
    assert numbers[0].value == 0.5 and store.failures() == []


def test_a_fault_of_the_code_ends_the_evaluation_and_is_no_failure_of_a_sample(run):
    with pytest.raises(ZeroDivisionError):
        run(Decrement(lambda messages, params: 1 / 0))
    with pytest.raises(PrerequisiteError):
        run(Decrement(raising(PrerequisiteError("wrong key"), lambda messages: True)))
    numbers, store = run(Decrement())
    assert numbers[0].num_samples == 4 and not (store.path / "failures.jsonl").exists()


def test_an_answer_that_is_there_twice_or_was_not_asked_for_is_an_error(run):
    _, store = run(Decrement())
    [first, *_] = store.generations()
    store.append_generations([first])
    with pytest.raises(RunDirError, match="a second answer"):
        run(Decrement())
    (store.path / "generations.jsonl").write_text(json.dumps(first | {"row_id": "9"}) + "\n")
    with pytest.raises(RunDirError, match="not asked for"):
        run(Decrement())


def test_a_changed_grader_never_overwrites_its_scores(run):
    _, store = run(Decrement())

    class Changed(Countdown):
        def grade(self, samples, grader):
            return [RewardVector({"turns": float(sample.question["gold"] == 1)}) for sample in samples]

    assert rescore(Countdown(), store, "exact") == ("exact", {"turns": 0})
    assert rescore(Changed(), store, "exact") == ("exact@2", {"turns": 2})
    assert rescore(Changed(), store, "exact") == ("exact@2", {"turns": 2})
    assert [row["values"]["turns"] for row in store.scores()] == [1.0] * 4
    with pytest.raises(ValueError, match="fault of the grader"):
        rescore(Countdown(), store, "broken")
    assert store.graders() == ["exact", "exact@2"]
    with pytest.raises(UnknownNameError, match="Did you mean 'exact'"):
        rescore(Countdown(), store, "exakt")


@pytest.mark.parametrize(("times", "words"), [(0, "no score for \\('1', 0\\)"), (2, "more scores than")])
def test_a_grader_that_miscounts_is_found_out(times, words, run):
    class Miscounting(Countdown):
        def grade(self, samples, grader):
            return [RewardVector({"turns": 1.0}) for sample in samples for _ in range(times)]

    _, store = run(Decrement())
    with pytest.raises(RuntimeError, match=words):
        rescore(Miscounting(), store, "exact")
    assert store.graders() == ["exact"]


# ---- pace


def test_pauses_double_up_to_a_limit_with_jitter():
    pace = Pace(backoff_s=0.5, longest_wait_s=3.0)
    assert [pace.wait_s(attempt, 0.0) for attempt in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]
    assert pace.wait_s(2, 0.5) == 1.5 and pace.wait_s(10_000, 0.999) <= 3.0


def attempts(error, retries):
    """How often a request that always fails is made."""
    made = []

    async def request():
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        asyncio.run(Pacer(Pace(retries=retries, backoff_s=0.0), 0).call(request, "a"))
    return len(made)


def test_only_what_may_pass_is_tried_again():
    transient = TransientError("busy")
    assert attempts(transient, 3) == transient.attempts == 4
    assert attempts(RejectedError("no"), 3) == attempts(PrerequisiteError("key"), 3) == 1


def test_an_interruption_that_a_library_takes_for_a_broken_connection_is_not_retried():
    asked = []

    async def request():
        asked.append(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TransientError("broke off", kind="broken") from None

    async def interrupted():
        call = asyncio.create_task(Pacer(Pace(backoff_s=0.0), 0).call(request, "a"))
        while not asked:
            await asyncio.sleep(0)
        call.cancel()
        await call

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert asked == [1]


def test_a_limit_per_minute_spaces_the_starts():
    async def starts():
        pacer, loop = Pacer(Pace(requests_per_minute=3000), 0), asyncio.get_running_loop()

        async def request():
            return loop.time()

        return sorted(await asyncio.gather(*(pacer.call(request, n) for n in range(6))))

    assert np.diff(asyncio.run(starts())).min() >= 0.0199


@pytest.mark.parametrize(
    ("header_value", "seconds"),
    [(None, None), ("7", 7.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None)],
)
def test_retry_after_in_both_forms(header_value, seconds):
    assert seconds_until(header_value) == seconds


# ---- progress and numbers


def test_progress_tells_pace_and_what_is_left():
    now, stream = [0.0], io.StringIO()
    progress = Progress("aime24", 100, 40, stream=stream, clock=lambda: now[0])
    for failed in (False, False, True, False):
        now[0] += 5
        progress.add(failed=failed, tokens=0 if failed else 100)
    assert progress.text() == "aime24: 43 of 100 samples, 1 failed, 0.15/s, 15 tokens/s, 0:04:40 left"
    assert len(stream.getvalue().splitlines()) == 2, "a line every ten seconds"


def test_a_mean_over_questions_counts_what_stands_behind_it():
    nan = math.nan
    values = np.array([[1, 0], [1, nan], [nan, nan], [nan, 0.0]])
    scored = np.array([[True, True], [True, True], [True, True], [False, True]])
    number = mean_number("correct", values, scored, unit="%")
    assert number.value == pytest.approx(100 * (0.5 + 1 + 0) / 3)
    assert (number.num_questions, number.num_samples, number.ungraded, number.failed) == (3, 4, 3, 1)
    assert number.interval == mean_number("correct", values, scored, unit="%").interval
    assert "50.0%" in numbers_table({"b": [number]}) and "95 %, bootstrap over questions" in numbers_table(
        {"b": [number]}
    )
    empty = mean_number("correct", np.full((2, 1), nan), np.ones((2, 1), bool))
    assert empty.value is None and empty.interval is None and "not run" in numbers_table({"b": [empty]})


# ---- models in this process


@pytest.fixture(scope="module")
def folder(configure, tmp_path_factory):
    """A random tiny model, saved as the embedded backend does."""
    from gdpo_nemo.models import load
    from gdpo_nemo.models.pretrained import save

    run = RunDir.claim(tmp_path_factory.mktemp("run") / "seed0", {}, {})
    with run.new_checkpoint(4) as checkpoint:
        save(*load(configure().embedded), checkpoint)
        (checkpoint / "optimizer.pt").write_bytes(b"")
    return run.path / "checkpoints" / "step4"


CHATS = [[{"role": "user", "content": text}] for text in ("Go on.", "Start at a place and go far.", "Hi", "No.")]


def complete(sampler, *params):
    """Completions of the chats, asked together."""

    async def all_of_them():
        pairs = zip(CHATS, params * len(CHATS) if len(params) == 1 else params, strict=True)
        return await asyncio.gather(*(sampler.complete(chat, own) for chat, own in pairs))

    return asyncio.run(all_of_them())


def test_a_local_model_draws_each_sample_from_its_own_stream(folder, one_thread):
    from gdpo_nemo.evaluation.samplers.transformers import Transformers

    params = [SamplingParams(1.0, 0.9, 12, seed=seed) for seed in range(4)]
    together = complete(Transformers(str(folder), device="cpu"), *params)
    assert complete(Transformers(str(folder), device="cpu", batch_size=1), *params) == together
    assert complete(Transformers(str(folder), device="cpu"), *(params[::-1])) != together
    assert all(answer.completion_tokens <= 12 for answer in together)
    assert {answer.finish_reason for answer in together if answer.completion_tokens == 12} == {"length"}


def test_a_greedy_local_model_says_what_training_would_sample(folder, one_thread):
    from gdpo_nemo.evaluation.samplers.transformers import Transformers
    from gdpo_nemo.models.sampling import sample
    from gdpo_nemo.types import Message, Prompt

    sampler = Transformers(str(folder), device="cpu")
    prompts = [Prompt("q", (Message("user", chat[0]["content"]),)) for chat in CHATS]
    drawn = sample(
        sampler.model, sampler.tokenizer, prompts, rollouts_per_prompt=1, max_new_tokens=8, temperature=0, seed=0
    )
    expected = [(rollout.response, rollout.length_tokens, rollout.truncated) for rollout in drawn.rollouts]
    for params in (SamplingParams(0.0, 1.0, 8), SamplingParams(1.0, 1e-9, 8, seed=3)):
        answers = complete(sampler, params)
        assert [(a.text, a.completion_tokens, a.finish_reason == "length") for a in answers] == expected


def test_a_local_model_refuses_what_it_cannot_do(folder):
    from gdpo_nemo.evaluation.samplers.transformers import Transformers

    sampler = Transformers(str(folder), device="cpu")
    with pytest.raises(ContextOverflowError, match="lower --max-tokens"):
        complete(sampler, SamplingParams(max_tokens=10**6))
    with pytest.raises(InputError, match="stop texts"):
        complete(sampler, SamplingParams(stop=("x",)))


def test_a_checkpoint_is_evaluated_into_its_run(folder, tmp_path, capsys):
    from gdpo_nemo.evaluation.command_line import EvalProgram, execute
    from gdpo_nemo.evaluation.exact_answers import ExactAnswers

    (tmp_path / "sums.json").write_text(json.dumps([{"question": "1 + 1", "answer": "2", "id": "one"}] * 1))
    program = EvalProgram("Sums.", lambda options: [ExactAnswers(tmp_path / "sums.json")])
    run = folder.parents[1]
    line = ["--checkpoint", f"{run}@4", "--engine", "transformers", "--device", "cpu", "--max-tokens", "5"]
    assert execute(program, [*line, "--samples", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["results"]["sums"][0]["num_samples"] == 3
    rows = EvaluationStore.open(run / "eval" / "sums").generations()
    assert [row["index"] for row in sorted(rows, key=lambda row: row["index"])] == [0, 1, 2]
    assert all(row["length_tokens"] <= 5 and row["prompt_tokens"] > 0 for row in rows)


def test_a_checkpoint_is_found_by_run_and_step(folder, tmp_path):
    run = folder.parents[1]
    assert model_folder(f"{run}@4") == model_folder(f"{run}@latest") == model_folder(str(run)) == (folder, run)
    with pytest.raises(RunDirError, match="no checkpoint of step 5; it has 4"):
        model_folder(f"{run}@5")
    with pytest.raises(InputError, match="neither a number nor latest"):
        model_folder(f"{run}@best")
    cluster = tmp_path / "cluster"
    (cluster / "checkpoints" / "step_7" / "policy" / "weights" / "iter_0000000").mkdir(parents=True)
    with pytest.raises(PrerequisiteError, match=rf"Megatron format.*\n  gdpo checkpoint export {cluster}@7 --to"):
        model_folder(f"{cluster}@7")
    (cluster / "export").mkdir()
    (cluster / "export" / "export.json").write_text('{"step": 7}')
    assert model_folder(f"{cluster}@latest") == (cluster / "export", cluster)
