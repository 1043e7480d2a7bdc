#include "diffusion/network_io.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <numeric>

namespace redline {

DType dtype_of(TensorType type) {
  switch (type) {
    case TensorType::kF32: return DType::kF32;
    case TensorType::kF16: return DType::kF16;
    case TensorType::kBF16: return DType::kBF16;
    case TensorType::kI32: return DType::kI32;
  }
  return DType::kF32;
}

const NamedTensor* find_tensor(std::span<const NamedTensor> tensors, std::string_view name) {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

Status expect_known(std::span<const NamedTensor> inputs, std::span<const std::string_view> known) {
  for (const NamedTensor& input : inputs) {
    if (std::find(known.begin(), known.end(), input.name) == known.end())
      return invalid_argument("there is no input \"{}\"; this network has {}", input.name, fmt::join(known, ", "));
    const bool is_integer = input.name == "tokens" || input.name == "key_lengths";
    if (input.type != (is_integer ? TensorType::kI32 : TensorType::kF32))
      return invalid_argument("the input \"{}\" must have type {}", input.name, is_integer ? "I32" : "F32");
  }
  return {};
}

Result<const NamedTensor*> take_input(std::span<const NamedTensor> inputs, std::string_view name, size_t axes) {
  const NamedTensor* found = find_tensor(inputs, name);
  if (!found) return invalid_argument("the input \"{}\" is missing", name);
  if (found->shape.size() != axes)
    return invalid_argument("the input \"{}\" is [{}]; it has {} axes", name, fmt::join(found->shape, ", "), axes);
  return found;
}

int64_t num_elements_of(const NamedTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

std::span<const float> floats_of(const NamedTensor& tensor) {
  return {static_cast<const float*>(tensor.data), static_cast<size_t>(num_elements_of(tensor))};
}

Status expect_room(const NamedOutput& output, int64_t elements) {
  if (std::ssize(output.data) == elements) return {};
  return invalid_argument("the output \"{}\" has room for {} elements; the network gives {}", output.name,
                          output.data.size(), elements);
}

Status unknown_output(const NamedOutput& output, const char* known) {
  return invalid_argument("there is no output \"{}\"; this network has {}", output.name, known);
}

Status replace_adapters(NetworkAdapters& bank, std::span<const AdapterFactorPair> pairs, int64_t max_rank,
                        std::vector<std::string>& active) {
  if (!pairs.empty() && max_rank == 0)
    return invalid_argument("adapter \"{}\": the network was opened without room for adapters; set max_adapter_rank",
                            pairs[0].adapter);
  std::map<std::string, AdapterMatrices> adapters;
  for (const AdapterFactorPair& pair : pairs) {
    AdapterMatrix matrix;
    matrix.down = {dtype_of(pair.down.type), pair.down.shape, pair.down.data};
    matrix.up = {dtype_of(pair.up.type), pair.up.shape, pair.up.data};
    matrix.scale = pair.scale;
    // A linear layer stored as a 1x1 convolution.
    for (TensorView* view : {&matrix.down, &matrix.up})
      if (view->shape.size() == 4 && view->shape[2] == 1 && view->shape[3] == 1) view->shape.resize(2);
    if (matrix.up.shape.size() != 2 || (matrix.down.shape.size() != 2 && matrix.down.shape.size() != 4) ||
        matrix.down.shape[0] < 1 || matrix.up.shape[1] != matrix.down.shape[0])
      return invalid_argument("adapter \"{}\": {}: down is [{}], up is [{}]; a pair is [rank, in] and [out, rank]",
                              pair.adapter, pair.module, fmt::join(pair.down.shape, ", "),
                              fmt::join(pair.up.shape, ", "));
    std::string module = pair.module;
    constexpr std::string_view kTextModel = "text_model.";  // of CLIP before version 5 of transformers
    if (module.starts_with(kTextModel)) module.erase(0, kTextModel.size());
    if (!adapters[pair.adapter].emplace(std::move(module), std::move(matrix)).second)
      return invalid_argument("adapter \"{}\" has two pairs for {}", pair.adapter, pair.module);
  }
  // Adapters are loaded under names that no active adapter has, so that the active ones are kept on error.
  static std::atomic<int64_t> loads{0};
  const int64_t load = ++loads;
  std::vector<std::pair<std::string, double>> weights;
  std::vector<std::string> loaded;
  Status status;
  for (const auto& [name, matrices] : adapters) {
    const std::string own = fmt::format("{} ({})", name, load);
    status = bank.load(own, matrices, /*plain=*/false);
    if (!status.ok()) break;
    loaded.push_back(own);
    weights.emplace_back(own, 1.0);
  }
  if (status.ok()) status = bank.set(weights);
  for (const std::string& name : status.ok() ? active : loaded) bank.unload(name);
  if (status.ok()) active = std::move(loaded);
  return status;
}

ImageEngine::MemoryReport memory_of(std::span<const Executable* const> networks) {
  ImageEngine::MemoryReport report;
  for (const Executable* network : networks) {
    if (!network->program()) continue;
    report.packed_weights += network->program()->weight_bytes;
    report.arena += network->program()->arena_plan.bytes;
    report.arena_without_reuse += network->program()->arena_plan.bytes_without_reuse;
    report.arena_touched += network->resident_arena_bytes();
  }
  return report;
}

Status no_cache(const char* kind) {
  return unsupported("step cache: this network is {}; only denoisers are called step by step", kind);
}

}  // namespace redline
