// The bundled models.
#pragma once

#include <string>

namespace redline {

inline const std::string kTales = REDLINE_SOURCE_DIR "/assets/redline-tales";

}  // namespace redline
