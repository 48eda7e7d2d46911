"""`bfcl evaluate` as published, for two models of ours: python official_evaluate.py v3|v4, in its environment.

The registry of models is replaced by one with our two, since the real one imports a client library of every vendor;
the part that generates is not needed. Native calls are read by the official handler, ToolRL's by a reading of its own.
"""

import json
import sys
import types


class ToolRL:
    """What ToolRL's handler makes of a text, written without a look at ours."""

    def __init__(self, model_name=None, temperature=0, *_, **__):
        self.model_name, self.is_fc_model = model_name, False

    def _values(self, result):
        if "<tool_call>" in result:
            tail = result.split("<tool_call>").pop()
            for line in tail.split("</tool_call>")[0].strip().split("\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue

    def decode_ast(self, result, *_, **__):
        found = []
        for value in self._values(result):
            try:
                if value["name"].strip().lower() != "none":
                    found.append({value["name"]: value["parameters"]})
            except (KeyError, TypeError, AttributeError):
                continue
        return found

    def decode_execute(self, result, *_, **__):
        calls = [value for value in self._values(result) if isinstance(value, dict)]
        wanted = [call for call in calls if call.get("name", "").strip().lower() != "none"]
        return [
            f"{call.get('name', '')}({', '.join(f'{k}={v!r}' for k, v in call.get('parameters', {}).items())})"
            for call in wanted
        ]


def main(version):
    registry = types.ModuleType("bfcl_eval.constants.model_config")
    registry.MODEL_CONFIG_MAPPING = {}
    sys.modules[registry.__name__] = registry
    generation = types.ModuleType("bfcl_eval._llm_response_generation")
    generation.main = None
    sys.modules[generation.__name__] = generation
    from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler

    kinds = (("toolrl", ToolRL, False), ("native", OpenAICompletionsHandler, True))
    for name, handler, native in ((k + suffix, h, n) for k, h, n in kinds for suffix in ("", "gold")):
        registry.MODEL_CONFIG_MAPPING[name] = types.SimpleNamespace(
            model_name=name, display_name=name, url="", org="", license="", model_handler=handler,
            input_price=None, output_price=None, is_fc_model=native, underscore_to_dot=native,
        )  # fmt: skip
    from bfcl_eval.__main__ import cli

    partial = ["--partial-eval"] if version == "v4" else []
    sys.argv = ["bfcl", "evaluate", *sys.argv[2:], *partial]
    cli()


if __name__ == "__main__":
    main(sys.argv[1])
