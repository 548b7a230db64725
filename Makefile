# A fresh machine needs Python 3.11+ and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test pages format clean

demo: $(INSTALLED)  ## Five encodings meet sequences twice as long as they were trained on
	$(BIN)/lengthwise run quickstart --device cpu
	$(BIN)/lengthwise show runs/quickstart
	$(BIN)/lengthwise report runs/quickstart --out report.html

test: $(INSTALLED)  ## The whole test suite, with style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --summarize-errors
	$(BIN)/pytest -n 2

pages: $(INSTALLED)  ## README.md, docs/results.md and their pictures, anew from results/
	$(BIN)/python docs/pages/render.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv runs report.html

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[development]'
	touch $@
