# `make` builds its own .venv; python3 and make are all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

FRAMEWORKS := build/frameworks
# Python keeps what it has compiled, in every target. So pip need not compile all modules of all libraries, which takes
# most of a minute.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test quick matrix frameworks check bench gpu findings pictures picture-set package clean
setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,dev]'
	touch $@

demo: setup
	$(BIN)/ddpmon demo

# Everything, with real ranks.
test: setup
	$(BIN)/python -m pytest

# What starts no process group.
quick: setup
	$(BIN)/python -m pytest -m "not live"

# The probe and the stores with every torch and Python that can be had: gigabytes, an hour.
matrix:
	tests/matrix.sh

# `ddpmon run` on frameworks that are not in the usual environment; SOURCES=FOLDER: on the published scripts there too.
frameworks: setup
	test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,dev,frameworks]'
	$(FRAMEWORKS)/bin/python -m pytest tests/frameworks
	test -z "$(SOURCES)" || $(FRAMEWORKS)/bin/python bench/frameworks.py $(SOURCES)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,bench]'
	$(BIN)/python bench/overhead.py --rounds 4
	$(BIN)/python bench/detection.py synthetic --seeds 3
	$(BIN)/python bench/detection.py real
	$(BIN)/python bench/troubles.py --seeds 1
	$(BIN)/python bench/table.py
	$(BIN)/python bench/tick.py --ranks 64,1024
	$(BIN)/python bench/scale.py

# On a machine with an NVIDIA GPU: docs/measured/gpu.md.
gpu: setup
	$(BIN)/python bench/gpu/course.py --minutes 35 --out build/gpu

# The pictures of README.md and docs, of a real run and of simulated ones: six minutes.
pictures: setup
	$(BIN)/python docs/make_pictures.py

# Every view of every kind of run at four sizes, to look at after a change of the screen: half an hour.
picture-set: setup
	$(BIN)/python docs/make_picture_set.py build/pictures

# The tables of kinds in README.md and docs/findings.md, from ddpmon/diagnose/kinds.py.
findings: setup
	$(BIN)/python docs/make_findings.py

# The sdist and the wheel in dist/, checked.
package: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[package]'
	rm -rf build dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) build dist *.egg-info
