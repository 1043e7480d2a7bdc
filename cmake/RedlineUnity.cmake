# Unity builds: sources of one folder are compiled together, several at a time, which halves a build from scratch: a
# small source spends most of its time on headers that others include too. Names in anonymous namespaces are therefore
# unique within a folder. -DREDLINE_UNITY=OFF compiles each source by itself, as the checks that need its own command
# do.
option(REDLINE_UNITY "compile the sources of a folder together" ON)
set(REDLINE_UNITY_FILES 10)  # more gains little, and one file's change compiles all of them

# redline_unity(TARGET [ALONE FILE...]): ALONE lists files that are compiled separately.
function(redline_unity target)
  if(NOT REDLINE_UNITY)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ALONE")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # sees a header in each source
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  set(last "")
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cc$" OR source IN_LIST arg_ALONE)
      continue()
    endif()
    get_filename_component(folder ${source} DIRECTORY)
    if(folder STREQUAL last)
      math(EXPR number "${number} + 1")
    else()
      set(last ${folder})
      set(number 0)
    endif()
    math(EXPR part "${number} / ${REDLINE_UNITY_FILES}")
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${folder})
    string(REPLACE "/" "_" name "${name}_${part}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name})
  endforeach()
endfunction()
