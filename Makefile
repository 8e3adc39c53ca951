# Every target is what CI runs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# One set of compiler flags for build, lint and tests without the race detector:
# a second set would compile every dependency again.
export CGO_ENABLED ?= 0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)

BIN        := .bin
DATA       ?= .data
LISTEN     ?= 127.0.0.1:8443
READY_FILE := $(DATA)/ready.json
REPORTS    := .cache/reports
CLAUSE_DIR := $(CURDIR)/.cache/clauses

# Tools of the Go module in tools/, built once a machine and version.
TOOL_BIN  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/poppyfield/bin
toolver    = $(shell awk '$$1 == "$(1)" && NF > 1 { print $$2; exit }' tools/go.mod)
GOLANGCI  := $(TOOL_BIN)/golangci-lint-$(call toolver,github.com/golangci/golangci-lint/v2)
GOTESTSUM := $(TOOL_BIN)/gotestsum-$(call toolver,gotest.tools/gotestsum)
BUF       := tools/node_modules/.bin/buf
GOTEST    := $(GOTESTSUM) --format pkgname-and-test-fails --hide-summary=skipped

# Packages with tests that need a built binary or another runtime run by themselves.
APART     := /test/interop|/test/browser|/test/backends|/test/fault|/test/e2e|/test/bench|/test/gateways
PACKAGES   = $$(go list ./... | grep -v -E '($(APART))($$|/)')

FUZZTIME  ?= 10s
BENCHTIME ?= 1s
READERS   ?= 19000

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*##" } \
	  /^##@/ { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) } \
	  /^[a-zA-Z0-9_-]+:.*##/ { printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: tools ## Install what is missing: PostgreSQL's binaries (apt), node packages, tools.
	@tools/setup.sh
	@$(MAKE) test/interop/node_modules/.package-lock.json test/browser/node_modules/.package-lock.json test/backends/node_modules/.package-lock.json sdk/ts/node_modules/.package-lock.json

.PHONY: tools
tools: $(GOLANGCI) $(GOTESTSUM) tools/node_modules/.package-lock.json ## Build the tools into the user's cache.

##@ Build and run

.PHONY: build
build: ## Build .bin/poppyfield.
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/poppyfield ./services/poppyfield

.PHONY: run
run: build ## Build and start everything with a demo Company; data in .data.
	@mkdir -p $(DATA)
	$(BIN)/poppyfield dev --data-dir $(DATA) --listen $(LISTEN) --ready-file $(READY_FILE)

.PHONY: clean
clean: ## Remove what was built and the data of `make run`.
	rm -rf $(BIN) $(DATA) .cache sdk/ts/dist

##@ Generate

.PHONY: generate
generate: generate-proto generate-ent generate-vectors ## Generate Go, TypeScript and OpenAPI from the protos, ent from its schema, and the test vectors.

.PHONY: generate-proto
generate-proto: tools/node_modules/.package-lock.json ## Generate Go, TypeScript and OpenAPI from proto/.
	$(BUF) generate
	$(BUF) generate --template buf.gen.openapi.yaml
	$(BUF) generate --template buf.gen.ts.yaml

.PHONY: generate-ent
generate-ent: ## Generate ent from ent/schema.
	cd ent && go run gen.go

.PHONY: generate-vectors
generate-vectors: ## Generate the test vectors of the SDKs.
	go run ./sdk/vectors/generate

.PHONY: migrate-new
migrate-new: ## Write a migration for each database from the schema: make migrate-new NAME=add_x.
	@test -n "$(NAME)" || { echo "usage: make migrate-new NAME=what_changes" >&2; exit 2; }
	go run ./test/pgtest/with go run ./ent/migrate/diff $(NAME)

.PHONY: verify
verify: ## Fail when generated code differs from its sources.
	@tools/verify-generated.sh

##@ Check

.PHONY: test
test: setup verify lint build test-race test-whole spec-report ## Install what is missing and run every check that CI runs.

.PHONY: test-unit
test-unit: $(GOTESTSUM) ## Run the tests without the race detector.
	$(GOTEST) -- $(PACKAGES)

.PHONY: test-race
test-race: $(GOTESTSUM) ## Run the tests on SQLite and PostgreSQL with the race detector; records clauses.
	@mkdir -p $(REPORTS) && rm -rf $(CLAUSE_DIR) && mkdir -p $(CLAUSE_DIR)
	CGO_ENABLED=1 POPPYFIELD_CLAUSE_DIR=$(CLAUSE_DIR) \
	  $(GOTEST) --junitfile $(REPORTS)/race.xml -- -race -count=1 -timeout 15m $(PACKAGES)

.PHONY: test-whole
test-whole: build $(GOTESTSUM) test/interop/node_modules/.package-lock.json test/browser/node_modules/.package-lock.json test/backends/node_modules/.package-lock.json sdk/ts/node_modules/.package-lock.json ## Drive the built binary: end to end, foreign clients, a browser, kill tests.
	@mkdir -p $(REPORTS) $(CLAUSE_DIR)
	POPPYFIELD_BIN=$(CURDIR)/$(BIN)/poppyfield POPPYFIELD_CLAUSE_DIR=$(CLAUSE_DIR) \
	  $(GOTEST) --junitfile $(REPORTS)/whole.xml -- -count=1 -p 1 -timeout 15m \
	  $$(go list ./test/... | grep -E '($(APART))($$|/)')

.PHONY: spec-report
spec-report: ## Say which clauses of the specification have a passing test; uses the records of the last test run.
	@test -d $(CLAUSE_DIR) || { echo "no records yet: run make test-race test-whole first" >&2; exit 1; }
	go run ./test/specreport -records $(CLAUSE_DIR)

.PHONY: lint
lint: lint-go lint-proto ## Run all linters.

.PHONY: lint-go
lint-go: $(GOLANGCI) ## Lint the Go code.
	$(GOLANGCI) run ./...

.PHONY: lint-proto
lint-proto: tools/node_modules/.package-lock.json ## Lint the protos and compare them with proto/baseline.binpb.
	$(BUF) lint
	$(BUF) breaking proto --against proto/baseline.binpb

.PHONY: proto-baseline
proto-baseline: tools/node_modules/.package-lock.json ## Accept the protos of now as what later ones must stay compatible with.
	$(BUF) build proto --as-file-descriptor-set --exclude-source-info -o proto/baseline.binpb

.PHONY: fmt
fmt: $(GOLANGCI) tools/node_modules/.package-lock.json ## Format Go and protos.
	$(GOLANGCI) fmt ./...
	$(BUF) format -w proto

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (10s).
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: build ## Run the benchmarks and print them beside this machine's own floor.
	@go run ./test/benchreport -benchtime $(BENCHTIME)

.PHONY: bench-readers
bench-readers: build ## Measure the memory of READERS (19000) waiting readers and how fast events reach them; takes four minutes.
	@POPPYFIELD_BIN=$(CURDIR)/$(BIN)/poppyfield POPPYFIELD_BENCH_READERS=$(READERS) go test ./test/readers -count=1 -v -timeout 8m

.PHONY: bench-verify
bench-verify: build ## Measure how many requests to APIs are judged a second, by each way, beside the ceiling of ES256; takes half a minute.
	@POPPYFIELD_BIN=$(CURDIR)/$(BIN)/poppyfield POPPYFIELD_BENCH_VERIFY=1 go test ./test/verifybench -count=1 -v -timeout 5m

.PHONY: bench-relay
bench-relay: ## Measure whole turns on a durable PostgreSQL beside what its disk gives; takes two minutes. RELAY_JSON=file keeps the figures, RELAY_PROFILE=file a CPU profile.
	@POPPYFIELD_BENCH_RELAY=1 POPPYFIELD_BENCH_RELAY_JSON=$(abspath $(RELAY_JSON)) POPPYFIELD_BENCH_RELAY_PROFILE=$(abspath $(RELAY_PROFILE)) \
	  go test ./test/relaybench -count=1 -v -timeout 8m

# Files

$(GOLANGCI):
	@tools/build-tool.sh $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(GOTESTSUM):
	@tools/build-tool.sh $@ gotest.tools/gotestsum

tools/node_modules/.package-lock.json: tools/package-lock.json
	cd tools && npm ci --ignore-scripts --silent
	@touch $@

test/interop/node_modules/.package-lock.json: test/interop/package-lock.json
	cd test/interop && npm ci --ignore-scripts --silent
	@touch $@

test/browser/node_modules/.package-lock.json: test/browser/package-lock.json
	cd test/browser && npm ci --ignore-scripts --silent
	@touch $@

test/backends/node_modules/.package-lock.json: test/backends/package-lock.json
	cd test/backends && npm ci --ignore-scripts --silent
	@touch $@

sdk/ts/node_modules/.package-lock.json: sdk/ts/package-lock.json
	cd sdk/ts && npm ci --ignore-scripts --silent
	@touch $@
