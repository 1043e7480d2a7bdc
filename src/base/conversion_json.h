// The conversion of a model's weights as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "redline/precision.h"

namespace redline {

/// Adds the member "conversion" to a report, unless the weights are as stored.
template <class Json>
void add_conversion(const WeightConversion& conversion, Json& report) {
  if (conversion.type.empty()) return;
  report["conversion"] = {{"type", conversion.type},
                          {"changed", conversion.changed},
                          {"kept", conversion.kept},
                          {"relative_error", conversion.relative_error}};
}

}  // namespace redline
