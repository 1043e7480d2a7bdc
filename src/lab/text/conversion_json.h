// The conversion of a model's weights as JSON.
#pragma once

#include "lab/json.h"
#include "redline/precision.h"

namespace redline::lab {

/// Adds the member "conversion" to a report, unless the weights are as stored.
inline void add_conversion(const WeightConversion& conversion, Json& report) {
  if (conversion.type.empty()) return;
  report["conversion"] = {{"type", conversion.type},
                          {"changed", conversion.changed},
                          {"kept", conversion.kept},
                          {"relative_error", conversion.relative_error}};
}

}  // namespace redline::lab
