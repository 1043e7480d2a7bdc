#include "models/image/pipeline.h"

#include <algorithm>

namespace redline {

Result<PromptEncoder*> PromptEncoders::find(std::string_view name) const {
  const auto at = encoders_.find(name);
  if (at == encoders_.end()) return not_found("the pipeline has no {}", name);
  return at->second;
}

std::vector<float> concat_columns(const std::vector<float>& a, int64_t a_width, const std::vector<float>& b,
                                  int64_t b_width, int64_t width) {
  const int64_t rows = static_cast<int64_t>(a.size()) / a_width;
  std::vector<float> out(static_cast<size_t>(rows * width));
  for (int64_t r = 0; r < rows; ++r) {
    float* to = std::copy_n(a.data() + r * a_width, a_width, out.data() + r * width);
    std::copy_n(b.data() + r * b_width, b_width, to);
  }
  return out;
}

}  // namespace redline
