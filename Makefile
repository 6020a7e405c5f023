# Every target runs offline once its tools have been fetched, but for e2e.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build install dist reproduce demo picture test race chaos notices neighbours check fuzz bench soak e2e e2e-systemd cover clean

OUT     ?= bin/holdline
VERSION ?= $(shell v=$$(git describe --tags --dirty 2>/dev/null) && echo $${v\#v} || echo 0.1.0-dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
# Both programs have one build id: by it holdline knows that holdline-stdio is of its build.
LDFLAGS  = -s -w -buildid=holdline/$(VERSION)/$(COMMIT) \
	-X holdline/cmd/holdline/cmdenv.Version=$(VERSION) -X holdline/cmd/holdline/cmdenv.Commit=$(COMMIT)
SMALL    = $(dir $(OUT))holdline-stdio
FUZZTIME ?= 200000x
CHAOS   ?= 60s
SEED    ?=
HOSTILE ?= 1
BENCH   ?=
SOAK    ?= 10m
SESSIONS ?= 1000
PKG     ?= ./...
RUN     ?=
FLAGS   ?=
DIST    ?= dist
# The tests of whole processes wait more than they work, as do some packages: one package more than
# there are processors runs at a time. Under the race detector all of them work.
ATONCE   = -parallel 12 -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Tests compile packages as the program does, so that both share them; check vets them.
TEST     = go test -trimpath -vet=off
E2E      = $(shell grep -rl --include='*_test.go' '^func TestE2E' cmd daemon | xargs -n 1 dirname | sort -u | sed 's|^|./|')

# Tools by exact version; none of them is in go.mod. Without -trimpath, lint and go fix would not use in
# one clone what they have found in another.
GOFUMPT  = go run mvdan.cc/gofumpt@v0.12.0
LINT     = GOFLAGS="$$(go env GOFLAGS) -trimpath" CGO_ENABLED=0 go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DEADCODE = go run golang.org/x/tools/cmd/deadcode@v0.52.0

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1 /p' $(MAKEFILE_LIST) | awk '{ \
		line = sprintf("%-11s", $$1); \
		for (i = 2; i <= NF; i++) { if (length(line " " $$i) > 80) { print line; line = sprintf("%11s", "") } line = line " " $$i } \
		print line }'

build: ## build bin/holdline, and holdline-stdio and holdline-top beside it (OUT=path, VERSION=1.2.3)
	@mkdir -p "$$(dirname $(OUT))"
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(OUT) ./cmd/holdline
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(SMALL) ./cmd/holdline-stdio
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(dir $(OUT))holdline-top ./cmd/holdline-top

install: build ## build, then holdline install --bin: into ~/.local/bin (FLAGS=--systemd, FLAGS=--dry-run)
	$(OUT) install --bin $(FLAGS)

# Every file in an archive has the time of the commit.
dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
dist: ## archives for linux and macOS with man pages, completions and SHA256SUMS in dist/ (VERSION=1.2.3)
	go run ./cmd/dist -out $(DIST) -version $(VERSION) -commit "$(COMMIT)"

reproduce: ## build an archive in two places, once from nothing: they have to be the same
	HOLDLINE_DIST=1 go test -v -count=1 -timeout 20m -run '^TestArchive$$' ./cmd/dist

demo: build ## show the main job in under a minute, for free (REAL=1 uses your login)
	go run ./cmd/demo -bin $(OUT) $(if $(REAL),-real)

picture: build ## record the demo and holdline top for the README: contrib/doc/demo.svg, top.svg
	go run ./cmd/demo -bin $(OUT) > bin/demo.txt
	go run ./cmd/picture < bin/demo.txt > bin/demo.svg
	mv bin/demo.svg contrib/doc/demo.svg
	go run ./cmd/demo -bin $(OUT) -top > bin/top.txt
	go run ./cmd/picture -screen < bin/top.txt > bin/top.svg
	mv bin/top.svg contrib/doc/top.svg

test: ## run the tests; the last lines name those that were skipped, and count all (RUN=name, PKG=./proxy, HOLDLINE_LONG=1: much deeper)
	@CGO_ENABLED=0 $(TEST) -v $(ATONCE) -timeout $(if $(HOLDLINE_LONG),1h,30m) $(if $(RUN),-count=1 -run '$(RUN)') $(PKG) | awk -f .ci/tests.awk

race: ## run the tests under the race detector, in any order
	@# A model of the calls runs in one goroutine, and takes minutes here.
	@$(TEST) -v -race -skip '^Test(Detached|Task|Ask)?Model(Broken)?$$' -shuffle=on -count=1 -timeout 30m -parallel 6 $(if $(RUN),-run '$(RUN)') $(PKG) | awk -f .ci/tests.awk

chaos: ## kill everything at random under load and ask the oracle (CHAOS=10m, SEED=n replays, HOSTILE=0: no servers that misbehave)
	HOLDLINE_CHAOS=$(CHAOS) HOLDLINE_CHAOS_HOSTILE=$(HOSTILE) SEED=$(SEED) CGO_ENABLED=0 $(TEST) -v -count=1 -timeout 24h -run '^TestChaos$$' ./cmd/e2e

notices: ## break each rule of recovery in turn: the oracle has to notice (three minutes)
	HOLDLINE_CHAOS=$(CHAOS) SEED=$(SEED) CGO_ENABLED=0 $(TEST) -v -count=1 -timeout 1h -run '^TestChaosNotices$$' ./cmd/e2e

neighbours: ## chaos without and with servers that misbehave: how much slower are the others' calls (CHAOS=5m or more)
	HOLDLINE_CHAOS=$(CHAOS) SEED=$(SEED) CGO_ENABLED=0 $(TEST) -v -count=1 -timeout 24h -run '^TestChaosNeighbours$$' ./cmd/e2e

check: ## format, vet for both systems, lint, dead code, modernisers, layers, go.mod
	@files=$$($(GOFUMPT) -l cmd contrib daemon protocol proxy); test -z "$$files" || { printf 'not formatted by gofumpt:\n%s\n' "$$files"; exit 1; }
	GOOS=linux CGO_ENABLED=0 go vet -trimpath ./...
	GOOS=darwin CGO_ENABLED=0 go vet -trimpath ./...
	$(LINT) config verify
	$(LINT) run ./...
	@dead=$$($(DEADCODE) -test ./...); test -z "$$dead" || { printf '%s\n' "$$dead"; exit 1; }
	@diff=$$(CGO_ENABLED=0 go fix -trimpath -diff ./... 2>&1 || true); test -z "$$diff" || { printf '%s\n' "$$diff"; exit 1; }
	CGO_ENABLED=0 $(TEST) -count=1 -run '^(TestImportMap|TestLayersOfParts)$$' ./cmd/e2e
	go mod tidy -diff
	go mod verify

soak: build ## a mixed load of many sessions: memory, descriptors and goroutines must not grow, and go back (SOAK=10m, SESSIONS=1000)
	HOLDLINE_BENCH_BIN=$(abspath $(OUT)) HOLDLINE_SOAK=$(SOAK) HOLDLINE_SOAK_SESSIONS=$(SESSIONS) CGO_ENABLED=0 $(TEST) -v -count=1 -timeout 24h -run '^TestSoak_' ./cmd/e2e

fuzz: ## run every fuzz target 200,000 times (FUZZTIME=20000x)
	@# By count: when a time ends Go 1.26 can call that a failure (golang/go issue 75804). Without
	@# the limit Go spends a minute on making each new input smaller.
	@grep -rl --include='*_test.go' '^func Fuzz' cmd daemon protocol proxy | sort | while read -r file; do \
		grep -o '^func Fuzz[A-Za-z0-9_]*' "$$file" | while read -r _ name; do \
			echo "== $$name in $$(dirname "$$file")"; \
			go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x </dev/null; \
		done; \
	done

bench: build ## measure speed and memory beside a chain of copying processes; the last lines are a table (BENCH=Hosted, PKG=./proxy)
	@# The benchmarks of cmd/e2e repeat what they measure by themselves.
	HOLDLINE_E2E=1 HOLDLINE_BENCH_BIN=$(abspath $(OUT)) CGO_ENABLED=0 $(TEST) -run '^$$' -bench '$(or $(BENCH),.)' -timeout 20m \
		$(if $(filter ./...,$(PKG)),-benchtime 1x ./cmd/e2e,-benchmem $(PKG))

e2e: ## real clients and the real Claude Code against a stand-in API (needs node, npm)
	@# One package at a time: several real programs at once take all of two cores.
	HOLDLINE_E2E=1 CGO_ENABLED=0 $(TEST) -p 1 -parallel 4 -v -count=1 -timeout 20m -run '$(or $(RUN),E2E)' \
		$(if $(filter ./...,$(PKG)),$(E2E),$(PKG)) | awk -f .ci/tests.awk

e2e-systemd: ## a real systemd, booted for the tests alone, manages the daemon (needs root and systemd)
	@contrib/systemd/lab --can || { echo "skipped: make e2e-systemd"; exit 0; }; \
	mkdir -p bin && CGO_ENABLED=0 $(TEST) -c -ldflags '-s -w' -o bin/e2e-systemd.test ./cmd/e2e && cd cmd/e2e && \
	../../contrib/systemd/lab ../../bin/e2e-systemd.test -test.v -test.timeout 20m -test.run '^TestSystemd$$'

cover: ## coverage by package, and the total
	@mkdir -p bin
	@go test -coverprofile=bin/cover.out -coverpkg=./... $(PKG) && go tool cover -func=bin/cover.out | tail -1

clean: ## remove what build, dist and cover made
	rm -rf bin $(DIST)
