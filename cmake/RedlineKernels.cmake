# One OBJECT library per instruction set from the same kernel sources; no file is copied.
#
# NAME.kernel.cc is compiled for every base set (generic, avx2, avx512); NAME.SET.kernel.cc only for SET, an overlay that
# replaces the few kernels whose algorithm differs there. A base set replaces all kernels, those of overlays too.
#
# Each NAME.kernel.cc fills in its own entries of the table of kernels; table.SET.kernel.cc lists those of an overlay. A set
# runs on CPUs that have the features of REDLINE_FEATURES_SET (kernels/cpu/cpu_features.h). Its vectors are those of
# simd_SET.inc, for an overlay those of its base set.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(REDLINE_CPU_BASE_ISAS generic avx2 avx512)
  set(REDLINE_CPU_OVERLAYS_avx2 avx2_vnni)
  set(REDLINE_CPU_OVERLAYS_avx512 avx512_vnni avx512_bf16 avx512_fp16 amx amx_fp16)
else()
  set(REDLINE_CPU_BASE_ISAS generic)
endif()
# All sets from the most basic to the highest: each base set is followed by its overlays.
set(REDLINE_CPU_ALL_ISAS)
foreach(base IN LISTS REDLINE_CPU_BASE_ISAS)
  list(APPEND REDLINE_CPU_ALL_ISAS ${base} ${REDLINE_CPU_OVERLAYS_${base}})
endforeach()
set(REDLINE_CPU_ISAS "" CACHE STRING "the instruction sets to compile for: native, or a list as generic;avx512; empty: all")
if(NOT REDLINE_CPU_ISAS STREQUAL "native")
  foreach(isa IN LISTS REDLINE_CPU_ISAS)
    if(NOT isa IN_LIST REDLINE_CPU_ALL_ISAS)
      list(JOIN REDLINE_CPU_ALL_ISAS " " known)
      message(FATAL_ERROR "REDLINE_CPU_ISAS has ${isa}; expected native, or some of: ${known}")
    endif()
  endforeach()
endif()
set(REDLINE_FLAGS_generic)
set(REDLINE_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2 -mpopcnt)
set(REDLINE_FLAGS_avx2_vnni ${REDLINE_FLAGS_avx2} -mavxvnni)
set(REDLINE_FLAGS_avx512 ${REDLINE_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
# GCC's AVX-512 headers pass undefined vectors where no lane is kept, and GCC 12 warns of each once it is inlined. The
# same sources still get these warnings in the generic and avx2 builds.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND REDLINE_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(REDLINE_FLAGS_avx512_vnni ${REDLINE_FLAGS_avx512} -mavx512vnni)
set(REDLINE_FLAGS_avx512_bf16 ${REDLINE_FLAGS_avx512} -mavx512bf16)
# Every CPU with AMX has float16 arithmetic and shifts of bytes (VBMI), which expand weights for it.
# The float16 sets name their few instructions in assembly: GCC 12 does not support the tile products of that type, and
# older compilers do not support avx512_fp16.
set(REDLINE_FLAGS_avx512_fp16 ${REDLINE_FLAGS_avx512})
set(REDLINE_FLAGS_amx ${REDLINE_FLAGS_avx512} -mavx512vnni -mavx512bf16 -mavx512fp16 -mavx512vbmi -mamx-tile -mamx-int8 -mamx-bf16)
set(REDLINE_FLAGS_amx_fp16 ${REDLINE_FLAGS_amx})

set(REDLINE_FEATURES_avx2 avx2)
set(REDLINE_FEATURES_avx2_vnni avx_vnni)
set(REDLINE_FEATURES_avx512 avx512)
set(REDLINE_FEATURES_avx512_vnni avx512_vnni)
set(REDLINE_FEATURES_avx512_bf16 avx512_bf16)
set(REDLINE_FEATURES_avx512_fp16 avx512_fp16)
set(REDLINE_FEATURES_amx amx avx512_vnni avx512_bf16 avx512_fp16 avx512_vbmi)
set(REDLINE_FEATURES_amx_fp16 ${REDLINE_FEATURES_amx} amx_fp16)

# redline_native_isas(RESULT): the instruction sets that the CPU of this machine has, found by the code that chooses kernels at
# run time (kernels/cpu/cpu_features.h).
function(redline_native_isas result)
  set(lines "")
  foreach(isa IN LISTS REDLINE_CPU_ALL_ISAS)
    string(APPEND lines "  print_if_supported(\"${isa}\", {")
    foreach(feature IN LISTS REDLINE_FEATURES_${isa})
      string(APPEND lines "\"${feature}\", ")
    endforeach()
    string(APPEND lines "});\n")
  endforeach()
  set(program ${PROJECT_BINARY_DIR}/native_isas.cc)
  file(CONFIGURE OUTPUT ${program} @ONLY CONTENT "#include <cstdio>
#include <initializer_list>

#include \"kernels/cpu/cpu_features.cc\"

static void print_if_supported(const char* isa, std::initializer_list<const char*> features) {
  for (const char* feature : features)
    if (!redline::cpu_has(feature)) return;
  std::printf(\"%s;\", isa);
}

int main() {
@lines@}
")
  try_run(status compiled ${PROJECT_BINARY_DIR}/native_isas ${program}
          CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}/src -DCMAKE_CXX_STANDARD=20
          COMPILE_OUTPUT_VARIABLE log RUN_OUTPUT_VARIABLE isas)
  if(NOT compiled OR NOT status EQUAL 0)
    message(FATAL_ERROR "REDLINE_CPU_ISAS=native: the program that asks the CPU failed; name the instruction sets instead. ${log}")
  endif()
  list(REMOVE_ITEM isas "")
  set(${result} "${isas}" PARENT_SCOPE)
endfunction()

# redline_linear_q8_parts(SOURCES ISA): adds the sources that linear_q8.inc is compiled into (kernels/cpu/linear/linear_q8_parts.h),
# each with two formats: half a minute of one core at most.
function(redline_linear_q8_parts sources isa)
  file(STRINGS ${PROJECT_SOURCE_DIR}/src/kernels/cpu/linear/linear_q8_parts.h parts REGEX "kLinearQ8Parts = [0-9]+")
  string(REGEX REPLACE ".* = ([0-9]+).*" "\\1" parts "${parts}")
  math(EXPR last "${parts} - 1")
  foreach(part RANGE ${last})
    set(source ${PROJECT_BINARY_DIR}/kernels/linear_q8_${part}.${isa}.kernel.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#define REDLINE_LINEAR_Q8_PART ${part}
#include \"kernels/cpu/linear/linear_q8.inc\"
")
    list(APPEND ${sources} ${source})
  endforeach()
  set(${sources} "${${sources}}" PARENT_SCOPE)
endfunction()

function(redline_add_cpu_kernels target)
  set(wanted ${REDLINE_CPU_ISAS})
  if(wanted STREQUAL "native")
    redline_native_isas(wanted)
    message(STATUS "kernels for the instruction sets of this CPU: ${wanted}")
  endif()
  set(optimisation -O3)
  if(REDLINE_SANITIZE)
    set(optimisation -O1)
  endif()
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/cpu/*.kernel.cc)
  # Products over the plain stand-in of a tile unit: only tests run them.
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/kernels/cpu/linear/linear_tiles.kernel.cc
                      ${PROJECT_SOURCE_DIR}/src/kernels/cpu/linear/linear_i8_tiles.kernel.cc APPEND PROPERTY COMPILE_OPTIONS -O1)
  # GCC 12's partial redundancy elimination carries the accumulators of this loop in two sets of registers: 32 moves for
  # 16 dot products, and up to a third more time. No other kernel gains without it; attention loses.
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/kernels/cpu/linear/linear_i8.avx2_vnni.kernel.cc
                      ${PROJECT_SOURCE_DIR}/src/kernels/cpu/linear/linear_i8.avx512_vnni.kernel.cc
                      ${PROJECT_SOURCE_DIR}/src/kernels/cpu/linear/linear_requantized.avx512_vnni.kernel.cc APPEND PROPERTY
               COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-fno-tree-pre>)
  redline_rows(cpu_kernels "fill_@name@" src/kernels/cpu .kernel.cc)
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/kernels/cpu/table.base.kernel.cc APPEND PROPERTY
               INCLUDE_DIRECTORIES ${PROJECT_BINARY_DIR}/rows)
  set(rows "")
  set(common ${kernels})
  foreach(isa IN LISTS REDLINE_CPU_ALL_ISAS)
    list(FILTER common EXCLUDE REGEX "\\.${isa}\\.kernel\\.cc$")
  endforeach()
  foreach(isa IN LISTS REDLINE_CPU_ALL_ISAS)
    if(wanted AND NOT isa IN_LIST wanted)
      string(APPEND rows "REDLINE_ISA_LEFT_OUT(${isa})\n")
      continue()
    endif()
    set(own ${kernels})
    if(isa IN_LIST REDLINE_CPU_BASE_ISAS)
      set(own ${common})
      set(simd ${isa})
    else()
      list(FILTER own INCLUDE REGEX "\\.${isa}\\.kernel\\.cc$")
    endif()
    if(NOT own)
      continue()
    endif()
    if("${own}" MATCHES "/linear_q8(\\.${isa})?\\.kernel\\.cc")
      redline_linear_q8_parts(own ${isa})
    endif()
    add_library(kernels_${isa} OBJECT ${own})
    target_include_directories(kernels_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(kernels_${isa} PRIVATE REDLINE_ISA_NS=isa_${isa} REDLINE_SIMD="kernels/cpu/simd_${simd}.inc")
    list(JOIN REDLINE_FEATURES_${isa} " " features)
    string(APPEND rows "REDLINE_ISA(${isa}, \"${features}\")\n")
    # Optimised in every build type: the kernels are the product, and a debug build must stay usable. Under sanitizers less
    # so: with their checks in every loop -O3 takes four times as long to compile and finds nothing more.
    target_compile_options(kernels_${isa} PRIVATE ${REDLINE_FLAGS_${isa}} ${optimisation} -fno-exceptions -fno-rtti -ffp-contract=off)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:kernels_${isa}>)
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/rows/isas.inc CONTENT "${rows}")
endfunction()
