# Needs Python 3.11 or newer with pip, Java 17 and make; everything else is fetched on first use.
.DEFAULT_GOAL := help
.PHONY: help demo test quick thorough connect bench figures simulate faults check format setup jars jar-lock release image sbom audit screenshots site clean

UV_VERSION := 0.13.8
PYTHON ?= python3
# uv from the PATH if there is one, else a private one under .uv.
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
RUN := .venv/bin
# Hundreds of processes start in the tests: where the environment says that none may keep its bytecode, each compiles
# all that it imports, three seconds of CPU for a service.
unexport PYTHONDONTWRITEBYTECODE
DIST ?= dist
SITE ?= site
OSV ?= https://api.osv.dev
VERSION := $(shell sed -nE 's/^version = "(.*)"/\1/p' pyproject.toml)

help:  ## Show what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: setup  ## Run the main job on an embedded broker and check its output (under 4 minutes)
	$(RUN)/backfill demo $(ARGS)

test: setup jars  ## Run the tests (ARGS="..." goes to pytest)
	$(RUN)/pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

quick: setup jars  ## Run the tests that start neither Spark nor a broker
	HYPOTHESIS_PROFILE=quick $(RUN)/pytest -n 2 --dist worksteal -m "not spark and not kafka and not slow and not thorough and not faults and not connect" $(ARGS)

thorough: setup jars  ## Run the cases that `test` leaves out: further forms, upstreams, troubles; five minutes
	$(RUN)/pytest -m thorough -n 3 --dist loadfile $(ARGS)

faults: setup jars  ## Kill a real service at every point between effects, and more; an hour or two
	$(RUN)/pytest -m faults -n 2 --dist load $(ARGS)

connect: setup jars  ## Run the tests against real PostgreSQL, MariaDB, Kafka Connect and a schema registry (fetches 280 MB once)
	$(RUN)/pytest -m connect $(ARGS)

bench: setup jars  ## Measure (CASE="snapshot live", all by default; ARGS="--repeat 3"; ARGS=--help names the cases)
	$(RUN)/python -m tests.bench $(CASE) $(ARGS)

figures: setup  ## Write the tables and plots of docs/ anew from docs/bench
	$(RUN)/python -m tests.bench.report.page

simulate: setup  ## Play every crash, hand-over and canary, and random histories (SEEDS=100000); or show one (SEED=123)
	$(RUN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)) $(if $(SEED),--seed $(SEED)) \
		$(if $(CRASHES),--crashes $(CRASHES)) $(if $(HANDOVER),--hand-over $(HANDOVER)) $(if $(ORDER),--order $(ORDER)) \
		$(if $(READING),--reading) $(if $(EXTENTS),--extents) $(if $(DEATHS),--deaths)

check: setup  ## Lint, check the format and the types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

format: setup  ## Format, and repair what the linter can
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

setup: .venv/.locked  ## Make .venv from uv.lock

jars: setup  ## Fetch the jars, checked against their digests, and rehearse a start
	@$(RUN)/backfill prepare

jar-lock: setup  ## For maintainers: resolve the roots of both jars.toml again
	$(RUN)/python -m tests.release.jar_lock
	$(RUN)/python -m tests.release.jar_lock tests/kit/connect/jars.toml

# Without network: uv_build is part of uv itself, and the lock files have every digest.
release: setup  ## Build wheel, source archive, SBOM, image and checksums into dist/ (DIST=folder)
	@mkdir -p $(DIST) && rm -f $(DIST)/*
	$(UV) build --quiet --out-dir $(DIST)
	@rm -f $(DIST)/.gitignore
	@$(MAKE) --no-print-directory sbom > $(DIST)/arrangement-backfill-$(VERSION).cdx.json
	@if docker info > /dev/null 2>&1; then $(MAKE) --no-print-directory image; \
		else echo "No image: there is no Docker engine to build it with." >&2; fi
	@cd $(DIST) && sha256sum -- * > SHA256SUMS && cat SHA256SUMS

image:  ## Build the image (PLATFORM=linux/arm64 for another architecture than this machine's)
	docker build $(if $(PLATFORM),--platform $(PLATFORM)) --file docker/Dockerfile --tag arrangement-backfill:$(VERSION) .

sbom: setup  ## Print the bill of materials, CycloneDX: Python packages and jars, from the lock files
	@$(UV) export --quiet --frozen --no-dev --extra traces --format cyclonedx1.5 --preview-features sbom-export \
		| $(RUN)/python -m tests.release.sbom

audit: setup  ## Ask OSV for advisories about all that is in the bill of materials (OSV=another server of its API)
	@status=0; $(UV) audit --frozen --no-default-groups --preview-features audit-command --service-url $(OSV) || status=1; \
		$(RUN)/python -m tests.release.audit $(OSV) && exit $$status

# In an environment of its own: what it takes shares no package with what is tested.
screenshots: setup jars  ## Take the pictures of the status page in docs/images again (needs Chromium)
	$(RUN)/python -m tests.kit.screenshots

site: $(UV)  ## Make the site from docs/ (SITE=folder)
	@NO_MKDOCS_2_WARNING=1 $(UV) run --quiet --frozen --isolated --only-group site \
		mkdocs build --strict --config-file docs/site/mkdocs.yml --site-dir "$(abspath $(SITE))"
	@echo "$(SITE)/index.html"

clean:  ## Delete what was made here (fetched jars stay in the user's cache)
	rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/.locked: uv.lock pyproject.toml $(UV)
	$(UV) sync --frozen --quiet
	@touch $@

# pip's --target works where Debian's Python has no ensurepip and refuses to install into the system.
.uv/bin/uv:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target .uv uv==$(UV_VERSION)
