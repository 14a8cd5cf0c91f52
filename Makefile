# The commands of README.md. The work is done by scripts/ and by `cargo xtask`; everything else is plain cargo.

PREFIX ?= /usr/local
ICD_VENDORS ?= /etc/OpenCL/vendors
TARGET_DIR = $${CARGO_TARGET_DIR:-target}
# scripts/setup leaves the toolchain that it found in this file.
ENV = . build/env
XTASK = $(ENV) && cargo xtask

.PHONY: help demo test check test-long bench report site dist install install-icd clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 22

demo: ## Run OpenCL programs and a CUDA program on Towline servers on this machine
	@scripts/setup demo
	@$(ENV) && cargo build --release --locked -p towline-cli -p towline-cuda -p towline-cudart12 -p towline-cudart13 -p towline-nccl -p towline-nvml -p towline-opencl
	@$(MAKE) --no-print-directory -C workloads/opencl
	@$(ENV) && scripts/demo

test: ## Run everything that must pass for each change
	@scripts/setup test
	@$(XTASK) ci --tier test

check: ## Format, lints and unit tests, for while you work
	@scripts/setup test
	@$(XTASK) ci --tier check

test-long: ## make test, and minutes of fuzzing, Miri, 64-bit Arm, tests that take minutes
	@scripts/setup long
	@$(XTASK) ci --tier long

bench: ## Measure OpenCL calls and workloads, native against Towline
	@scripts/setup demo
	@$(ENV) && cargo build --release --locked -p towline-cli -p towline-cuda -p towline-cudart12 -p towline-cudart13 -p towline-nccl -p towline-nvml -p towline-opencl
	@$(MAKE) --no-print-directory -C workloads/opencl
	@$(ENV) && mkdir -p build && $(TARGET_DIR)/release/towline bench opencl --json build/bench-opencl.json

report: ## Draw the committed results: build/report/report.html
	@scripts/setup bench
	@PYTHONPATH=python/src build/python/bin/python -m towline_bench report --title "Towline: committed results" \
	    --out build/report bench/results/placement-study.tsv bench/results/*.json \
	    bench/results/shaped/*.json bench/results/energy/*.json
	@echo build/report/report.html

site: ## Make the pages of docs/ a site: build/site/index.html
	@scripts/setup site
	@site/build

dist: ## Pack the release for x86-64 and 64-bit Arm into build/dist/
	@scripts/setup dist
	@$(XTASK) dist

install: ## Install below PREFIX (/usr/local), within DESTDIR if set
	@scripts/setup build
	@$(XTASK) install --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

install-icd: install ## make install, and tell this host's OpenCL loader about Towline
	@mkdir -p "$(DESTDIR)$(ICD_VENDORS)"
	@echo "$(PREFIX)/lib/libtowline_opencl.so" >"$(DESTDIR)$(ICD_VENDORS)/towline.icd"
	@echo "wrote $(DESTDIR)$(ICD_VENDORS)/towline.icd"

clean: ## Remove what was built
	rm -rf target build fuzz/target
