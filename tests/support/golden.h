// The golden models of tests/golden: tiny random checkpoints and the logits PyTorch transformers gives for them.
// tests/golden/make_golden.py makes them and says how.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/linear/linear_choice.h"
#include "llm/llm_engine.h"
#include "redline/text.h"
#include "support/npy.h"

namespace redline::testing {

/// tests/golden with the weights that the build makes of the recipes (tests/golden/weights.py).
inline std::string golden_root() {
  const char* moved = std::getenv("REDLINE_TEST_GOLDEN");  // tools/device_check
  return moved ? moved : REDLINE_GOLDEN_DIR;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The operands that `auto` rounds to bfloat16 in steps of some rows, with float weights and the kernel table in use.
/// The engine's own choice is asked, so that no kind of CPU can be forgotten.
struct AutoRounding {
  bool bf16_products = false;  ///< x of BF16 weights
  bool f16_products = false;   ///< x and w of F16 weights
  bool attention = false;      ///< weights and values of attention

  bool any() const { return bf16_products || f16_products || attention; }
  /// Bound on the rms error of a golden model (2 layers, scores up to t = 3): 1.5 times what docs/numerics.md derives,
  /// the parts being independent.
  double golden_rms() const {
    const double products = f16_products ? 1.6e-2 : bf16_products ? 1.1e-2 : 0;
    return 1.5 * std::hypot(1.2e-3, products, attention ? 3.4e-3 : 0);
  }
  /// Bound on the largest error relative to the largest logit: errors within 4.5 standard deviations, the largest of a
  /// few thousand logits at least 2.5 times their root mean square. A row's errors come from few probabilities, so one
  /// row may have twice the rms of all. Not relative to the row's own largest logit, which may be small.
  double golden_largest() const { return 2 * 4.5 / 2.5 * golden_rms(); }
};
/// `weight_types` as ModelInfo has it: "bf16 x57, f32 x17".
inline AutoRounding auto_rounding(const std::string& weight_types) {
  AutoRounding rounding;
  const Result<const CpuKernels*> table = cpu_kernels();
  if (!table.ok()) return rounding;
  const auto rounds = [&](DType type) {
    const ActivationLayouts forms = choose_linear(**table, type, false).layouts;
    return std::any_of(forms.at, forms.at + forms.count,
                       [](const auto& at) { return at.layout == ActivationLayout::kBf16Tiled; });
  };
  const auto has = [&](const char* name) { return (" " + weight_types).find(name) != std::string::npos; };
  rounding.bf16_products = has(" bf16 x") && rounds(DType::kBF16);
  rounding.f16_products = has(" f16 x") && rounds(DType::kF16);
  constexpr auto kCache = static_cast<int>(KvFormat::kF16);
  rounding.attention = (*table)->attention[kCache] == (*table)->attention_with_tiles[kCache];
  return rounding;
}

/// Null when the file is absent or no JSON.
inline nlohmann::json read_json(const std::string& path) {
  nlohmann::json value = nlohmann::json::parse(read_text(path), nullptr, false);
  return value.is_discarded() ? nlohmann::json() : value;
}

inline std::vector<int32_t> read_tokens(const nlohmann::json& list) {
  std::vector<int32_t> tokens;
  for (const auto& t : list) tokens.push_back(t.is_number_integer() ? t.get<int32_t>() : -1);
  return tokens;
}

struct Golden {
  std::vector<int32_t> tokens;
  NpyArray logits;  ///< [tokens, vocab], float64 rounded to float32
};

/// `folder` as "tests/golden/llama_gqa"; an empty Golden, and a failed test, when a file is missing.
inline Golden load_golden(const std::string& folder) {
  Golden golden;
  golden.tokens = read_tokens(read_json(folder + "/tokens.json"));
  auto logits = read_npy(folder + "/logits.npy");
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  if (logits.ok()) golden.logits = std::move(logits).value();
  EXPECT_EQ(golden.logits.dim(0), static_cast<int64_t>(golden.tokens.size())) << folder;
  return golden;
}

/// Returns the paths that TextEngine::open can be given, relative to golden_root() and sorted: "llama_gqa",
/// "llama_gqa/model.gguf", ...
inline std::vector<std::string> golden_models() {
  std::vector<std::string> models;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(golden_root(), error)) {
    if (!std::filesystem::exists(entry.path() / "tokens.json") ||
        !std::filesystem::exists(entry.path() / "config.json"))
      continue;
    models.push_back(entry.path().filename().string());
    if (std::filesystem::exists(entry.path() / "model.gguf")) models.push_back(models.back() + "/model.gguf");
  }
  std::sort(models.begin(), models.end());
  return models;
}

/// The folder of a member of golden_models().
inline std::string golden_folder(const std::string& model) {
  return golden_root() + "/" + model.substr(0, model.find('/'));
}

struct Difference {
  double all = 0;        ///< max |got - want| / max |want|, over everything
  double worst_row = 0;  ///< the same of the row where it is largest
  double rms = 0;        ///< root mean square of got - want over that of want
  double rms_error = 0;  ///< root mean square of got - want
};

/// Compares `rows` rows of `width`; NaN in `got` counts as infinitely wrong. The errors of row r are divided by
/// conditions[r], if there are any.
template <class A, class B>
Difference difference(const A* got, const B* want, int64_t rows, int64_t width,
                      std::span<const double> conditions = {}) {
  Difference d;
  double largest_error = 0, largest = 0, error_squares = 0, squares = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double row_error = 0, row_largest = 0;
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
      if (!std::isfinite(error)) error = INFINITY;
      if (!conditions.empty()) error /= conditions[static_cast<size_t>(r)];
      row_error = std::max(row_error, error);
      row_largest = std::max(row_largest, std::abs(static_cast<double>(want[i])));
      error_squares += error * error;
      squares += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
    d.worst_row = std::max(d.worst_row, row_error / row_largest);
    largest_error = std::max(largest_error, row_error);
    largest = std::max(largest, row_largest);
  }
  d.all = largest_error / largest;
  d.rms = std::sqrt(error_squares / squares);
  d.rms_error = std::sqrt(error_squares / static_cast<double>(std::max<int64_t>(rows * width, 1)));
  return d;
}

/// How much more than the others a row magnifies roundings, seen in the errors of a float32 run: its rms error over
/// three times the median one, at least 1. A norm of numbers that nearly cancel does that, such as the gated norm of a
/// delta rule whose few heads of few channels hold keys almost orthogonal to the query: docs/numerics.md.
template <class Want>
std::vector<double> row_conditions(const float* f32, const Want* want, int64_t rows, int64_t width) {
  std::vector<double> errors;
  for (int64_t r = 0; r < rows; ++r)
    errors.push_back(difference(f32 + r * width, want + r * width, 1, width).rms_error);
  std::vector<double> sorted = errors;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted.empty() ? 0 : 3 * sorted[sorted.size() / 2];
  for (double& error : errors) error = usual > 0 ? std::max(1.0, error / usual) : 1.0;
  return errors;
}

/// TextEngine::open, or a failed test and nullptr.
inline std::unique_ptr<TextEngine> open_engine(const std::string& path, const TextEngineOptions& options) {
  auto engine = TextEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << path << ": " << engine.status().to_string();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

/// Rope scaling depends on the length of the prompt, so that a prompt cut into several calls is another one.
inline bool depends_on_length(TextEngine& engine) {
  return dynamic_cast<LlmEngine&>(engine).stepper().executable().has_input("lengths");
}

/// Logits of every token, [tokens, vocab], fed in chunks of the sizes in `chunks` (the last one repeats); empty and a
/// failed test on any error. Where rope scaling depends on the length, each chunk takes that after it.
inline std::vector<float> all_logits(Sequence& sequence, std::span<const int32_t> tokens,
                                     const std::vector<int64_t>& chunks) {
  std::vector<float> logits;
  size_t which = 0;
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min(tokens.size() - at, static_cast<size_t>(chunks[std::min(which++, chunks.size() - 1)]));
    const int64_t before = sequence.length();
    auto part = sequence.forward(tokens.subspan(at, n), true);
    EXPECT_TRUE(part.ok()) << part.status().to_string();
    if (!part.ok()) return {};
    logits.insert(logits.end(), part->begin(), part->end());
    at += n;
    EXPECT_EQ(sequence.length(), before + static_cast<int64_t>(n));
  }
  return logits;
}

inline std::vector<float> all_logits(TextEngine& engine, std::span<const int32_t> tokens,
                                     const std::vector<int64_t>& chunks = {INT32_MAX}) {
  auto sequence = engine.new_sequence();
  EXPECT_TRUE(sequence.ok()) << sequence.status().to_string();
  return sequence.ok() ? all_logits(**sequence, tokens, chunks) : std::vector<float>();
}

}  // namespace redline::testing
