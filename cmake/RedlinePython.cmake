# What scikit-build-core installs into the wheel (pyproject.toml): libredline.so as redline/lib/libredline.so, and the bundled
# language model. A wheel has no links, so the file has no version in its name; the package checks redline_version_number().
#   REDLINE_PYTHON           the library is built for the wheel
#   REDLINE_PYTHON_LIBRARY   a wheel around a library that has been built: its path (tools/make_wheel.sh)
if(REDLINE_PYTHON_LIBRARY)
  get_filename_component(library ${REDLINE_PYTHON_LIBRARY} REALPATH)
  install(FILES ${library} DESTINATION redline/lib RENAME libredline.so COMPONENT python)
  install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-all
    \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/redline/lib/libredline.so COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
else()
  set_property(TARGET redline_shared PROPERTY VERSION)
  set_property(TARGET redline_shared PROPERTY SOVERSION)
  install(TARGETS redline_shared LIBRARY DESTINATION redline/lib COMPONENT python)
endif()
# Found by its name (python/redline/_names.py). The image model would make the wheel larger than 30 MB.
install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/../assets/redline-tales DESTINATION redline/models COMPONENT python
        PATTERN training EXCLUDE PATTERN reference EXCLUDE PATTERN adapters EXCLUDE)
