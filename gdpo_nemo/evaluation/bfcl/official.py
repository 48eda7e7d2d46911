"""Data, checkers and tools of one release of bfcl-eval, behind a pipe. Runs in the environment of that release.

    python -s -P official.py v3 ISOLATION ROOT      requests come as JSON lines on standard input, answers go to output

The process first leaves the network, the files and the rights of its caller (``sandbox.inside``). Every request is
carried out in a fork that is ended after its time, so that each sample meets untouched backends and
nothing that a call does can outlive it. The only text that reaches the release's ``eval`` is written here: a name that
is a public method of the entry's classes, parameter names that are identifiers, and literals.

Of gdpo_nemo, nothing but ``sandbox.inside`` can be imported here; beside it Python's own library and bfcl_eval.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import types
from importlib import import_module
from typing import Any

MODELS = {"toolrl": False, "native": True}  # registry name -> whether dots in names of tools became underscores
REJECTED = "rejected_call()"  # no such name: the release answers with an error, as to any unknown name
MEMORY_BYTES = 4 << 30

Json = dict[str, Any]


class Release:
    """What differs between the two releases."""

    def __init__(self, version: str) -> None:
        registry = types.ModuleType("bfcl_eval.constants.model_config")
        settings = {name: types.SimpleNamespace(underscore_to_dot=dots) for name, dots in MODELS.items()}
        registry.MODEL_CONFIG_MAPPING = settings  # type: ignore[attr-defined]
        sys.modules[registry.__name__] = registry  # the real one imports the client library of every vendor
        self.version = version
        self.utils = import_module("bfcl_eval.utils")
        self.config = import_module("bfcl_eval.constants.eval_config")
        self.mapping = import_module("bfcl_eval.constants.category_mapping")
        self.ast = import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
        self.multi_turn = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
        self.execution = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
        backends = self.execution if version == "v3" else import_module(
            "bfcl_eval.constants.executable_backend_config"
        )  # fmt: skip
        self.class_modules: dict[str, str] = getattr(backends, "CLASS_FILE_PATH_MAPPING")  # noqa: B009
        self._entries: dict[str, dict[str, Json]] = {}
        self._answers: dict[str, dict[str, Json]] = {}

    def entries(self, category: str) -> dict[str, Json]:
        """Id -> entry as checkers see it, without hints about languages."""
        if category not in self._entries:
            if self.version == "v3":
                rows = self.utils.load_file(self.config.PROMPT_PATH / f"BFCL_v3_{category}.json")
            else:
                rows = self.utils.load_dataset_entry(
                    category, include_prereq=False, include_language_specific_hint=False
                )
            self._entries[category] = {row["id"]: row for row in rows}
        return self._entries[category]

    def answers(self, category: str) -> dict[str, Json]:
        """Id of the entry -> its reference answer; none for relevance. The two files go line by line."""
        if "relevance" in category:
            return {}
        if category not in self._answers:
            prefix = self.mapping.VERSION_PREFIX
            rows = self.utils.load_file(self.config.POSSIBLE_ANSWER_PATH / f"{prefix}_{category}.json")
            ids = list(self.entries(category))
            assert len(ids) == len(rows), f"{category} has {len(ids)} entries and {len(rows)} answers"
            self._answers[category] = dict(zip(ids, rows, strict=True))
        return self._answers[category]

    def language(self, category: str) -> Any:
        """Whose literals the arguments are."""
        name = next((n for n in ("javascript", "java") if n in category), "python")
        if self.version == "v3":
            return {"python": "Python", "java": "Java", "javascript": "JavaScript"}[name]
        return self.ast.Language(name)


# ---- questions


def questions(release: Release, request: Json) -> list[Json]:
    """The entries of a category as a handler of the release sees them: documents of tools with hints, and answers."""
    category = request["category"]
    answers = release.answers(category)
    rows = _prepared(release, category)
    handler = import_module("bfcl_eval.model_handler.utils") if request["native"] else None
    out = []
    for row in rows:
        held_out = row.get("missed_function", {})
        out.append(
            {
                "id": row["id"],
                "turns": row["question"],
                "tools": row["function"],
                "held_out": held_out,
                "gold": answers[row["id"]]["ground_truth"] if row["id"] in answers else None,
            }
        )
        if handler is not None:
            out[-1]["tools"] = _native(release, handler, row["function"])
            out[-1]["held_out"] = {turn: _native(release, handler, docs) for turn, docs in held_out.items()}
    return out


def _prepared(release: Release, category: str) -> list[Json]:
    if release.version == "v4":
        rows: list[Json] = release.utils.load_dataset_entry(category, include_prereq=False)
        return rows
    rows = release.utils.load_file(release.config.PROMPT_PATH / f"BFCL_v3_{category}.json")
    if "multi_turn" in category:
        rows = [_with_tools(release, row) for row in rows]
    handler = import_module("bfcl_eval.model_handler.utils")
    for row in rows:
        handler.func_doc_language_specific_pre_processing(row["function"], category)
    return rows


def _with_tools(release: Release, row: Json) -> Json:
    """Tools of a multi-turn entry of v3, those that are held back apart."""
    tools: list[Json] = []
    for name in row["involved_classes"]:
        file = release.mapping.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
        tools += release.utils.load_file(release.config.MULTI_TURN_FUNC_DOC_PATH / file)
    held_out: dict[str, list[Json]] = {}
    for turn, names in row.get("missed_function", {}).items():
        held_out[turn] = []
        for name in names:
            tool = next((tool for tool in tools if tool["name"] == name), None)
            if tool is not None:
                tools.remove(tool)
                held_out[turn].append(tool)
    return row | {"function": tools} | ({"missed_function": held_out} if held_out else {})


def _native(release: Release, handler: Any, docs: list[Json]) -> list[Json]:
    styles = handler.ModelStyle
    style = styles.OpenAI_Completions if release.version == "v3" else styles.OPENAI_COMPLETIONS
    tools: list[Json] = handler.convert_to_tool(docs, handler.GORILLA_TO_OPENAPI, style)
    return tools


# ---- checks


def check(release: Release, request: Json) -> list[Json]:
    """Verdicts on samples of single turns, one after the other."""
    return [_check_one(release, sample, request["model"]) for sample in request["samples"]]


def _check_one(release: Release, sample: Json, model: str) -> Json:
    category = sample["category"]
    if "relevance" in category:
        called = not release.utils.is_empty_output(sample["calls"])
        wanted = "irrelevance" not in category
        wrong = "relevance_error:decoder_failed" if wanted else "irrelevance_error:decoder_success"
        return {"valid": called == wanted, "reason": "" if called == wanted else wrong}
    if not release.utils.is_function_calling_format_output(sample["calls"]):
        return {"valid": False, "reason": "ast_decoder:decoder_wrong_output_format"}
    docs, gold = _docs(release, category, sample["id"])
    try:
        verdict = _ast(release, docs, sample["calls"], gold, category, model)
        matched = verdict["valid"] or ("parallel" in category and _matches(release, docs, sample, gold, model))
    except Exception as error:  # whatever a checker meets in an entry that it was not written for: no verdict
        return {"fault": f"{type(error).__name__}: {error}"}
    return {"valid": verdict["valid"], "reason": verdict.get("error_type", ""), "matched": matched}


def _docs(release: Release, category: str, row_id: str) -> tuple[list[Json], list[Json]]:
    return release.entries(category)[row_id]["function"], release.answers(category)[row_id]["ground_truth"]


def _ast(release: Release, docs: Any, calls: Any, gold: Any, category: str, model: str) -> Json:
    verdict: Json = release.ast.ast_checker(docs, calls, gold, release.language(category), category, model)
    return verdict


def _matches(release: Release, docs: list[Json], sample: Json, gold: list[Json], model: str) -> bool:
    """Whether calls and references can be paired one to one: the release takes the first that fits and may run out."""
    calls, category = sample["calls"], sample["category"]
    if len(calls) != len(gold):
        return False
    fits = [[_ast(release, docs, [call], [want], category, model)["valid"] for call in calls] for want in gold]
    taken: dict[int, int] = {}

    def place(want: int, tried: set[int]) -> bool:
        for call in range(len(calls)):
            if fits[want][call] and call not in tried:
                tried.add(call)
                if call not in taken or place(taken[call], tried):
                    taken[call] = want
                    return True
        return False

    return all(place(want, set()) for want in range(len(gold)))


def check_dialogue(release: Release, request: Json) -> Json:
    """Verdict on one sample of several turns."""
    category, row_id = request["category"], request["id"]
    entry, gold = release.entries(category)[row_id], release.answers(category)[row_id]["ground_truth"]
    turns = request["turns"]
    if len(turns) != len(gold):
        return {"valid": False, "reason": "multi_turn:force_terminated"}
    methods = _methods(release, entry["involved_classes"])
    written = [[steps for step in turn if (steps := _written(step, methods))] for turn in turns]
    verdict = release.multi_turn.multi_turn_checker(written, gold, entry, category, request["model"])
    return {"valid": verdict["valid"], "reason": verdict.get("error_type", "")}


def execute(release: Release, request: Json) -> list[str]:
    """What the tools answer to the last step, after all steps before it."""
    entry = release.entries(request["category"])[request["id"]]
    classes = entry["involved_classes"]
    methods = _methods(release, classes)
    results: list[str] = []
    for step in request["steps"]:
        results, _ = release.execution.execute_multi_turn_func_call(
            _written(step, methods),
            entry.get("initial_config", {}),
            classes,
            request["model"],
            request["id"],
            long_context="long_context" in request["category"],
            is_evaL_run=False,
        )
    return [
        result if _write(call, methods) != REJECTED else result.replace("rejected_call", call["name"][:100])
        for call, result in zip(request["steps"][-1], results, strict=True)
    ]


def _methods(release: Release, classes: list[str]) -> set[str]:
    found: set[str] = set()
    for name in classes:
        cls = getattr(import_module(release.class_modules[name]), name)
        found |= {method for method, _ in inspect.getmembers(cls, inspect.isfunction) if not method.startswith("_")}
    return found


def _written(step: list[Json], methods: set[str]) -> list[str]:
    return [_write(call, methods) for call in step]


def _write(call: Json, methods: set[str]) -> str:
    """A call as Python text, or a stand-in for one that is none of the entry's."""
    name, arguments = call["name"], call["arguments"]
    if name not in methods or not all(key.isidentifier() for key in arguments):
        return REJECTED
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


# ---- the pipe

OPERATIONS = {"questions": questions, "check": check, "check_dialogue": check_dialogue, "execute": execute}


def preload(release: Release, request: Json) -> None:
    """Read what the request needs before forking, so that it is read once."""
    names = {request["category"]} if "category" in request else {sample["category"] for sample in request["samples"]}
    for name in names:
        if release.entries(name) and "multi_turn" in name:
            for entry in release.entries(name).values():
                for cls in entry["involved_classes"]:
                    import_module(release.class_modules[cls])
        release.answers(name)


def carry_out(release: Release, request: Json) -> bytes:
    """The answer to one request, from a fork."""
    preload(release, request)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _answer(release, request, writable)
    os.close(writable)
    said, deadline, late = b"", time.monotonic() + request["limit_s"], False
    while True:
        if not select.select([readable], [], [], max(0.0, deadline - time.monotonic()))[0]:
            late = True
            break
        part = os.read(readable, 1 << 20)
        if not part:
            break
        said += part
    os.kill(child, signal.SIGKILL)
    os.close(readable)
    _, status = os.waitpid(child, 0)
    if late:
        return json.dumps({"fault": f"timeout: no answer within {request['limit_s']:g} s"}).encode()
    return said or json.dumps({"fault": f"ended: the process died with status {status}"}).encode()


def _answer(release: Release, request: Json, writable: int) -> None:
    """Carry out a request and end the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    try:
        answer: Json = {"value": OPERATIONS[request["do"]](release, request)}
    except BaseException as error:  # a fault of this request, and of no other
        answer = {"fault": f"{type(error).__name__}: {error}"}
    with os.fdopen(writable, "wb") as pipe:
        pipe.write(json.dumps(answer).encode())
    os._exit(0)


def isolated(config: Json, root: str) -> Json:
    """Enter the layers of a configuration, see ``gdpo_nemo.sandbox.inside.zygote``; what came of it."""
    sys.path.insert(0, root)
    zygote = import_module("gdpo_nemo.sandbox.inside.zygote")
    sys.path.pop(0)
    config["needed"] += [os.__file__]
    try:
        with socket.socket() as unused:
            layers: Json = zygote.isolate(config, unused)
        if config["landlock"]:
            devices = zygote.namespaces.DEVICES
            readable, written = [*config["read_only"], *devices], [os.getcwd(), *devices[:2]]
            rules = zygote.landlock.ruleset(readable, written, directories=True)
            if zygote.landlock.restriction(rules)():
                raise OSError("Landlock refuses")
    except OSError as error:
        return {"fault": str(error)}
    os.environ["BFCL_PROJECT_ROOT"] = os.getcwd()
    return {"value": layers}


def main() -> None:
    """Answer requests until standard input ends."""
    version, config, root = sys.argv[1:]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the release prints
    layers = isolated(json.loads(config), root)
    release = Release(version) if "value" in layers else None
    out.write(json.dumps(layers).encode() + b"\n")
    out.flush()
    for line in sys.stdin.buffer if release else ():
        out.write(carry_out(release, json.loads(line)) + b"\n")  # type: ignore[arg-type]
        out.flush()


if __name__ == "__main__":
    main()
