#include "lab/random/random_adapter.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "base/hash.h"
#include "formats/gguf_writer.h"
#include "models/files/random_model.h"
#include "models/registry.h"
#include "tensor/dtype.h"

namespace redline::lab {
namespace {

constexpr std::string_view kProjections[] = {"q_proj.weight",    "k_proj.weight",  "v_proj.weight",   "o_proj.weight",
                                             "gate_proj.weight", "up_proj.weight", "down_proj.weight"};

/// Returns values that are uniformly distributed in [-size, size).
std::vector<uint16_t> random_halves(int64_t count, double size, uint64_t& counter) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) {
    const double unit = static_cast<double>(hash_word(0, counter++) >> 11) * 0x1p-52 - 1;
    value = f32_to_f16(static_cast<float>(size * unit));
  }
  return values;
}

}  // namespace

Result<std::vector<std::string>> save_random_adapters(const std::string& model, int64_t count, int64_t rank,
                                                      const std::string& folder) {
  REDLINE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(model));
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  const GgufNames& names = family->gguf;
  std::vector<std::string> paths;
  for (int64_t i = 0; i < count; ++i) {
    GgufWriter writer;
    writer.set("general.architecture",
               names.export_architecture.empty() ? names.architecture : names.export_architecture);
    writer.set("general.type", "adapter");
    writer.set("adapter.type", "lora");
    writer.set_f32("adapter.lora.alpha", static_cast<float>(rank));
    std::list<std::vector<uint16_t>> kept;
    uint64_t counter = static_cast<uint64_t>(i) << 40;
    for (const auto& [name, weight] : checkpoint.tensors) {
      const auto is_it = [&](std::string_view end) { return std::string_view(name).ends_with(end); };
      if (std::none_of(std::begin(kProjections), std::end(kProjections), is_it)) continue;
      const int64_t out = weight.view.shape[0], in = weight.view.shape[1];
      const std::string written = names.to_gguf(name);
      // The update is about a tenth of the product, so that texts differ and activations keep their size.
      kept.push_back(random_halves(rank * in, std::sqrt(3.0 / static_cast<double>(in)), counter));
      writer.add_tensor(written + ".lora_a", {DType::kF16, {rank, in}, kept.back().data()});
      kept.push_back(random_halves(out * rank, 0.1 * std::sqrt(3.0 / static_cast<double>(rank)), counter));
      writer.add_tensor(written + ".lora_b", {DType::kF16, {out, rank}, kept.back().data()});
    }
    if (kept.empty()) return unsupported("{} has no projections for random adapters", model);
    paths.push_back(fmt::format("{}/adapter-{}.gguf", folder, i));
    REDLINE_TRY(writer.write(paths.back()));
  }
  return paths;
}

}  // namespace redline::lab
