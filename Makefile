# Tenon: `make up` tries it, `make test` tests it. `make help` lists the rest.
#
# Needed beforehand: Go. Everything else comes through package managers: Go modules, and Debian's packages for a C
# compiler (the race detector) and util-linux (lscpu, a second opinion on machines) where they are missing.

export GOWORK := off
GO        ?= go
TAGS      := nomsgpack
BIN       := bin
TOOL      := $(GO) tool -modfile=go.tools.mod
BINARIES  := tenon tenon-scheduler tenon-agent tenon-manager tenon-runtime-proxy
# Packages whose tests need no control plane and no scheduler binary: the fast loop.
UNIT      := ./api/... ./internal/core/... ./internal/kube/... ./internal/agent/... ./internal/control/admission/... \
             ./internal/local/machine/... ./internal/local/kernel/... ./internal/archtest/... ./test/oracle ./hack/node/...
# Adapters that run goroutines: tested under the race detector.
RACE      := ./internal/kube/... ./internal/agent/... ./internal/control/... ./internal/local/kernel/... ./internal/local/simnode/... \
             ./internal/sched/...

.DEFAULT_GOAL := help
.PHONY: help build image up down test unit race system oracle oracle-short soak verify lint bench generate clean \
        node-tools test-node test-guest bench-agent ladder

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

build: ## the binaries, static, in bin/
	@mkdir -p $(BIN)
	@echo "building (the first time compiles Kubernetes: about 5 CPU-minutes)"
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -trimpath -ldflags '-s -w' -o $(BIN)/ $(addprefix ./cmd/,$(BINARIES))

image: ## the agent as an image, bin/tenon-agent-ARCH.tar, without a container engine
	@mkdir -p $(BIN)
	@GO="$(GO)" bash hack/image/build.sh

bin/tenon: FORCE
	@mkdir -p $(BIN)
	@[ -x $(BIN)/tenon ] || echo "building bin/tenon (the first time compiles Kubernetes: about 5 CPU-minutes)"
	@CGO_ENABLED=0 $(GO) build -tags $(TAGS) -trimpath -ldflags '-s -w' -o $(BIN)/tenon ./cmd/tenon
FORCE:

up: bin/tenon ## a local cluster of simulated machines, with the demo
	@$(BIN)/tenon up --detach --demo

down: ## stop the local cluster and remove its data
	@if [ -x $(BIN)/tenon ]; then $(BIN)/tenon down --purge; else echo "nothing to stop: bin/tenon was never built"; fi

test: verify unit race system oracle-short ladder ## every test that needs no further tools, and levels 3 and 4 once they are built

unit: ## the fast loop: the core, codecs, agent, store (under a minute when warm)
	$(GO) test -tags $(TAGS) $(UNIT)

race: cc ## adapters under the race detector
	CGO_ENABLED=1 $(GO) test -tags $(TAGS) -race -short $(RACE)
	@# Interleavings of create, exit, crash and drift: rare ones need many tries. The seed is fixed, so that a change is
	@# judged by itself; make soak searches further.
	$(GO) test -run NoInstant ./internal/agent/apply -rapid.checks=5000 -rapid.seed=1

system: bin/tenon ## scheduler, simulate, command line and the whole system on a local cluster
	$(GO) test -tags $(TAGS) -timeout 30m ./internal/sched/... ./internal/control/... ./internal/sim/... ./internal/cli/... ./internal/local/... ./cmd/... ./deploy/... ./test/rights ./test/manifests
	TENON_BIN=$(CURDIR)/$(BIN)/tenon $(GO) test -tags $(TAGS) -timeout 40m -v ./test/system/... ./test/badinput/...

# Tests of the agent on a real machine: docs/reference/testing.md. A level that has passed with the same tools on the same
# tree is not run again.
LEVEL := GO="$(GO)" TAGS=$(TAGS) bash hack/node/level.sh

ladder:
	@$(LEVEL) 2 3 4

node-tools: ## containerd, runc, CNI and kubelet for test-node, from source (the first time about 20 CPU-minutes)
	@GO="$(GO)" bash hack/node/build.sh

test-node: node-tools ## the agent under a real containerd and a real kubelet, and faults (root)
	@$(LEVEL) --need 3 4 fault

test-guest: ## the agent in virtual machines with NUMA and cgroup v2 (QEMU)
	@GO="$(GO)" bash hack/node/build.sh guest
	@$(LEVEL) --need 5

bench-agent: node-tools ## what the agent costs, beside a runtime without it (root; see docs/reference/performance.md)
	@$(LEVEL) --need bench

# The tests that put our model of the kubelet beside the kubelet's own code.
ORACLE := $(GO) test -tags '$(TAGS) oracle' -count 1 -v -run 'TestAgreesWithTheKubelet|TestTheProgramsGiveKnownAnswers' ./test/oracle

oracle: ## our model of the kubelet against the kubelet: 1,000,000 admissions of 1.36, 10,000 of 1.35, 1.34 and 1.33 (an hour)
	$(ORACLE) -timeout 2h -oracle.minor 1.36 -oracle.states 1000000
	$(ORACLE) -timeout 1h -oracle.minor 1.35 -oracle.states 10000
	$(ORACLE) -timeout 1h -oracle.minor 1.34 -oracle.states 10000
	$(ORACLE) -timeout 1h -oracle.minor 1.33 -oracle.states 10000

# A part of `oracle` that is the same every time.
oracle-short:
	$(ORACLE) -timeout 30m -oracle.minor 1.36 -oracle.states 20000 -oracle.seed 1

verify: ## format, lint, law, generated code, module graph, licences, known vulnerabilities
	@TOOL="$(TOOL)" TAGS=$(TAGS) bash hack/verify.sh

soak: ## property tests with fresh seeds, a hundred times as many tries as make test
	for p in $$($(GO) list -tags $(TAGS) -f '{{range .XTestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}} {{end}}{{end}}' ./api/... ./internal/core/... ./internal/agent/... ./internal/kube/...); do \
	  $(GO) test -tags $(TAGS) -timeout 2h $$p -rapid.checks=10000 || exit 1; done
	$(GO) test -timeout 2h -run NoInstant ./internal/agent/apply -rapid.checks=100000

lint: ## golangci-lint alone
	$(TOOL) golangci-lint run --allow-parallel-runners --build-tags $(TAGS)

bench: ## core benchmarks, then stock kube-scheduler against tenon-scheduler (long; see docs/reference/performance.md)
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchtime 200ms ./internal/core/...
	cd test/bench/hint && $(GO) test -tags $(TAGS) -bench . -benchtime 100ms .
	bash test/bench/run.sh
	bash test/bench/schedperf.sh short

generate: ## deepcopy functions, CRDs, reference pages
	bash hack/generate.sh

clean: ## remove built files
	rm -rf $(BIN)

.PHONY: cc
cc:
	@command -v gcc >/dev/null 2>&1 || bash hack/packages.sh gcc libc6-dev
