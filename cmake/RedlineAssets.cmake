# Weights of the bundled models that the repository holds compressed: assets/weights.tar.xz is unpacked in place.
set(archive ${PROJECT_SOURCE_DIR}/assets/weights.tar.xz)
if(NOT EXISTS ${archive})  # a tree without the bundled models
  add_custom_target(redline_assets)
  return()
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archive})
execute_process(COMMAND ${CMAKE_COMMAND} -E tar tf ${archive} OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${names}" names)
string(REPLACE "\n" ";" names "${names}")
list(TRANSFORM names PREPEND ${PROJECT_SOURCE_DIR}/assets/ OUTPUT_VARIABLE files)
# Touched: the times in the archive are older than the archive.
add_custom_command(
  OUTPUT ${files}
  COMMAND ${CMAKE_COMMAND} -E tar xf ${archive}
  COMMAND ${CMAKE_COMMAND} -E touch ${files}
  DEPENDS ${archive}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/assets)
add_custom_target(redline_assets DEPENDS ${files})
add_dependencies(redline_cli redline_assets)
