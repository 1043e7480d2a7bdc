// Operators that repeat, pad, generate or resize: shapes, and known elements of shapes and constants.
#include <algorithm>
#include <cmath>

#include "models/onnx/onnx_inference.h"

namespace redline {
namespace onnx_rules {

Status expand(OnnxInference& in) {
  const auto target = in.held_shape(1);
  const SymbolicShape* from = in.shape(0);
  in.set(0, in.type(0));
  if (!target || from == nullptr) return {};
  REDLINE_ASSIGN(SymbolicShape out, in.broadcast(*from, *target));
  if (in.elements(1) == nullptr)
    for (SymbolicSize& size : out) size = in.sizes.unknown();
  in.set(0, in.type(0), out);
  const OnnxElements* elements = in.elements(0);
  const SymbolicSize count = in.sizes.product(out);
  if (elements == nullptr || elements->size() != 1 || !count.is_constant() || count.constant() < 0 ||
      count.constant() > OnnxElements::kMax)
    return {};
  in.set_elements(0, elements->picked(std::vector<size_t>(static_cast<size_t>(count.constant()), 0)));
  return {};
}

Status tile(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  in.set(0, in.type(0));
  if (from == nullptr) return {};
  const OnnxElements* repeats = in.elements(1);
  if (repeats == nullptr || !repeats->floats.empty()) {
    in.set(0, in.type(0), in.unknown_shape(from->size()));
    return {};
  }
  if (repeats->ints.size() != from->size())
    return in.wrong("{} repeats for a tensor of {} axes", repeats->ints.size(), from->size());
  SymbolicShape out;
  for (size_t i = 0; i < from->size(); ++i) out.push_back(in.sizes.multiply((*from)[i], repeats->ints[i]));
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status pad(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  in.set(0, in.type(0));
  if (from == nullptr) return {};
  std::optional<std::vector<SymbolicSize>> pads;
  if (const auto given = in.ints_attribute("pads")) pads.emplace(given->begin(), given->end());
  if (in.has_input(1)) {
    pads.reset();
    if (const OnnxElements* elements = in.elements(1); elements != nullptr && elements->floats.empty())
      pads = elements->ints;
  }
  std::vector<size_t> axes(from->size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = i;
  if (in.has_input(3)) {
    const auto given = in.ints(3);
    if (!given) pads.reset();
    else {
      axes.clear();
      for (const int64_t n : *given) {
        REDLINE_ASSIGN(const size_t axis, in.axis(n, from->size()));
        axes.push_back(axis);
      }
    }
  }
  if (!pads) {
    in.set(0, in.type(0), in.unknown_shape(from->size()));
    return {};
  }
  if (pads->size() != 2 * axes.size()) return in.wrong("{} pads for {} axes", pads->size(), axes.size());
  SymbolicShape out = *from;
  for (size_t i = 0; i < axes.size(); ++i)
    out[axes[i]] = in.sizes.add(out[axes[i]], in.sizes.add((*pads)[i], (*pads)[i + axes.size()]));
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status range(OnnxInference& in) {
  in.set(0, in.type(0), in.unknown_shape(1));
  const OnnxElements *start = in.elements(0), *limit = in.elements(1), *step = in.elements(2);
  if (start == nullptr || limit == nullptr || step == nullptr) return {};
  if (start->floats.size() == 1 && limit->floats.size() == 1 && step->floats.size() == 1) {
    const double count = std::ceil((limit->floats[0] - start->floats[0]) / step->floats[0]);
    if (count >= 0 && count < 0x1p40) in.set(0, in.type(0), SymbolicShape{static_cast<int64_t>(count)});
    return {};
  }
  if (start->ints.size() != 1 || limit->ints.size() != 1 || step->ints.size() != 1 || !step->ints[0].is_constant())
    return {};
  const int64_t by = step->ints[0].constant();
  if (by == 0) return in.wrong("a step of 0");
  if (by == INT64_MIN) return {};
  const SymbolicSize span =
      by > 0 ? in.sizes.subtract(limit->ints[0], start->ints[0]) : in.sizes.subtract(start->ints[0], limit->ints[0]);
  SymbolicSize count = in.sizes.ceil_divide(span, by > 0 ? by : -by);
  if (count.is_constant() && count.constant() < 0) count = 0;
  else if (!count.is_constant() && !count.is_nonnegative()) return {};  // it may be empty
  in.set(0, in.type(0), SymbolicShape{count});
  if (!count.is_constant() || count.constant() > OnnxElements::kMax) return {};
  OnnxElements elements;
  for (int64_t i = 0; i < count.constant(); ++i) elements.ints.push_back(in.sizes.add(start->ints[0], i * by));
  in.set_elements(0, std::move(elements));
  return {};
}

Status one_hot(OnnxInference& in) {
  const SymbolicShape* indices = in.shape(0);
  in.set(0, in.type(2));
  if (indices == nullptr) return {};
  REDLINE_ASSIGN(const size_t axis, in.axis(in.int_attribute("axis", -1), indices->size() + 1));
  SymbolicShape out = *indices;
  const OnnxElements* depth = in.elements(1);
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis),
             depth != nullptr && depth->ints.size() == 1 ? depth->ints[0] : in.sizes.unknown());
  in.set(0, in.type(2), std::move(out));
  return {};
}

Status non_zero(OnnxInference& in) {
  SymbolicShape out = in.unknown_shape(2);
  if (in.shape(0) != nullptr) out[0] = std::max<int64_t>(std::ssize(*in.shape(0)), 1);
  in.set(0, OnnxType::kInt64, std::move(out));
  return {};
}

/// Returns the side of the blocks of DepthToSpace and SpaceToDepth. `from`: the shape of the input.
Result<int64_t> read_block(const OnnxInference& in, const SymbolicShape& from) {
  const int64_t block = in.int_attribute("blocksize", 0);
  if (from.size() == 4 && block > 0 && block <= INT32_MAX) return block;
  return in.wrong("blocksize {} of a tensor of {} axes, expected 4", block, from.size());
}

Status depth_to_space(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  in.set(0, in.type(0));
  if (from == nullptr) return {};
  REDLINE_ASSIGN(const int64_t block, read_block(in, *from));
  const auto channels = in.sizes.divide_exactly((*from)[1], block * block);
  if (!channels && (*from)[1].is_constant())
    return in.wrong("{} channels in blocks of {} x {}", (*from)[1].constant(), block, block);
  in.set(0, in.type(0),
         SymbolicShape{(*from)[0], channels ? *channels : in.sizes.unknown(), in.sizes.multiply((*from)[2], block),
                       in.sizes.multiply((*from)[3], block)});
  return {};
}

Status space_to_depth(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  in.set(0, in.type(0));
  if (from == nullptr) return {};
  REDLINE_ASSIGN(const int64_t block, read_block(in, *from));
  in.set(0, in.type(0),
         SymbolicShape{(*from)[0], in.sizes.multiply((*from)[1], block * block),
                       in.sizes.floor_divide((*from)[2], block), in.sizes.floor_divide((*from)[3], block)});
  return {};
}

Status resize(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  in.set(0, in.type(0));
  if (from == nullptr) return {};
  // Upsample and Resize 10 have scales second; Resize 11 has (x, roi, scales, sizes).
  const bool is_old = in.op_type() == "Upsample" || in.opset() < 11;
  const OnnxElements *scales = in.elements(is_old ? 1 : 2), *wanted = is_old ? nullptr : in.elements(3);
  std::vector<double> factors = scales != nullptr ? scales->floats : std::vector<double>();
  if (const OnnxAttribute* attribute = in.attribute("scales"); attribute != nullptr && in.opset() < 9)
    factors.assign(attribute->floats.begin(), attribute->floats.end());
  std::vector<size_t> axes(from->size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = i;
  if (const auto given = in.ints_attribute("axes")) {
    axes.clear();
    for (const int64_t n : *given) {
      REDLINE_ASSIGN(const size_t axis, in.axis(n, from->size()));
      axes.push_back(axis);
    }
  }
  SymbolicShape out = *from;
  const bool keeps_ratio = in.text_attribute("keep_aspect_ratio_policy", "stretch") != "stretch";
  if (wanted != nullptr && wanted->floats.empty() && !wanted->ints.empty()) {
    if (wanted->ints.size() != axes.size()) return in.wrong("{} sizes for {} axes", wanted->ints.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) out[axes[i]] = keeps_ratio ? in.sizes.unknown() : wanted->ints[i];
  } else if (!factors.empty()) {
    if (factors.size() != axes.size()) return in.wrong("{} scales for {} axes", factors.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      SymbolicSize& size = out[axes[i]];
      const double factor = factors[i], inverse = factor > 0 ? 1 / factor : 0;
      if (!(factor > 0 && factor < 0x1p30)) return in.wrong("a scale of {}", factor);
      if (factor == std::floor(factor)) size = in.sizes.multiply(size, static_cast<int64_t>(factor));
      else if (size.is_constant() && static_cast<double>(size.constant()) * factor < 0x1p53)
        size = static_cast<int64_t>(  // in float32, as ONNX defines it: 100 * 0.29f is 29
            std::floor(static_cast<float>(size.constant()) * static_cast<float>(factor)));
      else if (inverse == std::floor(inverse) && inverse < 0x1p30)
        size = in.sizes.floor_divide(size, static_cast<int64_t>(inverse));
      else size = in.sizes.unknown();
    }
  } else {
    for (const size_t axis : axes) out[axis] = in.sizes.unknown();
  }
  in.set(0, in.type(0), std::move(out));
  return {};
}

}  // namespace onnx_rules
}  // namespace redline
