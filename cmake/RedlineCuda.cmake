# The CUDA module: kernels/tiles compiled by nvcc, in a module that is loaded at run time. One binary serves all machines.
#   REDLINE_CUDA=AUTO  where nvcc 13 is found
#   REDLINE_CUDA=GPU   where nvcc 13 is found and this machine has an NVIDIA GPU
#   REDLINE_CUDA=ON    an error without it
#   REDLINE_CUDA=OFF   never
# REDLINE_CUDA_ARCHITECTURES: what it has code for, as CMAKE_CUDA_ARCHITECTURES. Default: in a release 90a-real (H100,
# H200), 80-real (A100; 8.6, 8.7 and 8.9 run it too) and 80-virtual, which the driver compiles for newer GPUs; in other
# builds, which should not take long, 90a-real.
set(REDLINE_CUDA AUTO CACHE STRING "build redline_cuda.so: AUTO, GPU, ON or OFF")
set_property(CACHE REDLINE_CUDA PROPERTY STRINGS AUTO GPU ON OFF)
if(NOT REDLINE_CUDA MATCHES "^(AUTO|GPU|ON|OFF)$")
  message(FATAL_ERROR "REDLINE_CUDA is \"${REDLINE_CUDA}\"; expected AUTO, GPU, ON or OFF")
endif()

# redline_find_nvcc(RESULT WHY): the compiler, or "" and why not.
function(redline_find_nvcc result why)
  find_program(REDLINE_NVCC nvcc HINTS ENV CUDAToolkit_ROOT PATHS /usr/local/cuda/bin)
  set(${result} "" PARENT_SCOPE)
  if(NOT REDLINE_NVCC)
    set(${why} "nvcc is not found" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${REDLINE_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "release ([0-9]+)\\.([0-9]+)")
    set(${why} "${REDLINE_NVCC} does not report its version" PARENT_SCOPE)
  elseif(CMAKE_MATCH_1 LESS 13)
    set(${why} "${REDLINE_NVCC} is version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}, which is older than 13" PARENT_SCOPE)
  else()
    set(${result} ${REDLINE_NVCC} PARENT_SCOPE)
  endif()
endfunction()

if(REDLINE_CUDA STREQUAL "OFF" OR REDLINE_SANITIZE)
  return()
endif()
# The driver makes this file, in containers that were given a GPU too.
if(REDLINE_CUDA STREQUAL "GPU" AND NOT EXISTS /dev/nvidiactl AND NOT EXISTS /dev/dxg)
  message(STATUS "without CUDA: this machine has no NVIDIA GPU")
  return()
endif()
redline_find_nvcc(nvcc why)
if(NOT nvcc)
  if(REDLINE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "REDLINE_CUDA=ON: ${why}")
  endif()
  message(STATUS "without CUDA: ${why}")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${nvcc})
set(default_targets 90a-real)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  list(APPEND default_targets 80-real 80-virtual)
endif()
set(REDLINE_CUDA_ARCHITECTURES "${default_targets}" CACHE STRING "what redline_cuda.so has code for")
# As options of nvcc: CMake 3.22 does not know names like 90a.
set(CMAKE_CUDA_ARCHITECTURES OFF)
set(gencode)
foreach(architecture IN LISTS REDLINE_CUDA_ARCHITECTURES)
  if(NOT architecture MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
    message(FATAL_ERROR "REDLINE_CUDA_ARCHITECTURES has \"${architecture}\"; expected names like 90a-real or 80-virtual")
  endif()
  set(number ${CMAKE_MATCH_1})
  if(NOT CMAKE_MATCH_2 STREQUAL "-virtual")
    list(APPEND gencode -gencode=arch=compute_${number},code=sm_${number})
  endif()
  if(NOT CMAKE_MATCH_2 STREQUAL "-real")
    list(APPEND gencode -gencode=arch=compute_${number},code=compute_${number})
  endif()
endforeach()
enable_language(CUDA)
file(GLOB cuda_sources CONFIGURE_DEPENDS src/kernels/cuda/*.cu)
add_library(redline_cuda MODULE ${cuda_sources})
set_target_properties(redline_cuda PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
                                              CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden UNITY_BUILD OFF
                                              CUDA_STANDARD_REQUIRED OFF CXX_STANDARD_REQUIRED OFF)
target_include_directories(redline_cuda PRIVATE src include)
# The host's warning flags are not nvcc's; -O2 whatever the build type, as for the kernels of the CPU.
set_target_properties(redline_cuda PROPERTIES COMPILE_OPTIONS "" LINK_OPTIONS "")
# CMake 3.25 does not know that nvcc 13 has C++20.
target_compile_options(redline_cuda PRIVATE -std=c++20 -O2 --expt-relaxed-constexpr ${gencode})
# For the message to a GPU of another architecture.
list(JOIN REDLINE_CUDA_ARCHITECTURES " " targets)
set_property(SOURCE src/kernels/cuda/cuda_device.cu APPEND PROPERTY
             COMPILE_DEFINITIONS "REDLINE_CUDA_TARGETS=\"${targets}\"")
message(STATUS "with CUDA: ${nvcc} ${CMAKE_CUDA_COMPILER_VERSION}, for ${targets}")
