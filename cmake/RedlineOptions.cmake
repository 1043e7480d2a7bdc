# How everything is compiled: language level, warnings, sanitizers, and the faster tools where the machine has them.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# The kernels ask for -O3 themselves; elsewhere it buys nothing and costs build time.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

# The same objects serve the binary and libredline.so, which exports the C interface and nothing else.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

option(REDLINE_TESTS "build the tests" OFF)
option(REDLINE_FUZZ "build the fuzz targets (needs clang)" OFF)
option(REDLINE_WERROR "treat warnings as errors" OFF)  # on in the presets that developers build, where the compiler is known
set(REDLINE_SANITIZE "" CACHE STRING "address, undefined, thread, or a comma-separated list")

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on std::string + (GCC bug 105651), and on whatever -O2 or a unity build inlines. The C compiler may be clang.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow>")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized;-Wno-array-bounds;-Wno-stringop-overread>")
endif()
add_compile_options($<$<CONFIG:Release>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)  # the binary names sources, not folders
if(REDLINE_WERROR)
  add_compile_options(-Werror)
endif()
if(REDLINE_SANITIZE)
  # Checks in every loop hide from the compiler what it sees in all other builds, which keep this warning.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  add_compile_options(-fsanitize=${REDLINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${REDLINE_SANITIZE})
  # The thread sanitizer knows no fences, and GCC refuses them. Asio's are beside its mutexes.
  if(REDLINE_SANITIZE MATCHES thread)
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

find_program(REDLINE_CCACHE ccache)
if(REDLINE_CCACHE)
  # Precompiled headers and ccache work together only with this sloppiness. An object that compiled with warnings as errors
  # serves where they are none.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
                                  CCACHE_IGNOREOPTIONS=-Werror ${REDLINE_CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
find_program(REDLINE_MOLD mold)
find_program(REDLINE_LLD ld.lld)
if(REDLINE_MOLD AND (NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1))
  add_link_options(-fuse-ld=mold)
elseif(REDLINE_LLD)
  add_link_options(-fuse-ld=lld)
endif()
