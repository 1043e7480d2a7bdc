#include "models/weight_reader.h"

#include <fmt/ranges.h>

namespace redline {

Value WeightReader::take(const std::string& name, const std::vector<int64_t>& shape) {
  auto at = checkpoint_.tensors.find(name);
  if (at == checkpoint_.tensors.end())
    return g_.fail(invalid_argument("tensor {} is missing", checkpoint_.file_name(name)));
  if (at->second.view.shape != shape)
    return g_.fail(invalid_argument("tensor {} is [{}], the config asks for [{}]", checkpoint_.file_name(name),
                                    fmt::join(at->second.view.shape, ", "), fmt::join(shape, ", ")));
  taken_.insert(name);
  return g_.weight(name, at->second);
}

Status WeightReader::expect_all_taken() const {
  std::string first;
  size_t left = 0;
  for (const auto& [name, source] : checkpoint_.tensors)
    if (!taken_.count(name) && !name.ends_with("rotary_emb.inv_freq") && left++ == 0) first = name;
  if (left == 0) return {};
  return invalid_argument("tensor {}{} has no place in this architecture; is model_type right?",
                          checkpoint_.file_name(first), left > 1 ? fmt::format(" (and {} more)", left - 1) : "");
}

}  // namespace redline
