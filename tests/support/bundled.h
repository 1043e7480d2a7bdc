// The bundled models.
#pragma once

#include <string>

namespace redline {

inline std::string source_root() {
  const char* moved = std::getenv("REDLINE_TEST_SOURCE");  // tools/device_check
  return moved ? moved : REDLINE_SOURCE_DIR;
}
inline const std::string kTales = source_root() + "/assets/redline-tales";

}  // namespace redline
