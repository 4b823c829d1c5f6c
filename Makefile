# Tenon: `make up` tries it, `make test` tests it. `make help` lists the rest.
#
# Needed beforehand: Go. Everything else comes through package managers: Go modules, and Debian's packages for a C
# compiler (the race detector) and util-linux (lscpu, a second opinion on machines) where they are missing.

export GOWORK := off
# One set of flags for programs, tests, vet and lint, so that each package of Kubernetes is compiled once (and once more
# for the race detector); the paths that -trimpath leaves out let several clones share what is built.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
GO        ?= go
TAGS      := nomsgpack
BIN       := bin
TOOL      := $(GO) tool -modfile=go.tools.mod
BINARIES  := tenon tenon-scheduler tenon-agent tenon-manager tenon-runtime-proxy
# Packages whose tests need no control plane and no scheduler binary: the fast loop.
UNIT      := ./api/... ./internal/core/... ./internal/kube/... ./internal/agent/... ./internal/control/admission/... \
             ./internal/local/machine/... ./internal/local/kernel/... ./internal/archtest/... ./internal/testkit/... ./test/oracle ./test/bench/openb ./test/e2e/... ./hack/...
# Adapters that run goroutines: tested under the race detector.
RACE      := ./internal/kube/... ./internal/agent/... ./internal/control/... ./internal/local/kernel/... ./internal/local/simnode/... \
             ./internal/sched/...

.DEFAULT_GOAL := help
.PHONY: help build images release up down test unit race system alerts oracle oracle-short mutants soak verify lint bench generate clean \
        node-tools test-node test-guest test-cluster bench-agent bench-quota bench-gang bench-device ladder

help: ## List these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

build: ## Build the static binaries into bin/
	@GO="$(GO)" TAGS=$(TAGS) bash hack/build.sh $(BIN) $(addprefix ./cmd/,$(BINARIES))

images: ## Build OCI images of all programs into bin/images/
	@GO="$(GO)" bash hack/release.sh images

release: ## Build archives, SPDX documents and checksums into bin/release/
	@GO="$(GO)" bash hack/release.sh archives

bin/tenon: FORCE
	@GO="$(GO)" TAGS=$(TAGS) bash hack/build.sh $(BIN) ./cmd/tenon
FORCE:

up: bin/tenon ## Start a local cluster of simulated machines with the demo
	@$(BIN)/tenon up --detach --demo

down: ## Stop the local cluster and remove its data
	@if [ -x $(BIN)/tenon ]; then $(BIN)/tenon down --purge; else echo "nothing to stop: bin/tenon was never built"; fi

test: verify unit race system oracle-short alerts ladder ## Run every test for which the tools are built

unit: ## Run the fast tests: core, codecs, agent, store
	$(GO) test -tags $(TAGS) $(UNIT)
	@# Gangs: 100,000 orders of events. Devices: 100,000 nodes, each decided by brute force too.
	$(GO) test -run WholeOrNotAtAll ./internal/core/gang -rapid.checks=100000
	$(GO) test -run 'SetsAreAllThatIsFeasible|TheRestAreFoundTogether' ./internal/core/device ./internal/core/place -rapid.checks=100000
	$(GO) -C hack/tools/release test ./...

race: cc ## Run the adapters' tests under the race detector
	CGO_ENABLED=1 $(GO) test -tags $(TAGS) -race -short $(RACE)
	@# Interleavings of create, exit, crash and drift: rare ones need many cases. The seed is fixed (internal/testkit/seed);
	@# make soak searches further.
	$(GO) test -run NoInstant ./internal/agent/apply -rapid.checks=5000

system: bin/tenon ## Test scheduler, simulate, commands and the local cluster
	$(GO) test -tags $(TAGS) -timeout 30m ./internal/sched/... ./internal/control/... ./internal/sim/... ./internal/cli/... ./internal/local/... ./cmd/... ./deploy/... ./test/rights ./test/manifests ./test/chart
	$(GO) test -tags $(TAGS),nolocal ./cmd/tenon
	TENON_BIN=$(CURDIR)/$(BIN)/tenon $(GO) test -tags $(TAGS) -timeout 40m -v ./test/system/... ./test/badinput/...

# The alert rules, by Prometheus' own program. Without its service discoveries it takes 2 to 7 CPU-minutes to build, once.
alerts: ## Test the alert rules with promtool
	cd hack/tools/promtool && GOFLAGS="$(GOFLAGS) -tags=remove_all_sd" $(GO) tool promtool test rules tenon_test.yaml

# Tests of the agent on a real machine: docs/reference/testing.md. A level that has passed with the same tools on the same
# tree is not run again.
LEVEL := GO="$(GO)" TAGS=$(TAGS) bash hack/node/level.sh

ladder:
	@$(LEVEL) 2 3 4

node-tools: ## Build containerd, runc, CNI and kubelet (20 CPU-minutes once)
	@GO="$(GO)" bash hack/node/build.sh

test-node: node-tools ## Test agent and chart under a kubelet (root)
	@$(LEVEL) --need 3 4 6 fault

test-guest: ## Test the agent in virtual machines with QEMU
	@GO="$(GO)" bash hack/node/build.sh guest
	@$(LEVEL) --need 5

test-cluster: ## Test installation and upgrade on a cluster with a virtual machine (root)
	@GO="$(GO)" bash hack/node/build.sh guest
	@$(LEVEL) --need cluster

bench-agent: node-tools ## Measure what the agent costs (root)
	@$(LEVEL) --need bench

bench-quota: ## Measure what elastic quota costs (15 minutes)
	GO="$(GO)" TAGS=$(TAGS) bash test/bench/quota.sh

bench-gang: ## Measure gangs beside other schedulers (an hour)
	GO="$(GO)" TAGS=$(TAGS) bash test/bench/gang.sh

bench-device: ## Measure pods with GPUs beside plain pods (20 minutes)
	GO="$(GO)" TAGS=$(TAGS) bash test/bench/device.sh

# The tests that put our model of the kubelet beside the kubelet's own code.
ORACLE := $(GO) test -tags '$(TAGS) oracle' -count 1 -v -run 'TestAgreesWithTheKubelet|TestTheProgramsGiveKnownAnswers' ./test/oracle

oracle: ## Compare the kubelet model with four kubelets (an hour)
	$(ORACLE) -timeout 2h -oracle.minor 1.36 -oracle.states 1000000
	$(ORACLE) -timeout 1h -oracle.minor 1.35 -oracle.states 10000
	$(ORACLE) -timeout 1h -oracle.minor 1.34 -oracle.states 10000
	$(ORACLE) -timeout 1h -oracle.minor 1.33 -oracle.states 10000

mutants: ## 20 seeded faults of the kubelet's model, each of which the oracle must notice (half an hour)
	cd test/oracle/kubelet && $(GO) build -tags $(TAGS) -o $(abspath $(BIN))/oracle-kubelet .
	$(GO) test -tags '$(TAGS) oracle' -count 1 -v -timeout 10h -run TestMutantsAreKilled ./test/oracle -oracle.mutants -oracle.program $(abspath $(BIN))/oracle-kubelet

# A part of `oracle` that is the same every time.
oracle-short:
	$(ORACLE) -timeout 30m -oracle.minor 1.36 -oracle.states 20000 -oracle.seed 1

verify: ## Check format, lint, imports, texts, licences and vulnerabilities
	@TOOL="$(TOOL)" TAGS=$(TAGS) bash hack/verify.sh

soak: ## Search with fresh seeds and every fuzz target (hours)
	@GO="$(GO)" TAGS=$(TAGS) bash hack/soak.sh

lint: ## Run golangci-lint alone
	$(TOOL) golangci-lint run --allow-parallel-runners --build-tags $(TAGS)

bench: ## Benchmark the core and both schedulers (long)
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchtime 200ms ./internal/core/...
	cd test/bench/hint && $(GO) test -tags $(TAGS) -bench . -benchtime 100ms .
	bash test/bench/run.sh
	bash test/bench/schedperf.sh short

generate: ## Generate deep copies, CRDs and reference pages
	bash hack/generate.sh

clean: ## Remove built files
	rm -rf $(BIN)

.PHONY: cc
cc:
	@command -v gcc >/dev/null 2>&1 || bash hack/packages.sh gcc libc6-dev
