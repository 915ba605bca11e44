# Everything runs inside .venv, which the first target that needs it creates from requirements.lock.
#   make demo    train full attention, SBM, a fitted and a random mask on the synthetic task, and compare them
#   make test    lint, types, tests, notebooks, site, and an installation from nothing
#   make lab     open the notebooks, as copies of your own without their outputs
#   make lab-test  run every notebook in a real JupyterLab, as a learner would (ten minutes or so; needs chromium)
#   make docs    serve the site while writing it
#   make site    build the site, warnings being errors
#   make results train and measure what the README and the site quote (some hours on two cores; resumable)
#   make long-range  train the reduced long-range tasks (some hours on two cores; resumable)
#   make language  pre-train and fine-tune the reduced language models (about three hours on two cores; resumable)
#   make bench   measure what the benchmark page quotes (half an hour or less, on an otherwise idle machine; resumable)
#   make gpu     test and measure on a GPU what the site says of GPUs, on a machine that has one (resumable)
#   make faults  put 10,000 degenerate inputs and mistakes through it (a few minutes on one core)
#   make clean   remove what was built (distclean: the environment too)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL ?= $(BIN)/python -m pip install --disable-pip-version-check --quiet
STAMP := $(VENV)/.installed
TORCH := $(shell sed -n '/^torch==/p' requirements.lock)

# Two worker processes with one thread each suit small machines; PYTEST_WORKERS=0 runs in one process. A worker that
# crashes ends the run: if it were replaced, xdist would wait for ever.
PYTEST_WORKERS ?= 2
WORKERS = -n $(PYTEST_WORKERS) --max-worker-restart 0
PYTEST_ARGS ?=
DEMO_ARGS ?=
GPU_ARGS ?=
STUDIES := figure4 figure4-64 collapse fitted-64 fitted-256 fitted-1024 fresh-64 fresh-256 recall
GLUE := sst2 qnli mnli qqp
LONG_RANGE := listops text retrieval-topics retrieval image pathfinder
LONG_RANGE += listops-edges pathfinder-edges retrieval-topics-edges retrieval-edges text-edges image-edges
figure = $$(test ! -L docs/assets/$(1).png || echo --figure results/$(1).png)# for what a page shows
# Those that take longest come first.
NOTEBOOKS := $(foreach name,how 1 0,$(wildcard notebooks/$(name)*.ipynb))
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

# Tests start some hundred processes, which would all compile the same sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint unit notebooks-test lab-test site-test install-test lab docs site results long-range language bench gpu faults clean distclean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

# torch goes first and alone, so that the index in use decides which build (CPU or CUDA) the rest is resolved against.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "sbmt needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { echo "Could not create $(VENV). On Debian or Ubuntu: apt-get install python3-venv, then run make again." >&2; exit 1; }
	$(INSTALL) $(TORCH)
	$(INSTALL) -r requirements.lock
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)
	$(BIN)/sbmt demo $(DEMO_ARGS)

# Two targets at a time, in this order. Unit tests come first, and compile the loops before notebooks and pages need them.
# They and the notebooks have two processes each; the other targets fill in where one of the two has nothing left to do.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 unit lint install-test site-test notebooks-test

lint: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# Files keep their order, so that those that hold one long test do not come last.
unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests sbmt theory --doctest-modules -m "not site and not install and not lab" \
	    $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# Kernels are separate processes, so neither shape checks nor warning filters reach them.
notebooks-test: $(STAMP)
ifneq ($(NOTEBOOKS),)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval-lax --nbval-current-env --nbval-cell-timeout=300 \
	    $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS) $(NOTEBOOKS)
endif

lab-test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/lab -m lab $(PYTEST_ARGS)

site-test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/site -m site $(PYTEST_ARGS)

# Makes a second environment, as a newcomer would: it takes its time.
install-test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/install -m install $(PYTEST_ARGS)

# Text, retrieval and image need their files: see docs/long-range.md.
long-range: $(STAMP)
	mkdir -p results
	for task in listops text retrieval image pathfinder; do \
	    $(BIN)/sbmt data prepare $$task --reduced || exit 1; \
	done
	$(BIN)/sbmt data prepare retrieval
	for task in $(LONG_RANGE); do \
	    $(BIN)/sbmt study $$task --workers 2 $(call figure,$$task) || exit 1; \
	    cp runs/$$task/result.json results/$$task.json || exit 1; \
	done
	$(BIN)/python results/measure/paired.py
	$(BIN)/python results/write_tables.py

# Needs text for the corpus and GLUE's tables: see docs/language.md.
language: $(STAMP)
	mkdir -p results
	$(BIN)/sbmt data prepare corpus --reduced
	for task in $(GLUE); do \
	    $(BIN)/sbmt data prepare $$task || exit 1; \
	done
	$(BIN)/sbmt glue --reduced --workers 2 --figure results/glue.png
	cp runs/glue/result.json results/glue.json
	ln -sfn ../../results/glue.png docs/assets/glue.png
	$(BIN)/sbmt study mlm-edges --workers 2
	cp runs/mlm-edges/result.json results/mlm-edges.json
	$(BIN)/python results/measure/attention_mass.py
	$(BIN)/python results/measure/pretrained.py
	$(BIN)/python results/measure/pretrained_tasks.py
	$(BIN)/python results/measure/pretrained_time.py
	$(INSTALL) --no-deps rxnmapper==0.4.3
	$(BIN)/python results/measure/reactions.py
	$(BIN)/sbmt data prepare corpus --name corpus-bytes --vocab-size 261 --from "$$SBMT_DATA/lm/imdb_unsup_train.txt.gz"
	$(BIN)/python results/measure/causal.py
	$(BIN)/python results/write_tables.py

results: $(STAMP)
	$(BIN)/sbmt demo --seeds 3 --output runs/demo3
	mkdir -p results
	cp runs/demo3/result.json results/demo.json
	cp runs/demo3/demo.png results/demo.png
	for study in $(STUDIES); do \
	    $(BIN)/sbmt study $$study --workers 2 $(call figure,$$study) || exit 1; \
	    cp runs/$$study/result.json results/$$study.json || exit 1; \
	done
	$(BIN)/python results/measure/recall_lengths.py
	$(BIN)/python results/measure/ste_bias.py
	$(BIN)/python -m theory --json results/theory.json
	$(BIN)/python results/write_tables.py

# Unfinished numbers lie in runs/bench, and finished ones do until they are published: the next call measures anew.
# Published ones are replaced.
bench: $(STAMP)
	mkdir -p results
	$(BIN)/sbmt bench --suite attention --json runs/bench/bench.json
	$(BIN)/sbmt bench --suite fitted --json runs/bench/bench_fitted.json
	mv runs/bench/bench.json runs/bench/bench_fitted.json results
	$(BIN)/python results/write_tables.py

# GPU_ARGS=--quick measures less. What is measured and trained lies in runs/gpu; remove it to start anew.
gpu: $(STAMP)
	mkdir -p results/gpu
	$(BIN)/python -m pytest -q -n0 tests/kernels/test_gpu.py tests/kernels/test_gpu_paper.py tests/kernels/test_points.py
	$(BIN)/python -m pytest -q -n0 -m gpu tests/graph tests/experiments/benchmarks
	$(BIN)/sbmt bench --device cuda --suite fitted --json runs/gpu/bench_fitted.json $(GPU_ARGS)
	cp runs/gpu/bench_fitted.json results/gpu
	$(BIN)/python results/measure/gpu_training.py
	$(BIN)/sbmt bench --device cuda --suite attention --json runs/gpu/bench.json $(GPU_ARGS)
	cp runs/gpu/bench.json results/gpu
	$(BIN)/python results/write_tables.py

faults: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.run_many

# The learner's copies have no outputs, which would give answers away, and lie as deep as the originals, so that links hold.
lab: $(STAMP)
	$(BIN)/python notebooks/copies.py lab
	$(BIN)/python -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/lab/$(notdir $(firstword $(NOTEBOOKS)))

docs: $(STAMP)
	$(MKDOCS) serve

site: $(STAMP)
	$(MKDOCS) build --strict

clean:
	rm -rf site build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean
	rm -rf $(VENV)
