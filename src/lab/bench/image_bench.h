// redline bench FOLDER for an image pipeline: measures steps at several sizes, and the cost of a new size and of
// adapters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/bench/progress.h"
#include "lab/json.h"
#include "machine/machine_state.h"
#include "machine/peaks.h"
#include "redline/image.h"

namespace redline::lab {

struct ImageBenchRequest {
  std::string folder, dtype, device = "auto";
  int threads = 0;
  std::optional<int64_t> side;    ///< pixels; nullopt: the model's default, and three quarters and one half of it
  std::optional<int64_t> repeat;  ///< number of steps of each size after the first two
  std::vector<std::string> lora;  ///< LoRA files
  bool check = true;
  std::string trace;
  BenchProgress on_progress;  ///< may be empty
  /// Called with each completed size and the report so far. May be empty.
  std::function<void(const struct ImageBenchReport&, const struct ImageSizeRow&)> on_row;
};

/// Times of the steps of one size. The first two are separate: their difference is the cost of a new size.
struct ImageSizeRow {
  int64_t side = 0;
  double text_ms = 0, first_ms = 0, second_ms = 0, decode_ms = 0;
  std::vector<double> step_ms;  ///< times of the other steps, sorted
  double operations = 0;        ///< operations of one step
  MachineState before, after;

  double median_ms() const { return step_ms[step_ms.size() / 2]; }
  double gop_per_s() const { return operations / median_ms() / 1e6; }
};

struct ImageAdapterRow {
  std::string file;
  double load_ms = 0, swap_ms = 0;
};

struct ImageBenchReport {
  std::string folder, family, dtype;
  double load_ms = 0;
  MachinePeaks peaks;
  std::optional<Peak> best;  ///< the fastest instruction for the matrix products of `dtype`
  std::vector<ImageSizeRow> rows;
  std::vector<ImageAdapterRow> adapters;
  double adapted_ms = 0;  ///< one step of the first size with the last adapter
  ImageEngine::MemoryReport memory;
  int64_t peak_bytes = 0;
  std::optional<double> error;  ///< error of one step relative to the float64 interpreter; nullopt: not checked
  Status failure;  ///< error that ended the bench after some rows: Ctrl-C (cancelled), a wrong answer, or another one

  double share(const ImageSizeRow& row) const { return best && best->all > 0 ? row.gop_per_s() / best->all : 0; }
  /// Returns the peak memory relative to the packed weights and the used part of the arena. The arena reserves
  /// addresses for images of the largest side, but takes memory only for the sizes that were generated.
  double peak_ratio() const;
};

/// Returns true if `path` is a pipeline folder.
bool is_pipeline(const std::string& path);

/// Measures, then checks one small step against the float64 interpreter. After an error, the report has the rows that
/// were measured before it, and the error (ImageBenchReport::failure). internal: the answers differ.
Result<ImageBenchReport> run_image_bench(const ImageBenchRequest& request);
Json image_bench_json(const ImageBenchReport& report);

}  // namespace redline::lab
