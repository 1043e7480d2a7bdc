// Where the libraries of CUDA are on this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redline {

/// Folders of `file` among the packages of the Pythons on this machine (nvidia/cu13/lib): of the virtual environment,
/// of those that PATH names, and of the user.
std::vector<std::string> find_python_libraries(std::string_view file);

/// Where to look for cuBLASLt, as the CUDA module takes it: folders with a colon between, of which an empty one is the
/// loader's own; or "none". `setting`: REDLINE_CUDA_LIBS.
std::string matrix_library_folders(const std::string& setting);

}  // namespace redline
