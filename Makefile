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
BINARIES  := tenon tenon-scheduler tenon-agent tenon-manager tenon-descheduler tenon-runtime-proxy
# One set of flags for all tests, so that what one target has tested is cached for the others. `make verify` vets.
TEST      := $(GO) test -tags $(TAGS) -vet=off -timeout 30m $(VERBOSE)
# The fast loop: what needs no Kubernetes scheduler, no containers and no local machines.
UNIT      := ./api/annotation ./api/config/... ./api/device/... ./api/event ./api/nearest ./api/node/... ./api/nodeinfo/... \
             ./api/runtime/... ./api/scheduling/... ./api/slo/... ./internal/agent/... ./internal/control/admission \
             ./internal/core/... ./internal/kube/... ./internal/progress ./internal/testkit/... ./internal/view ./test/oracle ./web
SYSTEM    := ./cmd/... ./internal/cli ./internal/console ./internal/control/app ./internal/control/certificate ./internal/control/devicecapacity ./internal/control/nodescaling ./internal/control/nodestrategy ./internal/control/scalehelper \
             ./internal/control/gangstatus ./internal/control/grouping ./internal/control/quotaprofile ./internal/control/quotarevoke \
             ./internal/control/quotastatus ./internal/control/webhook ./internal/desched/... ./internal/local/... ./internal/sched/... ./internal/sim \
             ./test/bench/openb ./test/bench/results ./test/e2e/... ./test/mutant ./test/rights
# Tests that start programs or read more than Go's cache of test results knows: never cached.
UNCACHED  := ./api/version ./deploy ./hack/... ./internal/archtest ./test/manifests
# Whole clusters, and Helm: targets of their own.
CLUSTERS  := ./test/badinput ./test/system
CHART     := ./test/chart
ONCE      := GO="$(GO)" bash hack/once.sh
SEARCH    := WholeOrNotAtAll|SetsAreAllThatIsFeasible|TheRestAreFoundTogether
# The packages that start goroutines, in the program or in its tests: tested under the race detector.
RACE       = $(sort $(dir $(shell grep -rlE --include='*.go' '^[[:space:]]+go [a-z]|[.]Go[^[:alnum:]_]' $(addprefix internal/,$(RACED)))))
RACED     := agent control desched kube local/simnode sched

.DEFAULT_GOAL := help
.PHONY: help build images release push up down recording test unit race system packages clusters times alerts search kills nightly oracle oracle-short mutants soak verify lint bench generate clean \
        node-tools test-node test-guest test-cluster test-compat test-karpenter test-console bench-agent bench-quota bench-gang bench-device bench-reservation ladder

help: ## List these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

build: ## Build the static binaries into bin/
	@GO="$(GO)" TAGS=$(TAGS) bash hack/build.sh $(BIN) $(addprefix ./cmd/,$(BINARIES))

images: ## Build OCI images of all programs into bin/images/
	@GO="$(GO)" bash hack/release.sh images

release: ## Build archives, SPDX documents and checksums into bin/release/
	@GO="$(GO)" bash hack/release.sh archives

push: images ## Push images and chart to REGISTRY, and print how to install them
	@GO="$(GO)" bash hack/release.sh push

bin/tenon: FORCE
	@GO="$(GO)" TAGS=$(TAGS) bash hack/build.sh $(BIN) ./cmd/tenon
FORCE:

up: bin/tenon ## Start a local cluster of simulated machines with the demo
	@$(BIN)/tenon up --detach --demo --console 127.0.0.1:0

down: ## Stop the local cluster and remove its data
	@if [ -x $(BIN)/tenon ]; then $(BIN)/tenon down --purge --data "$$HOME/.tenon"; else echo "nothing to stop: bin/tenon was never built"; fi

recording: bin/tenon ## Record the animation of the README anew (a minute)
	@data=$$(mktemp -d) && trap '$(BIN)/tenon down --purge --data '"$$data" EXIT && $(BIN)/tenon up --detach --demo --data "$$data" && \
	PATH="$(CURDIR)/$(BIN):$$PATH" KUBECONFIG="$$data/kubeconfig" $(GO) run ./hack/record docs/demo.svg \
	  'tenon explain pod/cannot-fit' 'tenon topology node/epyc-2s-0' 'tenon top gpu' 'tenon quota --rounds'

# Clusters and levels wait more than they compute: they run beside each other, and each shows its output when it has ended;
# what failed in both comes last.
test: verify unit race search packages oracle-short alerts ## Run every test for which the tools are built
	@rm -f $(BIN)/failed.log
	@$(MAKE) --no-print-directory -j2 --output-sync=target clusters ladder || { cat $(BIN)/failed.log; exit 1; }

times: ## Measure how long each target and its slow tests take
	@bash hack/times.sh

unit: ## Run the fast tests: core, codecs, agent, store
	$(TEST) $(UNIT)

race: cc ## Run the tests of packages that start goroutines under the race detector
	CGO_ENABLED=1 $(TEST) -race -short $(addprefix ./,$(RACE))

# Rare orders of events need many cases. Each search here is the same every time, and short; make soak searches further.
search:
	@$(ONCE) search-core go.mod internal/core internal/testkit -- $(TEST) -run '$(SEARCH)' $(addprefix ./internal/core/,device gang place) -rapid.checks=10000
	@$(ONCE) search-agent go.mod api internal -- $(TEST) -run NoInstant ./internal/agent/apply -rapid.checks=5000

# The program of tests is where the pages have it, with a constant version: a commit does not link it anew.
.PHONY: tested-program
tested-program:
	@VERSION=devel GO="$(GO)" TAGS=$(TAGS) bash hack/build.sh $(BIN) ./cmd/tenon

system: packages clusters ## Test scheduler, simulate, commands and the local cluster

packages:
	$(TEST) $(SYSTEM)
	$(TEST) -count=1 $(UNCACHED)
	@$(ONCE) chart go.mod go.sum deploy docs hack/tools/helm test/chart internal api -- $(TEST) -count=1 $(CHART)
	$(GO) -C hack/tools/release test -count=1 ./...
	$(GO) test -tags $(TAGS),nolocal -vet=off ./cmd/tenon

# Two clusters beside each other, and the ladder beside them, keep two cores busy: with four, leases and waits run out.
clusters: tested-program
	@TENON_BIN=$(CURDIR)/$(BIN)/tenon bash hack/shortly.sh $(BIN)/clusters.log $(TEST) -timeout 60m -count=1 -v -parallel 2 $(CLUSTERS)

# The alert rules, by Prometheus' own program. Without its service discoveries it takes 2 to 7 CPU-minutes to build, once.
alerts: ## Test the alert rules with promtool
	@$(ONCE) alerts deploy hack/tools/promtool -- env -C hack/tools/promtool GOFLAGS="$(GOFLAGS) -tags=remove_all_sd" $(GO) tool promtool test rules tenon_test.yaml

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

test-compat: tested-program ## Test on the API servers of Kubernetes 1.33 to 1.37
	@TENON_BIN=$(CURDIR)/$(BIN)/tenon GO="$(GO)" TAGS=$(TAGS) bash hack/compat.sh 1.33 1.34 1.35 1.36 1.37

test-karpenter: tested-program ## Let Karpenter add nodes to a local cluster, where they help
	@TENON_BIN=$(CURDIR)/$(BIN)/tenon GO="$(GO)" TAGS=$(TAGS) bash hack/karpenter.sh

test-console: bin/tenon ## Click through the console in Chromium (a minute)
	@command -v chromium >/dev/null 2>&1 || bash hack/packages.sh chromium fonts-dejavu-core fonts-noto-cjk
	@command -v npm >/dev/null 2>&1 || bash hack/packages.sh npm
	npm ci --silent --prefix test/console
	TENON=$(CURDIR)/$(BIN)/tenon $(GO) -C test/console test -count=1 -timeout 15m $(VERBOSE) .

bench-agent: node-tools ## Measure what the agent costs (root)
	@$(LEVEL) --need bench

bench-quota: ## Measure what elastic quota costs (15 minutes)
	GO="$(GO)" TAGS=$(TAGS) bash test/bench/quota.sh

bench-gang: ## Measure gangs beside other schedulers (an hour)
	GO="$(GO)" TAGS=$(TAGS) bash test/bench/gang.sh

bench-device: ## Measure pods with GPUs beside plain pods (20 minutes)
	GO="$(GO)" TAGS=$(TAGS) bash test/bench/device.sh

bench-reservation: ## Measure what Reservations cost other pods (6 minutes)
	GO="$(GO)" TAGS=$(TAGS) bash test/bench/reservation.sh

# The tests that put our model of the kubelet beside the kubelet's own code.
ORACLE := $(GO) test -tags '$(TAGS) oracle' -count 1 -v -run 'TestAgreesWithTheKubelet|TestTheProgramsGiveKnownAnswers' ./test/oracle

oracle: ## Compare the kubelet model with five kubelets (two hours)
	$(ORACLE) -timeout 2h -oracle.minor 1.37 -oracle.states 1000000
	$(ORACLE) -timeout 2h -oracle.minor 1.36 -oracle.states 1000000
	$(ORACLE) -timeout 1h -oracle.minor 1.35 -oracle.states 10000
	$(ORACLE) -timeout 1h -oracle.minor 1.34 -oracle.states 10000
	$(ORACLE) -timeout 1h -oracle.minor 1.33 -oracle.states 10000

mutants: ## Put 400 faults into files that decide, each of which a test must notice (hours)
	$(GO) run ./test/mutant

oracle-mutants: ## 23 seeded faults of the kubelet's model, each of which the oracle must notice (half an hour)
	cd test/oracle/kubelet && $(GO) build -tags $(TAGS) -o $(abspath $(BIN))/oracle-kubelet .
	$(GO) test -tags '$(TAGS) oracle' -count 1 -v -timeout 10h -run TestMutantsAreKilled ./test/oracle -oracle.mutants -oracle.program $(abspath $(BIN))/oracle-kubelet

# A part of `oracle` that is the same every time.
oracle-short:
	@$(ONCE) oracle-short go.mod api internal/core internal/kube/convert test/oracle -- $(ORACLE) -timeout 30m -oracle.minor 1.37 -oracle.states 20000 -oracle.seed 1

verify: ## Check format, lint, imports, texts, licences and vulnerabilities
	@TOOL="$(TOOL)" TAGS=$(TAGS) bash hack/verify.sh

soak: ## Search with fresh seeds, fuzz and kill (hours)
	@GO="$(GO)" TAGS=$(TAGS) bash hack/soak.sh
	@$(MAKE) kills

# Schedulers and managers are killed 20 times where `make test` kills them 6 times, and more pods meet more kubelets.
kills: tested-program
	TENON_BIN=$(CURDIR)/$(BIN)/tenon $(TEST) -timeout 2h -count=1 -v -parallel 1 -run 'Die$$|UnderConcurrency$$' ./test/system -soak

nightly: cc tested-program ## Race all tests, kill, run all levels and a million states (a night)
	CGO_ENABLED=1 $(TEST) -timeout 6h -race ./...
	@$(MAKE) kills test-node test-guest test-cluster oracle

lint: ## Run golangci-lint alone
	$(TOOL) golangci-lint run --allow-parallel-runners --build-tags $(TAGS)

bench: ## Benchmark the core and both schedulers (long)
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchtime 200ms ./internal/core/...
	cd test/bench/hint && $(GO) test -tags $(TAGS) -bench . -benchtime 100ms .
	bash test/bench/run.sh
	bash test/bench/run.sh --suite backlog
	bash test/bench/run.sh --suite workloads
	bash test/bench/run.sh --suite claims --nodes 1000
	bash test/bench/run.sh --suite workloads --nodes 50000 --cases f50 --rounds 1 --limit 20m
	bash test/bench/run.sh --suite start
	bash test/bench/schedperf.sh short

generate: ## Generate deep copies, CRDs and reference pages
	bash hack/generate.sh

clean: ## Remove built files
	rm -rf $(BIN)

.PHONY: cc
cc:
	@command -v gcc >/dev/null 2>&1 || bash hack/packages.sh gcc libc6-dev
