// redline bench device: the ceilings of a GPU, and its kernels beside them.
#include "base/progress.h"
#include "cli/command.h"
#include "cli/device_option.h"
#include "cli/json.h"
#include "cli/table.h"
#include "lab/bench/device_bench.h"

namespace redline::cli {
namespace {

struct BenchDeviceArgs {
  std::string device = "auto", random;
  std::vector<int64_t> rows = {1, 16, 64, 512};
  std::optional<int64_t> side;
  int threads = 0;
  bool record = false, json = false;
  void visit(OptionList& v) {
    add_device(v, device);
    v(random, "random", "SHAPE:TYPE", "time the kernels of a model with random weights, such as llama-8b:q4_k");
    v(rows, "rows", "M,..", "with --random: numbers of rows of a language model's steps", {.min = 1, .max = 65536});
    v(side, "side", "PIXELS", "image size for a network of --random",
      {.min = 16, .max = 8192, .shown_default = "the model's own"});
    v(record, "record", "", "store the number of rows from which the library is used, for all models on this GPU");
    v(threads, "threads", "N", "worker threads of the host",
      {.letter = 't', .min = 0, .max = 1024, .shown_default = "REDLINE_THREADS, else all cores"});
    v(json, "json", "", "print JSON");
  }
};

std::string rate(double amount, double seconds, double unit) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds / unit) : "";
}

void print_report(const lab::DeviceBenchReport& report, Terminal& terminal) {
  const DeviceSpeeds& s = report.speeds;
  terminal.print("{}: {}, {} multiprocessors, {}\n", report.device, s.model, s.multiprocessors,
                 s.library.empty() ? "no matrix library" : s.library);
  Table ceilings({"ceiling", "GB/s"}, {1});
  for (const auto& [name, bytes] : {std::pair{"read", s.read_bytes_per_s},
                                    {"copy", s.copy_bytes_per_s},
                                    {"from the host", s.upload_bytes_per_s},
                                    {"to the host", s.download_bytes_per_s}})
    ceilings.add({name, fmt::format("{:.1f}", bytes / 1e9)});
  terminal.print("\n{}", ceilings.text());
  terminal.print("  a launch takes {:.1f} us, a step of one launch {:.1f} us\n", s.launch_seconds * 1e6,
                 s.step_seconds * 1e6);
  Table peaks({"products of", "TOP/s", ""}, {1});
  for (const DeviceSpeeds::Peak& p : s.peaks)
    peaks.add({p.type, p.reason.empty() ? fmt::format("{:.1f}", p.operations_per_s / 1e12) : "",
               p.reason.empty() ? "by " + p.by : "none: " + p.reason});
  terminal.print("\n{}", peaks.text());
  Table products({fmt::format("rows of x w^T, w {0}x{0} bf16", s.products.at(0).size), "own us", "TFLOP/s",
                  "library us", "TFLOP/s"},
                 {0, 1, 2, 3, 4});
  for (const DeviceSpeeds::Product& p : s.products)
    products.add({std::to_string(p.rows), fmt::format("{:.1f}", p.own_seconds * 1e6),
                  rate(p.flops(), p.own_seconds, 1e12),
                  p.library_seconds ? fmt::format("{:.1f}", *p.library_seconds * 1e6) : "",
                  rate(p.flops(), p.library_seconds.value_or(0), 1e12)});
  terminal.print("\n{}", products.text());
  if (s.own_rows)
    terminal.print("  the library multiplies from {} rows on{}\n", *s.own_rows + 1,
                   report.record_file.empty() ? " here; --record keeps that" : ": recorded in " + report.record_file);
  for (const lab::DeviceBenchReport::Step& step : report.steps) {
    Table kernels({"kernel", "rows", "cols", "in a step", "us", "GB/s", "TFLOP/s", "of the ceiling"},
                  {1, 2, 3, 4, 5, 6, 7});
    double sum = 0;
    for (const StageTime& stage : step.stages) {
      sum += stage.seconds * static_cast<double>(stage.count);
      const double bound = report.bound_seconds(stage);
      kernels.add({stage.op + (stage.is_by_library ? " (library)" : ""), std::to_string(stage.rows),
                   std::to_string(stage.cols), std::to_string(stage.count), fmt::format("{:.1f}", stage.seconds * 1e6),
                   rate(stage.bytes, stage.seconds, 1e9), rate(stage.flops, stage.seconds, 1e12),
                   bound > 0 ? fmt::format("{:.0f}%", 100 * bound / stage.seconds) : ""});
    }
    terminal.print("\n{}  all kernels of the step, one after the other: {:.1f} us\n", kernels.text(), sum * 1e6);
  }
}

Status bench_device(const BenchDeviceArgs& args, Terminal& terminal) {
  const InterruptGuard guard;
  lab::DeviceBenchRequest request;
  request.device = args.device;
  request.random = args.random;
  request.rows = args.rows;
  request.side = args.side.value_or(0);
  request.threads = args.threads;
  request.record = args.record;
  request.on_progress = [](int64_t, int64_t) { return !InterruptGuard::interrupted(); };
  REDLINE_ASSIGN(const lab::DeviceBenchReport report, lab::run_device_bench(request));
  if (args.json) return print_json(lab::device_bench_json(report), terminal);
  print_report(report, terminal);
  return {};
}

}  // namespace

Command bench_device_command() {
  return make_command<BenchDeviceArgs, bench_device>(
             "bench device", "measure a GPU and its kernels",
             "Measures the speed of the GPU on random numbers: reads, copies, transfers from the host, and matrix "
             "products (bf16, e4m3, int8). Finds the number of rows from which the GPU's matrix library is faster than "
             "Redline's own kernels. With --random, launches each kernel of a step for all layers, and prints the time "
             "of one launch next to the minimum time that these ceilings allow. What attention, experts and "
             "recurrences read depends on the text, so only their times are shown. The emulated device is measured "
             "with small tensors, which says nothing about a GPU.",
             {"redline bench device --random llama-8b:q4_k --rows 1,16,512", "redline bench device --record",
              "redline bench device --device cuda:1 --random flux-block:bf16 --json"})
      .in("measure", /*after_name=*/"bench serve");
}

}  // namespace redline::cli
