#include "cli/kernel_bench_args.h"

#include <charconv>

#include "tensor/dtype.h"

namespace redline::cli {
namespace {

/// Parses shapes such as "8192x2048,2048x2048".
Result<std::vector<std::vector<int64_t>>> parse_shapes(const std::string& text) {
  std::vector<std::vector<int64_t>> shapes(1);
  for (const char* at = text.data(); const char* const end = text.data() + text.size();) {
    int64_t size = 0;
    const auto [rest, error] = std::from_chars(at, end, size);
    if (error != std::errc() || (rest != end && *rest != 'x' && *rest != ','))
      return invalid_argument("flag --shape: \"{}\" should read like 8192x2048 or 8192x2048,2048x8192", text);
    shapes.back().push_back(size);
    if (rest == end) return shapes;
    if (*rest == ',') shapes.emplace_back();
    at = rest + 1;
  }
  return shapes;
}

std::vector<std::string> parse_names(const std::string& text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == ',') names.emplace_back();
    else names.back() += c;
  }
  return names;
}

}  // namespace

void KernelBenchArgs::visit(OptionList& v) {
  v(kernel, "kernel", "NAME", "benchmark one kernel instead of a model; \"help\" lists them");
  v(rows, "rows", "M,..", "with --kernel: rows of activations",
    {.min = 1, .shown_default = "1,4,16,64,512", .needs = {"kernel"}});
  v(shape, "shape", "NxK,..", "with --kernel: sizes, as listed by --kernel help",
    {.shown_default = "8192x2048 for linear kernels", .needs = {"kernel"}});
  v(type, "type", "TYPE,..", "with --kernel: weight types",
    {.shown_default = "q4_0; f16 for attention", .needs = {"kernel"}});
  v(isa, "isa", "SET", "with --kernel: the highest instruction set to use",
    {.shown_default = "REDLINE_CPU_ISA, else all", .needs = {"kernel"}});
  v(cached, "cached", "", "with --kernel: keep inputs in the caches", {.needs = {"kernel"}});
  v(seconds, "seconds", "S", "with --kernel: measuring time per row", {.min = 0.001, .max = 3600, .needs = {"kernel"}});
  v(baseline, "baseline", "NAME", "with --kernel: kernel of the same shape to score against", {.needs = {"kernel"}});
  v(record, "record", "FOLDER", "with --kernel: append the results to FOLDER/traces",
    {.names_file = true, .needs = {"kernel"}});
}

Result<lab::KernelBenchRequest> KernelBenchArgs::request(int threads) const {
  if (kernel == "onednn" && !record.empty())
    return invalid_argument("flag --record: records are of our own kernels; leave it out for onednn");
  lab::KernelBenchRequest request;
  request.kernel = kernel;
  if (!shape.empty()) {
    REDLINE_ASSIGN(request.shapes, parse_shapes(shape));
  }
  if (!type.empty()) request.types = parse_names(type);
  for (const std::string& name : request.types)  // types of the kernel `sampler` are checked together with its shape
    if (const Result<DType> known = dtype_from_name(name); !known.ok() && kernel != "sampler")
      return invalid_argument("flag --type: {}", known.status().message());
  request.rows = rows;
  request.isa = isa;
  request.baseline = baseline;
  request.threads = threads;
  request.cached = cached;
  request.seconds = double{seconds};
  return request;
}

}  // namespace redline::cli
