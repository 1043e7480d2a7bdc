# The short commands. What they do stands in CMakePresets.json and tools/.
#   make            the release binary for this machine, build/release/redline
#   make demo       build it, stream a story and generate an image with the bundled models
#   make test       build and pass all tests; the last line counts them
#   make check      during development, up to two minutes: builds and runs the tests of the layers that differ from BASE
#                   (default: the merge base with origin/main, else HEAD~1), without those labelled slow, then
#                   tools/check format layers tree
#   make asan | ubsan | tsan    the tests under a sanitizer
#   make fuzz       a minute of fuzzing      make format | tidy    the sources
#   make wheel      for every machine: the Python package, build/wheelhouse/redline-*.whl
#   make dist       for every machine: a tarball that runs without a compiler, build/dist/redline-*.tar.xz
#   make docs       the API pages of the Python package, build/api/index.html
#   make install    for every machine: to PREFIX (/usr/local)   make clean    removes build/
# "For this machine": kernels for the instruction sets of its CPU, and CUDA where it has a GPU. A folder build/release that is
# configured already keeps its options, except that install, wheel and dist add what is missing for every machine.
# SETUP=: leaves out the installation of packages. CXX, CMAKE_FLAGS and TEST_FLAGS are passed on.
.PHONY: release dev demo test check asan ubsan tsan fuzz format tidy wheel dist docs install clean
SETUP ?= tools/setup.sh
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
PRESET ?= release
# The shell asks when the line runs: make expands all lines of a recipe before the first installs a compiler.
ifeq ($(origin CXX),default)
CXX = $$(tools/setup.sh --compiler)
endif

# $(call build,PRESET,GROUP,FLAGS): packages, configuration and compilation, each only where needed.
define build
@$(SETUP) $(2)
@test -f build/$(1)/build.ninja || CXX="$(CXX)" cmake --preset $(1) $(3) $(CMAKE_FLAGS)
@cmake --build --preset $(1)
endef
# Configuring again with the same values compiles nothing anew.
define build_for_every_machine
@$(SETUP) $(1)
@CXX="$(CXX)" cmake --preset release -DREDLINE_CPU_ISAS= -DREDLINE_CUDA=AUTO $(CMAKE_FLAGS)
@cmake --build --preset release
endef
this_machine = -DREDLINE_CPU_ISAS=native -DREDLINE_CUDA=GPU

release:
	$(call build,release,build,$(this_machine))

# CI has built dev already and shows the demo with that: make demo PRESET=dev
demo:
	$(call build,$(PRESET),build,$(this_machine))
	@build/$(PRESET)/redline run assets/redline-tales "Once upon a time" --echo --max-tokens 250 --temperature 0.5 --top-p 0.9 --repetition-penalty 1.1 --seed 1
	@echo
	@build/$(PRESET)/redline image assets/redline-shapes "a large red house on a meadow" --output build/house.png --seed 6
	@echo
	@echo 'Next: build/$(PRESET)/redline run redline-tales "The little dog", build/$(PRESET)/redline image redline-shapes "a yellow crescent moon at night", or make install and then redline help'

dev:
	$(call build,dev,test)

test:
	@$(SETUP) test
	@CXX="$(CXX)" tools/test.sh $(TEST_FLAGS)

check:
	@$(SETUP) test
	@CXX="$(CXX)" tools/check_changed.py $(BASE)

asan ubsan tsan:
	$(call build,$@,test)
	ctest --preset $@

fuzz:
	@$(SETUP) test
	tools/fuzz.sh $(FUZZ_SECONDS)

format:
	@$(SETUP) test
	tools/check --fix format

tidy:
	@$(SETUP) test
	tools/check --all-files headers tidy

wheel:
	$(call build_for_every_machine,test)
	tools/make_wheel.sh release build/wheelhouse

dist:
	$(call build_for_every_machine,test)
	tools/make_dist.py release build/dist

docs:
	@$(SETUP) test
	build/venv/bin/python -m sphinx -W -q -b html -d build/api/doctrees docs/api build/api
	@echo build/api/index.html

install:
	$(call build_for_every_machine,build)
	cmake --install build/release --prefix $(PREFIX)

clean:
	rm -rf build
