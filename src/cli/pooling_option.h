// The choices of the option --pooling.
#pragma once

#include <string>
#include <vector>

#include "redline/embedding.h"

namespace redline::cli {

inline std::vector<std::string> pooling_names() {
  std::vector<std::string> names;
  for (const Pooling pooling :
       {Pooling::kMean, Pooling::kCls, Pooling::kLast, Pooling::kMax, Pooling::kMeanSqrt, Pooling::kWeightedMean})
    names.emplace_back(pooling_name(pooling));
  return names;
}

}  // namespace redline::cli
