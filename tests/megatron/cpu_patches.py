"""What megatron-core asks of CUDA on the path of these tests, answered by the CPU.

The lines are those of megatron-core 0.16.1 unless said; each patch alone, left out, stops a layout at the lines named
with it.
Call ``apply`` once in a process of its own, before any model.
"""

import torch
from megatron.core.tensor_parallel import random
from torch.overrides import TorchFunctionMode


class CpuForCuda(TorchFunctionMode):
    """Creates on the CPU what is asked for with ``device="cuda"``."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        if keywords.get("device") == "cuda":
            keywords["device"] = "cpu"
        return function(*arguments, **keywords)


def apply() -> None:
    """Patch torch and megatron-core for the rest of the life of this process."""
    # Every layout:
    # models/common/embeddings/rotary_pos_embedding.py:162, distributed/param_and_grad_buffer.py:806 and, between
    # stages, pipeline_parallel/p2p_communication.py:313: device=torch.cuda.current_device()
    torch.cuda.current_device = lambda: torch.device("cpu")
    # tensor_parallel/random.py:235, CudaRNGStatesTracker.add
    torch.cuda.get_rng_state = lambda *_: torch.get_rng_state()
    # tensor_parallel/random.py:250, CudaRNGStatesTracker.fork, around the dropout of dot_product_attention.py:217.
    # The setters need no patch: without CUDA torch keeps their calls for later (_lazy_call).
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    # transformer/utils.py:35, the causal mask; pipeline_parallel/schedules.py:596 and 2138, the count of tokens:
    # device="cuda"
    CpuForCuda().__enter__()

    # Of 0.19.2 alone: distributed/param_and_grad_buffer.py:632 asks for the stream whose events it might await
    torch.cuda.current_stream = torch.cpu.current_stream

    # Pipeline parallelism only:
    # pipeline_parallel/p2p_communication.py:398 waits for the device after each exchange
    torch.cuda.synchronize = lambda *_: None
    # models/common/language_module/language_module.py:244, the copy of tied embeddings on the last stage
    torch.Tensor.cuda = lambda self, *_, **__: self
