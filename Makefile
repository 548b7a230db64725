# A fresh machine needs Python 3.11+ and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

define CHECKS
$(BIN)/ruff check .
$(BIN)/ruff format --check .
$(BIN)/pyrefly check --summarize-errors
endef

.PHONY: demo test test-fast fuzz kills pages site format clean

demo: $(INSTALLED)  ## Five encodings meet sequences twice as long as they were trained on
	$(BIN)/lengthwise run quickstart --device cpu
	$(BIN)/lengthwise show runs/quickstart
	$(BIN)/lengthwise report runs/quickstart --out report.html

test: $(INSTALLED)  ## The whole test suite, with style and types
	$(CHECKS)
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2

# A file's tests stay together, so that what they share is made once.
test-fast: $(INSTALLED)  ## The same without the slow tests, in a minute and a half on two cores
	$(CHECKS)
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist loadfile -m 'not slow'

fuzz: $(INSTALLED)  ## Every hostile input there is, each in a process of its own
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz.py

kills: $(INSTALLED)  ## Every command that writes, killed at 200 random moments and run again
	OMP_NUM_THREADS=1 $(BIN)/python tests/killing.py

pages: $(INSTALLED)  ## Pages that are made: from results/, from the code, and the tutorial from what its commands print
	$(BIN)/python docs/pages/render.py
	$(BIN)/python docs/pages/reference.py
	$(BIN)/python docs/pages/tutorial.py

site: $(INSTALLED)  ## The documentation as a site in build/site; a link that leads nowhere is an error
	$(BIN)/python docs/pages/site.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist runs report.html

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[development]'
	touch $@
