// Operators with graphs, with a size of their own, and those that choose elements.
#include <algorithm>
#include <map>

#include "models/onnx/onnx_inference.h"

namespace redline {
namespace onnx_rules {
namespace {

/// Returns the one integer of a tensor, which is a size; a new symbol if it is not known or cannot be a size.
SymbolicSize held_size(OnnxInference& in, size_t i) {
  const OnnxElements* elements = in.elements(i);
  return elements != nullptr && elements->ints.size() == 1 && elements->ints[0].is_nonnegative() ? elements->ints[0]
                                                                                                 : in.sizes.unknown();
}

/// Returns the type of a random or generated tensor: the attribute "dtype", or `otherwise`.
OnnxType stated_type(const OnnxInference& in, OnnxType otherwise) {
  const OnnxType stated = in.type_attribute("dtype");
  return stated == OnnxType::kUndefined ? otherwise : stated;
}

const OnnxValue& output_of_graph(const OnnxInference& in, const OnnxSteps& graph, size_t i) {
  return in.values()[static_cast<size_t>(graph.outputs[i])];
}

/// Sets the output of a value that a graph passes from one iteration to the next. Sizes that differ between the initial
/// value and the graph's output are unknown.
void set_carried(OnnxInference& in, size_t output, size_t input, const OnnxValue& last) {
  std::optional<SymbolicShape> shape;
  if (const SymbolicShape* first = in.shape(input);
      first != nullptr && last.shape && first->size() == last.shape->size()) {
    shape = *first;
    for (size_t i = 0; i < shape->size(); ++i)
      if ((*shape)[i] != (*last.shape)[i]) (*shape)[i] = in.sizes.unknown();
  }
  in.set(output, last.type != OnnxType::kUndefined ? last.type : in.type(input), std::move(shape));
  in.set_kind(output, last.kind);
}

/// Sets an output that has a graph's output of every iteration.
void set_stacked(OnnxInference& in, size_t output, const OnnxValue& each, const SymbolicSize& count) {
  std::optional<SymbolicShape> shape = each.shape;
  if (shape) shape->insert(shape->begin(), count);
  in.set(output, each.type, std::move(shape));
}

}  // namespace

Status loop(OnnxInference& in) {
  const std::vector<OnnxSteps>& graphs = in.step().graphs;
  if (graphs.size() != 1) return in.wrong("has {} graphs, expected its body", graphs.size());
  const size_t carried = in.num_inputs() - 2;  // without the number of iterations and the condition
  if (graphs[0].inputs.size() != carried + 2)
    return in.wrong("its body has {} inputs, expected {}", graphs[0].inputs.size(), carried + 2);
  if (graphs[0].outputs.size() != in.num_outputs() + 1)
    return in.wrong("its body has {} outputs, expected {}", graphs[0].outputs.size(), in.num_outputs() + 1);
  const SymbolicSize count = in.sizes.unknown();
  for (size_t i = 0; i < in.num_outputs(); ++i) {
    const OnnxValue& last = output_of_graph(in, graphs[0], i + 1);
    if (i < carried) set_carried(in, i, i + 2, last);
    else set_stacked(in, i, last, count);
  }
  return {};
}

Status scan(OnnxInference& in) {
  const std::vector<OnnxSteps>& graphs = in.step().graphs;
  if (graphs.size() != 1) return in.wrong("has {} graphs, expected its body", graphs.size());
  if (in.opset() < 9) return {};  // with a batch, and an input of lengths before the others
  const int64_t scanned = in.int_attribute("num_scan_inputs", 0);
  if (scanned < 1 || scanned > static_cast<int64_t>(in.num_inputs()))
    return in.wrong("num_scan_inputs is {}, it has {} inputs", scanned, in.num_inputs());
  const size_t carried = in.num_inputs() - static_cast<size_t>(scanned);
  if (graphs[0].inputs.size() != in.num_inputs() || graphs[0].outputs.size() != in.num_outputs())
    return in.wrong("its body has {} inputs and {} outputs, expected {} and {}", graphs[0].inputs.size(),
                    graphs[0].outputs.size(), in.num_inputs(), in.num_outputs());
  SymbolicSize count = in.sizes.unknown();
  const SymbolicShape* first = in.shape(carried);
  if (first != nullptr && !first->empty() && !in.has_attribute("scan_input_axes")) count = (*first)[0];
  for (size_t i = 0; i < in.num_outputs(); ++i) {
    const OnnxValue& last = output_of_graph(in, graphs[0], i);
    if (i < carried) set_carried(in, i, i, last);
    else if (in.has_attribute("scan_output_axes")) in.set(i, last.type);
    else set_stacked(in, i, last, count);
  }
  return {};
}

Status einsum(OnnxInference& in) {
  in.set(0, in.type(0));
  std::string equation;
  for (const char c : in.text_attribute("equation", ""))
    if (c != ' ') equation += c;
  if (equation.empty()) return in.wrong("it has no equation");
  if (equation.find('.') != std::string::npos) return {};  // any number of axes
  const size_t arrow = equation.find("->");
  std::string left = equation.substr(0, arrow);
  std::map<char, SymbolicSize> sizes;
  std::map<char, int> uses;
  size_t at = 0;
  for (size_t i = 0; i < in.num_inputs(); ++i) {
    const size_t end = std::min(left.find(',', at), left.size());
    if (at > left.size()) return in.wrong("its equation {} has fewer terms than the node inputs", equation);
    const std::string term = left.substr(at, end - at);
    at = end + 1;
    const SymbolicShape* shape = in.shape(i);
    if (shape == nullptr) return {};
    if (shape->size() != term.size())
      return in.wrong("term {} of its equation has {} axes, input {} has {}", term, term.size(), i, shape->size());
    for (size_t k = 0; k < term.size(); ++k) {
      ++uses[term[k]];
      const auto [known, is_new] = sizes.emplace(term[k], (*shape)[k]);
      if (is_new) continue;
      if (known->second.is_constant() && (*shape)[k].is_constant() && known->second != (*shape)[k] &&
          known->second != SymbolicSize(1) && (*shape)[k] != SymbolicSize(1))
        return in.wrong("axis {} of its equation {} has the sizes {} and {}", term[k], equation,
                        known->second.constant(), (*shape)[k].constant());
      if (!known->second.is_constant() || known->second == SymbolicSize(1)) known->second = (*shape)[k];
    }
  }
  std::string result;
  if (arrow != std::string::npos) result = equation.substr(arrow + 2);
  else
    for (const auto& [letter, count] : uses)
      if (count == 1) result += letter;
  SymbolicShape out;
  for (const char letter : result) {
    const auto known = sizes.find(letter);
    if (known == sizes.end()) return in.wrong("axis {} of its result is in no term of {}", letter, equation);
    out.push_back(known->second);
  }
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status eye_like(OnnxInference& in) {
  const SymbolicShape* shape = in.shape(0);
  in.set(0, stated_type(in, in.type(0)), shape == nullptr ? std::nullopt : std::optional(*shape));
  return {};
}

Status random(OnnxInference& in) {
  const auto shape = in.ints_attribute("shape");
  in.set(0, stated_type(in, OnnxType::kFloat),
         shape ? std::optional(SymbolicShape(shape->begin(), shape->end())) : std::nullopt);
  return {};
}

Status window(OnnxInference& in) {
  const OnnxType type = in.type_attribute("output_datatype");
  in.set(0, type == OnnxType::kUndefined ? OnnxType::kFloat : type, SymbolicShape{held_size(in, 0)});
  return {};
}

Status non_max_suppression(OnnxInference& in) {
  in.set(0, OnnxType::kInt64, SymbolicShape{in.sizes.unknown(), 3});  // batch, class and box of each that is chosen
  return {};
}

Status roi_align(OnnxInference& in) {
  const SymbolicShape *x = in.shape(0), *boxes = in.shape(1);
  in.set(0, in.type(0));
  if (x == nullptr || boxes == nullptr) return {};
  if (x->size() != 4 || boxes->size() != 2)
    return in.wrong("its input has {} axes and its boxes {}, expected 4 and 2", x->size(), boxes->size());
  in.set(
      0, in.type(0),
      SymbolicShape{(*boxes)[0], (*x)[1], in.int_attribute("output_height", 1), in.int_attribute("output_width", 1)});
  return {};
}

Status grid_sample(OnnxInference& in) {
  const SymbolicShape *x = in.shape(0), *grid = in.shape(1);  // [batch, channels, ...], [batch, ..., axes]
  in.set(0, in.type(0));
  if (x == nullptr || grid == nullptr) return {};
  if (x->size() < 3 || grid->size() != x->size())
    return in.wrong("its input has {} axes and its grid {}, expected the same number, 3 or more", x->size(),
                    grid->size());
  SymbolicShape out = {(*x)[0], (*x)[1]};
  out.insert(out.end(), grid->begin() + 1, grid->end() - 1);
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status compress(OnnxInference& in) {
  const SymbolicShape* x = in.shape(0);
  in.set(0, in.type(0));
  if (x == nullptr) return {};
  SymbolicShape out = {in.sizes.unknown()};
  if (in.has_attribute("axis")) {
    REDLINE_ASSIGN(const size_t axis, in.axis(in.int_attribute("axis", 0), x->size()));
    const SymbolicSize chosen = out[0];
    out = *x;
    out[axis] = chosen;
  }
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status multi_head_attention(OnnxInference& in) {
  for (size_t i = 0; i < in.num_outputs(); ++i) in.set(i, in.type(0));
  const SymbolicShape *query = in.shape(0), *value = in.shape(2);
  if (query == nullptr || value == nullptr || query->size() != 3 || value->size() != 3) return {};
  in.set(0, in.type(0), SymbolicShape{(*query)[0], (*query)[1], (*value)[2]});
  return {};
}

}  // namespace onnx_rules
}  // namespace redline
