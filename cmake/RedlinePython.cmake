# The Python package (docs/python.md): its extension module, and what scikit-build-core installs into the wheel
# (pyproject.toml): redline/_redline.abi3.so, redline/libredline.so.0 beside it, and the bundled language model.
#   REDLINE_PYTHON           the build is one of the wheel; else the module is built where Python's headers and nanobind are
#   REDLINE_PYTHON_LIBRARY   a wheel around a build: the path of its libredline.so (tools/make_wheel.sh)
set(python_module _redline.abi3.so)
if(REDLINE_PYTHON_LIBRARY)
  get_filename_component(library ${REDLINE_PYTHON_LIBRARY} REALPATH)
  get_filename_component(folder ${library} DIRECTORY)
  install(FILES ${library} DESTINATION redline RENAME libredline.so.0 COMPONENT python)
  install(FILES ${folder}/${python_module} DESTINATION redline COMPONENT python)
  install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-all ${python_module} libredline.so.0
    WORKING_DIRECTORY \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/redline COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
else()
  set(python_required QUIET)
  if(REDLINE_PYTHON)
    set(python_required REQUIRED)
  elseif(NOT Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/build/venv/bin/python)  # tools/setup.sh test; has nanobind
    set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
  endif()
  if(NOT REDLINE_FUZZ)
    find_package(Python 3.10 ${python_required} COMPONENTS Interpreter Development.Module)
  endif()
  if(Python_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_package(nanobind 3.1 ${python_required} CONFIG)
  endif()
  if(nanobind_FOUND)
    file(GLOB python_sources CONFIGURE_DEPENDS src/python/*.cc)
    # Split mode: one module for the stable ABI of CPython 3.10 and later. nanobind's own code is the package
    # nanobind-backend, which is compiled for each version. The domain keeps nanobind's settings from other modules.
    nanobind_add_module(redline_python BACKEND_MODULE nanobind_backend STABLE_ABI_VERSION 3.10 NB_DOMAIN redline
                        NB_SUPPRESS_WARNINGS ${python_sources})
    set_target_properties(redline_python PROPERTIES OUTPUT_NAME _redline LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
                                                    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
    target_include_directories(redline_python PRIVATE include src)
    target_link_libraries(redline_python PRIVATE redline_shared)
    redline_unity(redline_python)
  else()
    message(STATUS "the Python package's module is left out: it needs Python's headers and nanobind (tools/setup.sh test)")
  endif()
  if(REDLINE_PYTHON)
    # A wheel has no links: the library is a file with the name that the module looks for.
    set_property(TARGET redline_shared PROPERTY VERSION)
    install(TARGETS redline_shared redline_python LIBRARY DESTINATION redline COMPONENT python NAMELINK_SKIP)
  endif()
endif()
if(REDLINE_PYTHON OR REDLINE_PYTHON_LIBRARY)
  # Found by its name (python/redline/_names.py). The image model would make the wheel larger than 30 MB.
  install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/../assets/redline-tales DESTINATION redline/models COMPONENT python
          PATTERN training EXCLUDE PATTERN reference EXCLUDE PATTERN adapters EXCLUDE)
endif()
