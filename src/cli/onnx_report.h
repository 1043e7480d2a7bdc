// The network of an ONNX file for `redline inspect`: operators, inputs and outputs, and whether Redline runs it.
#pragma once

#include <string>
#include <vector>

#include "cli/json.h"
#include "cli/terminal.h"

namespace redline::cli {

struct OnnxReport {
  struct Value {
    std::string name, type;          ///< type as Redline spells it ("f32"), or as ONNX does; "" is unknown
    std::vector<std::string> shape;  ///< sizes as numbers or in the file's names
    bool has_shape = false;
    std::string shape_text;
  };
  struct Op {
    std::string name;    ///< "Conv", "com.microsoft.FastGelu"
    int64_t nodes = 0;   ///< with those of inlined functions, and of branches and loops
    int64_t folded = 0;  ///< of them: evaluated when the file is opened, from constants and shapes
    bool is_known = false;
  };
  std::string producer;
  int64_t opset = 0;
  std::vector<std::pair<std::string, int64_t>> domains;  ///< other opsets: domain, version
  std::vector<Value> inputs, outputs;
  std::vector<Op> ops;  ///< most nodes first
  int64_t nodes = 0, folded = 0, functions = 0;
  std::vector<std::string> warnings;
  Status valid;  ///< why the graph is malformed; the members above are then empty
  Status runs;   ///< why Redline does not run it: names the first node
};

/// Opens an ONNX file and checks its network. The errors are those of the file, not of its graph.
Result<OnnxReport> read_onnx_report(const std::string& path);
/// Returns Redline's name of a type of ONNX ("f32" for "float"), or ONNX's where Redline has none.
std::string onnx_type_text(int onnx_type);

Json onnx_report_json(const OnnxReport& report);
void print_onnx_report(const OnnxReport& report, Terminal& terminal);

}  // namespace redline::cli
