// Environment variables that other programs define; Redline's own are in settings.h.
#pragma once

#include <cstdlib>
#include <string>

namespace redline {

/// Returns the value of the variable, or "" if it is not set.
inline std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Returns a folder of the XDG base directory specification, which requires relative paths to be ignored.
inline std::string environment_folder(const char* name) {
  std::string value = environment_variable(name);
  return value.starts_with('/') ? value : "";
}

}  // namespace redline
