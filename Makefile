# Two commands do everything: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
DEMO := demo

.PHONY: conformance demo fuzz test check format docs sbom benchmarks clean

demo: .venv/.installed
	$(BIN)/python examples/digits.py $(DEMO)
	$(BIN)/ipj-edge convert examples/digits.py:build --weights $(DEMO)/digits.safetensors --input image:1x1x8x8 \
	    --output logits --labels $(DEMO)/digits.txt --preprocess $(DEMO)/digits.toml \
	    --calibration $(DEMO)/cal.npz --data $(DEMO)/test.npz --max-accuracy-drop 1pp \
	    --precision fp32 --precision int8 \
	    --target openvino-cpu --target onnxruntime-cpu --target tflite-cpu -o $(DEMO)/dist --force
	$(BIN)/ipj-edge bench $(DEMO)/dist/*.ipj --data $(DEMO)/test.npz --json $(DEMO)/result.json --force

test: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile

# As long as one wants: make fuzz CASES=1000000 SEED=7. What fails is kept, and the tests try it again.
CASES := 100000
SEED := 0
fuzz: .venv/.installed
	$(BIN)/python tests/fuzz/fuzz_run.py --cases $(CASES) --seed $(SEED)

# Every node test of onnx, the torch modules and the public architectures: about an hour on two cores.
conformance: .venv/.installed
	$(BIN)/python tests/conformance/conformance_run.py --report docs/conformance.md

check: .venv/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/.installed
	$(BIN)/python docs/schemas.py
	$(BIN)/python docs/rooms.py
	$(BIN)/python docs/dependencies.py

sbom: .venv/.installed
	mkdir -p build
	$(BIN)/python docs/dependencies.py sbom > build/sbom.cdx.json

benchmarks: .venv/.installed
	for script in $$(grep -l '^if __name__ == "__main__":' benchmarks/*/*.py | sed 's#/#.#g; s#\.py$$##'); do \
	    echo "== $$script"; $(BIN)/python -m $$script || exit 1; done

# torch is named with its exact version, so that pip takes the build that constraints.txt was made with.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ipj-edge converts with Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0 -e '.[all]'
	touch $@

clean:
	rm -rf .venv $(DEMO) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
