// Matrices rounded to integers in groups, and how GPTQ, AWQ and compressed-tensors' pack-quantized store them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/safetensors_file.h"
#include "tensor/dtype.h"

namespace redline::testing::grouped {

// A matrix in integers ------------------------------------------------------------------------------------------------

/// value(n, k) = scale(g, n) * (code(n, k) - zero(g, n)), g = group[k]; all codes and zero points are unsigned.
struct Rounded {
  int64_t rows = 0, cols = 0, groups = 0;
  int bits = 4;
  std::vector<int32_t> group;          // of each column
  std::vector<uint32_t> codes, zeros;  // [rows, cols], [groups, rows]
  std::vector<float> scales;           // [groups, rows]
  uint32_t zero(int64_t g, int64_t n) const { return zeros[static_cast<size_t>(g * rows + n)]; }
  float scale(int64_t g, int64_t n) const { return scales[static_cast<size_t>(g * rows + n)]; }
  uint32_t code(int64_t n, int64_t k) const { return codes[static_cast<size_t>(n * cols + k)]; }
  double value(int64_t n, int64_t k) const {
    const int64_t g = group[static_cast<size_t>(k)];
    return double{scale(g, n)} * (double(code(n, k)) - double(zero(g, n)));
  }
};

struct Rounding {
  int bits = 4;
  int64_t group_size = 32;
  bool is_symmetric = true;
  bool has_order = false;  // columns are assigned to groups in a random order
  const char* scale_type = "F16";
};

inline float stored_scale(float scale, std::string_view type) {
  return type == "F16" ? f16_to_f32(f32_to_f16(scale)) : type == "BF16" ? bf16_to_f32(f32_to_bf16(scale)) : scale;
}

inline Rounded round_matrix(const std::vector<float>& values, int64_t rows, int64_t cols, const Rounding& how,
                            const std::vector<int32_t>& order) {
  Rounded r;
  r.rows = rows, r.cols = cols, r.bits = how.bits;
  const int64_t size = how.group_size > 0 ? how.group_size : cols;
  r.groups = (cols + size - 1) / size;
  for (int64_t k = 0; k < cols; ++k)
    r.group.push_back(static_cast<int32_t>((how.has_order ? order[static_cast<size_t>(k)] : k) / size));
  const double most = (1 << how.bits) - 1;
  r.zeros.resize(static_cast<size_t>(r.groups * rows));
  r.scales.resize(r.zeros.size());
  r.codes.resize(static_cast<size_t>(rows * cols));
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t g = 0; g < r.groups; ++g) {
      double low = 0, high = 0;
      for (int64_t k = 0; k < cols; ++k)
        if (r.group[static_cast<size_t>(k)] == g) {
          low = std::min(low, double{values[static_cast<size_t>(n * cols + k)]});
          high = std::max(high, double{values[static_cast<size_t>(n * cols + k)]});
        }
      const size_t at = static_cast<size_t>(g * rows + n);
      const double step = how.is_symmetric ? 2 * std::max(-low, high) / most : (high - low) / most;
      r.scales[at] = stored_scale(static_cast<float>(std::max(step, 1e-6)), how.scale_type);
      const double zero = how.is_symmetric ? (most + 1) / 2 : std::nearbyint(-low / double{r.scales[at]});
      r.zeros[at] = static_cast<uint32_t>(std::clamp(zero, 0.0, most));
    }
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t k = 0; k < cols; ++k) {
      const int64_t g = r.group[static_cast<size_t>(k)];
      const double code =
          std::nearbyint(values[static_cast<size_t>(n * cols + k)] / double{r.scale(g, n)}) + r.zero(g, n);
      r.codes[static_cast<size_t>(n * cols + k)] = static_cast<uint32_t>(std::clamp(code, 0.0, most));
    }
  return r;
}

// The formats ---------------------------------------------------------------------------------------------------------

inline void add_words(SafetensorsFile& file, const std::string& name, const std::vector<int64_t>& shape,
                      const std::vector<uint32_t>& words) {
  file.add(name, "I32", shape, words.data(), 4 * words.size());
}
inline void add_scales(SafetensorsFile& file, const std::string& name, const std::vector<int64_t>& shape,
                       const std::vector<float>& scales, std::string_view type) {
  if (type == "F32") return file.add(name, "F32", shape, scales.data(), 4 * scales.size());
  std::vector<uint16_t> halves;
  for (const float s : scales) halves.push_back(type == "F16" ? f32_to_f16(s) : f32_to_bf16(s));
  file.add(name, type == "F16" ? "F16" : "BF16", shape, halves.data(), 2 * halves.size());
}

/// Words of consecutive values along an axis: value i of word j is value(j * per + i), at bit bits * order[i].
inline std::vector<uint32_t> pack(int64_t outer, int64_t count, int bits, bool words_first,
                                  const std::function<uint32_t(int64_t outer, int64_t i)>& value,
                                  const std::vector<int>& order = {}) {
  const int64_t per = 32 / bits, words = (count + per - 1) / per;
  std::vector<uint32_t> packed(static_cast<size_t>(outer * words));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t w = i / per, place = order.empty() ? i % per : order[static_cast<size_t>(i % per)];
      packed[static_cast<size_t>(words_first ? w * outer + o : o * words + w)] |= value(o, i) << (bits * place);
    }
  return packed;
}

inline void write_gptq(SafetensorsFile& file, const std::string& module, const Rounded& r, const Rounding& how,
                       bool is_v2) {
  const int64_t per = 32 / r.bits;
  add_words(file, module + ".qweight", {r.cols / per, r.rows},
            pack(r.rows, r.cols, r.bits, true, [&](int64_t n, int64_t k) { return r.code(n, k); }));
  std::vector<uint32_t> zeros =
      pack(r.groups, r.rows, r.bits, false, [&](int64_t g, int64_t n) { return r.zero(g, n); });
  uint32_t ones = 0;
  for (int64_t i = 0; i < per; ++i) ones |= 1u << (r.bits * i);
  for (uint32_t& word : zeros) word -= is_v2 ? 0 : ones;
  add_words(file, module + ".qzeros", {r.groups, r.rows / per}, zeros);
  add_scales(file, module + ".scales", {r.groups, r.rows}, r.scales, how.scale_type);
  file.add(module + ".g_idx", "I32", {r.cols}, r.group.data(), 4 * r.group.size());
}

inline void write_awq(SafetensorsFile& file, const std::string& module, const Rounded& r, const Rounding& how) {
  // Nibble i of a word is column order[i]: column j is nibble place[j].
  const std::vector<int> place = {0, 4, 1, 5, 2, 6, 3, 7};
  add_words(file, module + ".qweight", {r.cols, r.rows / 8},
            pack(
                r.cols, r.rows, 4, false, [&](int64_t k, int64_t n) { return r.code(n, k); }, place));
  add_words(file, module + ".qzeros", {r.groups, r.rows / 8},
            pack(
                r.groups, r.rows, 4, false, [&](int64_t g, int64_t n) { return r.zero(g, n); }, place));
  add_scales(file, module + ".scales", {r.groups, r.rows}, r.scales, how.scale_type);
}

inline void write_packed(SafetensorsFile& file, const std::string& module, const Rounded& r, const Rounding& how) {
  const int64_t per = 32 / r.bits;
  add_words(file, module + ".weight_packed", {r.rows, (r.cols + per - 1) / per},
            pack(r.rows, r.cols, r.bits, false, [&](int64_t n, int64_t k) { return r.code(n, k); }));
  std::vector<float> scales(r.scales.size());
  for (int64_t n = 0; n < r.rows; ++n)
    for (int64_t g = 0; g < r.groups; ++g) scales[static_cast<size_t>(n * r.groups + g)] = r.scale(g, n);
  add_scales(file, module + ".weight_scale", {r.rows, r.groups}, scales, how.scale_type);
  if (!how.is_symmetric)
    add_words(file, module + ".weight_zero_point", {(r.rows + per - 1) / per, r.groups},
              pack(r.groups, r.rows, r.bits, true, [&](int64_t g, int64_t n) { return r.zero(g, n); }));
  const int64_t shape[2] = {r.rows, r.cols};
  file.add(module + ".weight_shape", "I64", {2}, shape, sizeof shape);
  if (how.has_order) file.add(module + ".weight_g_idx", "I32", {r.cols}, r.group.data(), 4 * r.group.size());
}

enum class Format { kGptq, kGptqV2, kAwq, kPacked };

struct Case {
  const char* name;
  Format format;
  Rounding how;
  DType type;
  bool has_bias = false, is_tied = false;
};

inline nlohmann::json quantization_config(const Case& c) {
  const int64_t group = c.how.group_size > 0 ? c.how.group_size : -1;
  switch (c.format) {
    case Format::kGptq:
    case Format::kGptqV2: {
      nlohmann::json config = {{"quant_method", "gptq"},    {"bits", c.how.bits},          {"group_size", group},
                               {"sym", c.how.is_symmetric}, {"desc_act", c.how.has_order}, {"damp_percent", 0.01}};
      if (c.format == Format::kGptqV2) config["checkpoint_format"] = "gptq_v2";
      return config;
    }
    case Format::kAwq:
      return {{"quant_method", "awq"}, {"bits", 4},          {"group_size", group},
              {"version", "gemm"},     {"zero_point", true}, {"modules_to_not_convert", nullptr}};
    case Format::kPacked: break;
  }
  nlohmann::json weights = {
      {"num_bits", c.how.bits}, {"type", "int"}, {"symmetric", c.how.is_symmetric}, {"dynamic", false}};
  weights["strategy"] = group > 0 ? "group" : "channel";
  weights["group_size"] = group > 0 ? nlohmann::json(group) : nlohmann::json(nullptr);
  weights["actorder"] = c.how.has_order ? nlohmann::json("group") : nlohmann::json(nullptr);
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"ignore", {"lm_head"}},
          {"kv_cache_scheme", nullptr},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", nullptr},
              {"output_activations", nullptr}}}}}};
}

}  // namespace redline::testing::grouped
