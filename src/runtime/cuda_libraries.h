// Finds the CUDA libraries on this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redline {

/// Returns the folders that contain `file` among the Python packages on this machine (nvidia/cu13/lib): those of the
/// virtual environment, of the interpreters in PATH, and of the user.
std::vector<std::string> find_python_libraries(std::string_view file);

/// Returns where the CUDA module looks for cuBLASLt: folders separated by colons, of which an empty one stands for the
/// loader's own search; or "none". `setting`: REDLINE_CUDA_LIBS.
std::string matrix_library_folders(const std::string& setting);

}  // namespace redline
