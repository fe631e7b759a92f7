# The two commands are `make demo` and `make test`; `make pictures` is for the README; everything else is CMake's.
BUILD ?= build
JOBS ?= $(shell nproc)
# Tests wait for deadlines and for each other's messages longer than they compute.
TESTS_AT_ONCE ?= $(shell expr 4 + 3 \* $(JOBS))
# ON: warnings are errors, as in .ci/run.
WERROR ?= OFF
TERSEWIRE = $(BUILD)/apps/tersewire

.PHONY: deps demo pictures test

# Missing packages, from Debian or Ubuntu.
deps:
	@tools/install_deps.sh

# The main job on the embedded images: fp32 first, then the same with 3LC. Only what it needs is installed and built.
demo:
	@tools/install_deps.sh program
	cmake --preset release -B $(BUILD) >/dev/null
	cmake --build $(BUILD) --target tersewire_program -j $(JOBS)
	tools/demo.sh $(TERSEWIRE)

# The README's pictures, from real runs.
pictures: deps
	cmake --preset release -B $(BUILD) >/dev/null
	cmake --build $(BUILD) --target tersewire_program -j $(JOBS)
	tools/make_pictures.py $(TERSEWIRE)

# Builds everything and runs every test. FRAMEWORKS=frameworks: those of the frameworks' examples as well. The package's
# environment is made meanwhile: downloads, and the last files of a build, leave cores idle. Then CMake knows it.
test: deps
	cmake --preset release -B $(BUILD) -DTERSEWIRE_WERROR=$(WERROR) >/dev/null
	WERROR=$(WERROR) tools/test_environment $(BUILD) $(FRAMEWORKS) & environment=$$!; \
	  cmake --build $(BUILD) -j $(JOBS); built=$$?; wait $$environment && exit $$built
	cmake --preset release -B $(BUILD) >/dev/null
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) --no-tests=error --output-on-failure -j $(TESTS_AT_ONCE)
