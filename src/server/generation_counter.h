// Receives what finished generations took, for the metrics.
#pragma once

#include <span>

#include "redline/text.h"

namespace redline::server {

class ServedModel;

class GenerationCounter {
 public:
  virtual ~GenerationCounter() = default;
  /// Adds a finished generation and the times between its tokens.
  virtual void count(const ServedModel& model, const GenerateResult& result, std::span<const double> gaps_s) = 0;
};

}  // namespace redline::server
