# SPDX-License-Identifier: Apache-2.0
#
# Everything a developer does here. `make` lists it. Needs Go; what else a
# target needs it installs with apt, if run as root (.ci/deps.sh).

GO ?= go
# go run with a version is cached, and leaves go.mod as it is.
GOLANGCI := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
CLANG_FORMAT := clang-format-14

# What the tests are restricted to: make test-root PKG=./pkg/attach/... RUN=TestX
PKG ?= ./...
RUN ?= .
FUZZTIME ?= 10s
# What is tested on other kernels, in emulation, which is slow: loading, each
# kind of link, and exactness.
VM_PKG ?= ./pkg/bpfobj ./pkg/attach ./pkg/tracer
VM_RUN ?= TestLoad|TestHits|TestThrow|TestKilled|TestAllFunctions|TestTargetExecs|TestLateLibrary

# Not testdata/elf, whose line numbers its tests compare.
C_SOURCES = $(shell git ls-files 'bpf/*.[ch]' 'testdata/targets/*.[ch]' 'testdata/targets/*.cc' 'testdata/demo/*.c')

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build ./unfreed, without cgo
	CGO_ENABLED=0 $(GO) build -trimpath -o unfreed ./cmd/unfreed

.PHONY: demo
demo: ## find the leak of a Python service that tracemalloc does not see (root)
	.ci/deps.sh demo
	$(MAKE) --no-print-directory build
	testdata/demo/run.sh

.PHONY: test
test: ## run all tests; as root those that attach, too (CI's step)
	.ci/deps.sh test
	.ci/test -timeout 20m $(PKG)

.PHONY: test-root
test-root: ## run tests that must not skip, of PKG and RUN (root)
	REQUIRE_BPF=1 $(GO) test -count=1 -timeout 20m -run '$(RUN)' $(PKG)

.PHONY: test-vm
test-vm: ## run the tests of loading and exactness on Debian's 6.1 and 6.12 in qemu
	.ci/deps.sh vm
	.ci/vm.sh $(VM_PKG) -- '-run=$(VM_RUN)'

.PHONY: bench
bench: ## measure the overhead, beside other tools (root, minutes)
	.ci/deps.sh bench
	$(MAKE) --no-print-directory build
	$(GO) run ./internal/bench $(BENCH)

.PHONY: fuzz
fuzz: ## fuzz each parser for FUZZTIME (10s)
	GO='$(GO)' .ci/fuzz $(FUZZTIME) $(PKG)

.PHONY: generate
generate: ## compile the BPF programs anew, with clang-14
	.ci/deps.sh generate
	$(GO) generate ./pkg/bpfobj

.PHONY: check-generate
check-generate: generate ## check that the committed BPF objects are those of the source
	@git diff --exit-code --stat -- pkg/bpfobj || \
		{ echo 'pkg/bpfobj is not what bpf/ compiles to: commit what `make generate` made' >&2; exit 1; }

.PHONY: lint
lint: ## check formatting and style
	.ci/deps.sh lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go') | tee /dev/stderr)" || { echo 'run gofmt -w on these' >&2; exit 1; }
	$(CLANG_FORMAT) --dry-run -Werror $(C_SOURCES)
	shellcheck -S warning $$(git ls-files '*.sh') .ci/run .ci/test .ci/fuzz
	$(GO) vet ./...
	$(GOLANGCI) run ./...

.PHONY: format
format: ## format Go and C
	gofmt -w $$(git ls-files '*.go')
	$(CLANG_FORMAT) -i $(C_SOURCES)

.PHONY: clean
clean: ## remove what was built
	rm -rf unfreed demo.pb.gz bin
