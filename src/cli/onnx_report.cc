#include "cli/onnx_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "cli/table.h"
#include "formats/byte_reader.h"
#include "models/onnx/onnx_inference.h"
#include "models/onnx/onnx_network.h"

namespace redline::cli {
namespace {

OnnxReport::Value value_report(const OnnxNetwork& network, int32_t id, std::string_view name) {
  const OnnxValue& value = network.values()[static_cast<size_t>(id)];
  OnnxReport::Value out;
  out.name = name;
  if (value.type != OnnxType::kUndefined) out.type = onnx_type_text(static_cast<int>(value.type));
  if (value.kind != OnnxValueType::Kind::kTensor) out.type = "not a tensor";
  out.has_shape = value.shape.has_value();
  if (!out.has_shape) return out;
  for (const SymbolicSize& size : *value.shape) out.shape.push_back(network.sizes().text(size));
  out.shape_text = network.sizes().text(*value.shape);
  return out;
}

std::string op_text(const OnnxStep& step) {
  return step.domain.empty() ? std::string(step.node->op_type) : fmt::format("{}.{}", step.domain, step.node->op_type);
}

/// Counts the steps of a graph and of the graphs in it. `first`: the first that has to be run.
void count_steps(const OnnxSteps& graph, std::map<std::string, OnnxReport::Op>& ops, const OnnxStep*& first) {
  for (const OnnxStep& step : graph.steps) {
    OnnxReport::Op& op = ops[op_text(step)];
    op.name = op_text(step);
    op.is_known = step.op != nullptr && step.op->infer != nullptr;
    ++op.nodes;
    if (step.is_folded) ++op.folded;
    else if (first == nullptr) first = &step;
    for (const OnnxSteps& inner : step.graphs) count_steps(inner, ops, first);
  }
}

}  // namespace

std::string onnx_type_text(int onnx_type) {
  switch (static_cast<OnnxType>(onnx_type)) {
    case OnnxType::kFloat: return "f32";
    case OnnxType::kFloat16: return "f16";
    case OnnxType::kBfloat16: return "bf16";
    case OnnxType::kDouble: return "f64";
    case OnnxType::kInt8: return "i8";
    case OnnxType::kInt16: return "i16";
    case OnnxType::kInt32: return "i32";
    case OnnxType::kInt64: return "i64";
    default: return std::string(onnx_type_name(static_cast<OnnxType>(onnx_type)));
  }
}

Result<OnnxReport> read_onnx_report(const std::string& path) {
  OnnxReport report;
  REDLINE_ASSIGN(OnnxFile file, OnnxFile::open(path));
  report.producer = std::string(file.producer_name);
  if (!file.producer_version.empty()) report.producer += " " + std::string(file.producer_version);
  report.functions = std::ssize(file.functions);
  for (const OnnxOpset& opset : file.opsets) {
    if (opset.domain.empty() || opset.domain == "ai.onnx") report.opset = opset.version;
    else report.domains.emplace_back(opset.domain, opset.version);
  }
  const auto made = OnnxNetwork::make(std::move(file));
  report.valid = report.runs = made.status();
  if (!made.ok()) return report;
  const OnnxNetwork& network = **made;
  const OnnxSteps& steps = network.steps();
  for (const int32_t id : steps.inputs)
    report.inputs.push_back(value_report(network, id, network.values()[static_cast<size_t>(id)].name));
  // An output of an inlined graph has the name that it has there.
  const std::vector<OnnxValueInfo>& outputs = network.file().graph.outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    report.outputs.push_back(value_report(network, steps.outputs[i], outputs[i].name));
  std::map<std::string, OnnxReport::Op> ops;
  const OnnxStep* first = nullptr;
  count_steps(steps, ops, first);
  for (auto& [name, op] : ops) {
    report.nodes += op.nodes;
    report.folded += op.folded;
    report.ops.push_back(std::move(op));
  }
  std::stable_sort(report.ops.begin(), report.ops.end(),
                   [](const auto& a, const auto& b) { return a.nodes > b.nodes; });
  report.warnings = network.warnings();
  report.runs = first == nullptr ? unsupported("ONNX files are read and checked, not run yet")
                                 : unsupported(
                                       "ONNX files are read and checked, not run yet; the first node without an "
                                       "implementation is {} ({})",
                                       in_quotes(first->path), op_text(*first));
  return report;
}

Json onnx_report_json(const OnnxReport& report) {
  const auto values = [](const std::vector<OnnxReport::Value>& list) {
    Json out = Json::array();
    for (const OnnxReport::Value& value : list)
      out.push_back(
          {{"name", value.name}, {"type", value.type}, {"shape", value.has_shape ? Json(value.shape) : Json(nullptr)}});
    return out;
  };
  Json json = {{"producer", report.producer},
               {"opset", report.opset},
               {"domains", Json::object()},
               {"inputs", values(report.inputs)},
               {"outputs", values(report.outputs)},
               {"nodes", report.nodes},
               {"folded", report.folded},
               {"functions", report.functions},
               {"ops", Json::array()},
               {"warnings", report.warnings}};
  for (const auto& [domain, version] : report.domains) json["domains"][domain] = version;
  for (const OnnxReport::Op& op : report.ops)
    json["ops"].push_back({{"op", op.name}, {"nodes", op.nodes}, {"folded", op.folded}, {"known", op.is_known}});
  return json;
}

void print_onnx_report(const OnnxReport& report, Terminal& terminal) {
  if (!report.inputs.empty() || !report.outputs.empty()) {
    Table values({"", "name", "type", "shape"});
    const auto add = [&](const char* what, const std::vector<OnnxReport::Value>& list) {
      for (const OnnxReport::Value& value : list)
        values.add({what, value.name, value.type.empty() ? "unknown" : value.type,
                    value.has_shape ? value.shape_text : "unknown"});
    };
    add("input", report.inputs);
    add("output", report.outputs);
    terminal.print("\n{}", values.text());
  }
  if (!report.ops.empty()) {
    Table ops({"operator", "nodes", "folded", ""}, {1, 2});
    for (const OnnxReport::Op& op : report.ops)
      ops.add({op.name, fmt::format("{}", op.nodes), fmt::format("{}", op.folded),
               op.folded == op.nodes ? ""
               : op.is_known         ? "types and shapes known"
                                     : "types and shapes unknown"});
    terminal.print("\n{}", ops.text());
  }
  for (const std::string& warning : report.warnings) terminal.note("warning: {}", printable(warning));
}

}  // namespace redline::cli
