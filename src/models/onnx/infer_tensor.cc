// Operators that move elements: shapes, and known elements of shapes and constants.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/onnx/onnx_inference.h"

namespace redline {
namespace onnx_rules {
namespace {

std::optional<SymbolicShape> input_shape(const OnnxInference& in, size_t i) {
  const SymbolicShape* shape = in.shape(i);
  return shape == nullptr ? std::nullopt : std::optional(*shape);
}

/// Returns the size of an axis after a slice with a step of 1 from its front or to its back. Any other slice has an
/// unknown size.
SymbolicSize symbolic_slice(OnnxInference& in, const SymbolicSize& whole, const SymbolicSize& start,
                            const SymbolicSize& end) {
  SymbolicSizes& sizes = in.sizes;
  const auto is_position = [](const SymbolicSize& n) { return n.is_nonnegative(); };
  const auto is_from_back = [](const SymbolicSize& n) {
    return n.is_constant() && n.constant() < 0 && n.constant() > INT32_MIN;
  };
  const bool begins_at_front = start == SymbolicSize(0);
  const bool ends_at_back = end == whole || (end.is_constant() && end.constant() >= INT32_MAX);
  if (begins_at_front && ends_at_back) return whole;
  if (begins_at_front && is_position(end)) return sizes.smaller(end, whole);
  if (begins_at_front && is_from_back(end)) return sizes.larger(sizes.add(whole, end), 0);
  if (ends_at_back && is_position(start)) return sizes.larger(sizes.subtract(whole, start), 0);
  if (ends_at_back && is_from_back(start)) return sizes.smaller(sizes.multiply(start, -1), whole);
  return sizes.unknown();
}

}  // namespace

Status constant(OnnxInference& in) {
  if (const OnnxAttribute* value = in.attribute("value"); value != nullptr && value->tensors.size() == 1) {
    const OnnxTensor& tensor = value->tensors[0];
    in.set(0, tensor.type, SymbolicShape(tensor.shape.begin(), tensor.shape.end()));
    if (!in.has_output(0)) return {};
    OnnxValue& out = in.values()[static_cast<size_t>(in.step().outputs[0])];
    out.tensor = &tensor;
    return {};
  }
  OnnxElements elements;
  if (const OnnxAttribute* value = in.attribute("value_int")) {
    in.set(0, OnnxType::kInt64, SymbolicShape());
    elements.ints = {value->i};
  } else if ((value = in.attribute("value_float"))) {
    in.set(0, OnnxType::kFloat, SymbolicShape());
    elements.floats = {static_cast<double>(value->f)};
  } else if ((value = in.attribute("value_ints"))) {
    in.set(0, OnnxType::kInt64, SymbolicShape{std::ssize(value->ints)});
    elements.ints.assign(value->ints.begin(), value->ints.end());
  } else if ((value = in.attribute("value_floats"))) {
    in.set(0, OnnxType::kFloat, SymbolicShape{std::ssize(value->floats)});
    elements.floats.assign(value->floats.begin(), value->floats.end());
  } else if ((value = in.attribute("value_string"))) {
    in.set(0, OnnxType::kString, SymbolicShape());
    return {};
  } else if ((value = in.attribute("value_strings"))) {
    in.set(0, OnnxType::kString, SymbolicShape{std::ssize(value->strings)});
    return {};
  } else if (in.has_attribute("sparse_value")) {
    return {};
  } else {
    return in.wrong("it has no value");
  }
  in.set_elements(0, std::move(elements));
  return {};
}

Status constant_of_shape(OnnxInference& in) {
  OnnxType type = OnnxType::kFloat;
  std::shared_ptr<const OnnxElements> fill;
  if (const OnnxAttribute* value = in.attribute("value"); value != nullptr && value->tensors.size() == 1) {
    type = value->tensors[0].type;
    if (value->tensors[0].num_elements() != 1)
      return in.wrong("its value has {} elements, expected one", value->tensors[0].num_elements());
    int64_t one = 1;
    fill = read_onnx_elements(value->tensors[0], one);
  }
  std::optional<SymbolicShape> shape = in.held_shape(0);
  in.set(0, type, shape);
  if (!shape) return {};
  const SymbolicSize count = in.sizes.product(*shape);
  if (!count.is_constant() || count.constant() < 0 || count.constant() > OnnxElements::kMax) return {};
  if (in.has_attribute("value") && fill == nullptr) return {};
  OnnxElements elements;
  const auto n = static_cast<size_t>(count.constant());
  if (fill != nullptr && fill->floats.empty()) elements.ints.assign(n, fill->ints[0]);
  else elements.floats.assign(n, fill == nullptr ? 0 : fill->floats[0]);
  in.set_elements(0, std::move(elements));
  return {};
}

Status identity(OnnxInference& in) {
  in.set_alias(0, 0, input_shape(in, 0));
  if (in.has_output(0) && in.has_input(0))
    in.values()[static_cast<size_t>(in.step().outputs[0])].tensor = in.value(0).tensor;
  return {};
}

Status shape(OnnxInference& in) {
  const SymbolicShape* of = in.shape(0);
  if (of == nullptr) {
    in.set(0, OnnxType::kInt64, in.unknown_shape(1));
    return {};
  }
  const auto rank = std::ssize(*of);
  const auto bound = [&](std::string_view name, int64_t otherwise) {
    const int64_t n = in.int_attribute(name, otherwise);
    return std::clamp<int64_t>(n < 0 ? n + rank : n, 0, rank);
  };
  const int64_t start = bound("start", 0), end = std::max(start, bound("end", rank));
  in.set(0, OnnxType::kInt64, SymbolicShape{end - start});
  OnnxElements elements;
  elements.ints.assign(of->begin() + start, of->begin() + end);
  in.set_elements(0, std::move(elements));
  return {};
}

Status size(OnnxInference& in) {
  in.set(0, OnnxType::kInt64, SymbolicShape());
  if (in.shape(0) == nullptr) return {};
  OnnxElements elements;
  elements.ints = {in.sizes.product(*in.shape(0))};
  in.set_elements(0, std::move(elements));
  return {};
}

Status reshape(OnnxInference& in) {
  std::optional<SymbolicShape> target = in.held_shape(1);
  const SymbolicShape* from = in.shape(0);
  if (!target) {
    in.set(0, in.type(0));
    return {};
  }
  const bool allows_zero = in.int_attribute("allowzero", 0) != 0, is_known = in.elements(1) != nullptr;
  std::optional<size_t> inferred;
  for (size_t i = 0; i < target->size(); ++i) {
    SymbolicSize& size = (*target)[i];
    if (size == SymbolicSize(-1)) {
      if (inferred) return in.wrong("its shape {} has -1 twice", in.sizes.text(*target));
      inferred = i;
    } else if (size == SymbolicSize(0) && !allows_zero) {
      if (from != nullptr && i >= from->size())
        return in.wrong("its shape {} copies axis {} of a tensor of {} axes", in.sizes.text(*target), i, from->size());
      size = from != nullptr ? (*from)[i] : in.sizes.unknown();
    } else if (size.is_constant() && size.constant() < 0) {
      return in.wrong("its shape {} has the size {}", in.sizes.text(*target), size.constant());
    }
  }
  if (from != nullptr && is_known) {
    const SymbolicSize all = in.sizes.product(*from);
    if (inferred) {
      (*target)[*inferred] = 1;
      const SymbolicSize rest = in.sizes.product(*target);
      const auto quotient = in.sizes.divide_exactly(all, rest);
      if (!quotient && all.is_constant() && rest.is_constant() && rest.constant() > 0)
        return in.wrong("{} elements of {} do not divide into {}", all.constant(), in.sizes.text(*from),
                        rest.constant());
      (*target)[*inferred] = quotient ? *quotient : in.sizes.unknown();
    } else if (const SymbolicSize wanted = in.sizes.product(*target);
               wanted.is_constant() && all.is_constant() && wanted != all) {
      return in.wrong("{} has {} elements, its shape {} has {}", in.sizes.text(*from), all.constant(),
                      in.sizes.text(*target), wanted.constant());
    }
  } else if (inferred) {
    (*target)[*inferred] = in.sizes.unknown();
  }
  in.set_alias(0, 0, std::move(target));
  return {};
}

Status flatten(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  if (from == nullptr) {
    in.set(0, in.type(0), in.unknown_shape(2));
    return {};
  }
  const int64_t axis = in.int_attribute("axis", 1), rank = std::ssize(*from);
  if (axis < -rank || axis > rank) return in.wrong("axis {} of a tensor of {} axes", axis, rank);
  const auto at = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  in.set_alias(0, 0, SymbolicShape{in.sizes.product(*from, 0, at), in.sizes.product(*from, at, from->size())});
  return {};
}

Status squeeze(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  if (from == nullptr) {
    in.set(0, in.type(0));
    return {};
  }
  const bool has_axes = in.has_attribute("axes") || in.has_input(1);
  REDLINE_ASSIGN(const auto axes, in.axes(1, from->size(), false));
  if (!axes) {
    in.set(0, in.type(0));
    return {};
  }
  SymbolicShape out;
  for (size_t i = 0; i < from->size(); ++i) {
    const SymbolicSize& size = (*from)[i];
    const bool is_named = std::find(axes->begin(), axes->end(), i) != axes->end();
    if (is_named && size.is_constant() && size.constant() != 1)
      return in.wrong("axis {} of {} has not the size 1", i, in.sizes.text(*from));
    if (!has_axes && !size.is_constant()) {  // whether it goes is not known
      in.set(0, in.type(0));
      return {};
    }
    if (!(is_named || (!has_axes && size.constant() == 1))) out.push_back(size);
  }
  in.set_alias(0, 0, std::move(out));
  return {};
}

Status unsqueeze(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  std::optional<std::vector<int64_t>> axes = in.ints_attribute("axes");
  if (in.has_input(1)) axes = in.ints(1);
  if (from == nullptr || !axes) {
    const auto added = in.length(1);
    in.set(0, in.type(0), from && added ? std::optional(in.unknown_shape(from->size() + *added)) : std::nullopt);
    return {};
  }
  if (axes->size() > OnnxFile::kMaxRank) return in.wrong("{} axes", axes->size());
  std::vector<bool> is_new(from->size() + axes->size(), false);
  for (const int64_t n : *axes) {
    REDLINE_ASSIGN(const size_t at, in.axis(n, is_new.size()));
    if (is_new[at]) return in.wrong("axis {} is given twice", n);
    is_new[at] = true;
  }
  SymbolicShape out;
  size_t next = 0;
  for (const bool added : is_new) out.push_back(added ? SymbolicSize(1) : (*from)[next++]);
  in.set_alias(0, 0, std::move(out));
  return {};
}

Status transpose(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  if (from == nullptr) {
    in.set(0, in.type(0));
    return {};
  }
  std::vector<int64_t> order;
  if (const auto perm = in.ints_attribute("perm")) order = *perm;
  else
    for (size_t i = from->size(); i-- > 0;) order.push_back(static_cast<int64_t>(i));
  std::vector<bool> is_used(from->size(), false);
  SymbolicShape out;
  if (order.size() != from->size()) return in.wrong("perm has {} axes, the tensor {}", order.size(), from->size());
  for (const int64_t n : order) {
    REDLINE_ASSIGN(const size_t at, in.axis(n, from->size()));
    if (is_used[at]) return in.wrong("perm has axis {} twice", n);
    is_used[at] = true;
    out.push_back((*from)[at]);
  }
  in.set(0, in.type(0), out);
  if (from->size() <= 1 && in.elements(0) != nullptr) in.set_alias(0, 0, std::move(out));
  return {};
}

Status concat(OnnxInference& in) {
  std::optional<SymbolicShape> out;
  size_t axis = 0;
  OnnxElements elements;
  bool is_known = true, is_complete = true;
  OnnxType type = OnnxType::kUndefined;
  for (size_t i = 0; i < in.num_inputs(); ++i) {
    if (type == OnnxType::kUndefined) type = in.type(i);
    else if (in.type(i) != type && in.type(i) != OnnxType::kUndefined)
      return in.wrong("input {} is of {}, those before it of {}", i, onnx_type_name(in.type(i)), onnx_type_name(type));
    const SymbolicShape* shape = in.shape(i);
    if (shape == nullptr) {
      is_complete = is_known = false;
      continue;
    }
    if (!out) {
      REDLINE_ASSIGN(axis, in.axis(in.int_attribute("axis", 1), shape->size()));
      out = *shape;
    } else {
      if (shape->size() != out->size())
        return in.wrong("input {} has {} axes, those before it {}", i, shape->size(), out->size());
      for (size_t k = 0; k < out->size(); ++k) {
        const SymbolicSize &size = (*shape)[k], &has = (*out)[k];
        if (k == axis) (*out)[k] = in.sizes.add(has, size);
        else if (size.is_constant() && has.is_constant() && size != has)
          return in.wrong("input {} has the shape {}, those before it {}", i, in.sizes.text(*shape),
                          in.sizes.text(*out));
        else if (size.is_constant()) (*out)[k] = size;
      }
    }
    const OnnxElements* more = in.elements(i);
    is_known = is_known && more != nullptr && shape->size() == 1 &&
               elements.size() + more->size() <= static_cast<size_t>(OnnxElements::kMax);
    if (!is_known) continue;
    elements.ints.insert(elements.ints.end(), more->ints.begin(), more->ints.end());
    elements.floats.insert(elements.floats.end(), more->floats.begin(), more->floats.end());
  }
  if (out && !is_complete) (*out)[axis] = in.sizes.unknown();
  in.set(0, type, std::move(out));
  if (is_known && in.num_inputs() > 0) in.set_elements(0, std::move(elements));
  return {};
}

Status split(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  const size_t count = in.num_outputs();
  if (from == nullptr) {
    for (size_t i = 0; i < count; ++i) in.set(i, in.type(0));
    return {};
  }
  REDLINE_ASSIGN(const size_t axis, in.axis(in.int_attribute("axis", 0), from->size()));
  std::optional<std::vector<int64_t>> parts = in.ints_attribute("split");
  if (in.has_input(1)) parts = in.ints(1);
  if (parts && parts->size() != count) return in.wrong("split has {} parts, the node {} outputs", parts->size(), count);
  const SymbolicSize whole = (*from)[axis];
  if (parts && whole.is_constant()) {
    int64_t sum = 0;
    for (const int64_t part : *parts)
      if (part < 0 || __builtin_add_overflow(sum, part, &sum)) return in.wrong("a part has the size {}", part);
    if (sum != whole.constant())
      return in.wrong("its parts have {} in all, axis {} has {}", sum, axis, whole.constant());
  }
  const auto n = static_cast<int64_t>(count);
  const SymbolicSize each = in.sizes.ceil_divide(whole, std::max<int64_t>(n, 1));
  size_t start = 0;
  for (size_t i = 0; i < count; ++i) {
    SymbolicShape shape = *from;
    const bool is_last = i + 1 == count;
    if (parts) shape[axis] = (*parts)[i];
    else if (in.has_input(1)) shape[axis] = in.sizes.unknown();
    else shape[axis] = is_last ? in.sizes.subtract(whole, in.sizes.multiply(each, n - 1)) : each;
    in.set(i, in.type(0), shape);
    const OnnxElements* elements = in.elements(0);
    if (elements == nullptr || from->size() != 1 || !shape[0].is_constant() || shape[0].constant() < 0) continue;
    std::vector<size_t> at;
    for (size_t k = 0; k < static_cast<size_t>(shape[0].constant()) && start < elements->size(); ++k)
      at.push_back(start++);
    in.set_elements(i, elements->picked(at));
  }
  return {};
}

Status slice(OnnxInference& in) {
  const SymbolicShape* from = in.shape(0);
  if (from == nullptr) {
    in.set(0, in.type(0));
    return {};
  }
  // Attributes up to opset 9, then inputs. Bounds may have symbols, steps and axes not.
  const auto bounds = [&](size_t input, std::string_view name) -> std::optional<std::vector<SymbolicSize>> {
    if (in.has_input(input)) {
      const OnnxElements* known = in.elements(input);
      return known != nullptr && known->floats.empty() ? std::optional(known->ints) : std::nullopt;
    }
    const auto given = in.ints_attribute(name);
    return given ? std::optional(std::vector<SymbolicSize>(given->begin(), given->end())) : std::nullopt;
  };
  const auto starts = bounds(1, "starts"), ends = bounds(2, "ends");
  std::optional<std::vector<int64_t>> axes = in.has_input(3) ? in.ints(3) : in.ints_attribute("axes"),
                                      steps = in.has_input(4) ? in.ints(4) : std::nullopt;
  if (!starts || !ends || (in.has_input(3) && !axes) || (in.has_input(4) && !steps)) {
    SymbolicShape out = in.unknown_shape(from->size());
    if (axes)  // the others stay
      for (size_t i = 0; i < out.size(); ++i)
        if (std::none_of(axes->begin(), axes->end(), [&](int64_t n) {
              return n == static_cast<int64_t>(i) || n + std::ssize(*from) == static_cast<int64_t>(i);
            }))
          out[i] = (*from)[i];
    in.set(0, in.type(0), std::move(out));
    return {};
  }
  if (!axes) {
    axes.emplace();
    for (size_t i = 0; i < starts->size(); ++i) axes->push_back(static_cast<int64_t>(i));
  }
  if (starts->size() != axes->size() || ends->size() != axes->size() || (steps && steps->size() != axes->size()))
    return in.wrong("it has {} starts, {} ends and {} axes", starts->size(), ends->size(), axes->size());
  SymbolicShape out = *from;
  std::optional<std::vector<size_t>> kept;  // of one axis
  for (size_t i = 0; i < axes->size(); ++i) {
    REDLINE_ASSIGN(const size_t axis, in.axis((*axes)[i], from->size()));
    const int64_t step = steps ? (*steps)[i] : 1;
    if (step == 0) return in.wrong("a step of 0");
    const SymbolicSize &whole = (*from)[axis], &start = (*starts)[i], &end = (*ends)[i];
    if (whole.is_constant() && start.is_constant() && end.is_constant()) {
      const int64_t n = whole.constant();
      if (n == 0) continue;
      const auto position = [&](int64_t at, int64_t least, int64_t most) {
        return std::clamp(at < 0 ? at + n : at, least, most);
      };
      const int64_t a = position(start.constant(), 0, step > 0 ? n : n - 1),
                    b = position(end.constant(), step > 0 ? 0 : -1, step > 0 ? n : n - 1);
      std::vector<size_t> at;
      const int64_t span = step > 0 ? b - a : a - b;
      const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
      const int64_t count = span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride + 1);
      out[axis] = count;
      if (from->size() == 1 && in.elements(0) != nullptr) {
        for (int64_t k = 0; k < count; ++k) at.push_back(static_cast<size_t>(a + k * step));
        kept = std::move(at);
      }
      continue;
    }
    out[axis] = step == 1 ? symbolic_slice(in, whole, start, end) : in.sizes.unknown();
  }
  in.set(0, in.type(0), std::move(out));
  if (kept && axes->size() == 1 && in.elements(0)->size() >= 1) in.set_elements(0, in.elements(0)->picked(*kept));
  return {};
}

Status gather(OnnxInference& in) {
  const SymbolicShape *data = in.shape(0), *indices = in.shape(1);
  if (data == nullptr || indices == nullptr) {
    in.set(0, in.type(0));
    return {};
  }
  if (data->empty()) return in.wrong("its data is a scalar");
  REDLINE_ASSIGN(const size_t axis, in.axis(in.int_attribute("axis", 0), data->size()));
  SymbolicShape out(data->begin(), data->begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), data->begin() + static_cast<std::ptrdiff_t>(axis) + 1, data->end());
  in.set(0, in.type(0), std::move(out));
  const auto at = in.ints(1);
  if (!at || in.elements(0) == nullptr || data->size() != 1) return {};
  std::vector<size_t> positions;
  for (const int64_t n : *at) {
    const auto count = static_cast<int64_t>(in.elements(0)->size());
    if (n < -count || n >= count) return in.wrong("index {} of {} elements", n, count);
    positions.push_back(static_cast<size_t>(n < 0 ? n + count : n));
  }
  in.set_elements(0, in.elements(0)->picked(positions));
  return {};
}

Status gather_elements(OnnxInference& in) {
  in.set(0, in.type(0), input_shape(in, 1));
  return {};
}

Status gather_nd(OnnxInference& in) {
  const SymbolicShape *data = in.shape(0), *indices = in.shape(1);
  const int64_t batch = in.int_attribute("batch_dims", 0);
  in.set(0, in.type(0));
  if (data == nullptr || indices == nullptr || indices->empty() || !indices->back().is_constant()) return {};
  const int64_t depth = indices->back().constant();
  if (batch < 0 || depth < 0 || batch >= std::ssize(*indices) || batch + depth > std::ssize(*data))
    return in.wrong("indices {} of data {} with {} axes of a batch", in.sizes.text(*indices), in.sizes.text(*data),
                    batch);
  SymbolicShape out(indices->begin(), indices->end() - 1);
  out.insert(out.end(), data->begin() + batch + depth, data->end());
  in.set(0, in.type(0), std::move(out));
  return {};
}

}  // namespace onnx_rules
}  // namespace redline
