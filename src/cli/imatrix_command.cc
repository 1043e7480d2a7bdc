// redline imatrix: the importance matrix of a model, for redline quantize.
#include <chrono>
#include <filesystem>

#include "base/elapsed.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "lab/text/collect_imatrix.h"

namespace redline::cli {
namespace {

struct ImatrixArgs {
  std::string model, text, out, dtype = "auto";
  int64_t chunk_size = 512, chunks = 0;
  int threads = 0;
  bool force = false, json = false;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(text, "TEXTFILE",
               "calibration text, similar to the texts that the model will read; - reads standard input",
               {.names_file = true, .aliases = {"-f", "--file"}});
    v(out, "out", "FILE", "file to write, in llama.cpp's GGUF format",
      {.letter = 'o', .names_file = true, .aliases = {"--output-file"}, .is_required = true});
    v(chunk_size, "context", "N", "tokens of a chunk; each chunk is evaluated as a separate text",
      {.letter = 'c', .min = 2, .max = 1 << 20, .aliases = {"--ctx-size"}});
    v(chunks, "chunks", "N", "maximum number of chunks; 0: all", {.letter = 'n', .min = 0});
    v(dtype, "dtype", "TYPE", "arithmetic: f32 computes in float32 for all weight types", {.choices = {"auto", "f32"}});
    v(threads, "threads", "N", "worker threads",
      {.letter = 't', .min = 0, .max = 1024, .shown_default = "REDLINE_THREADS, else all cores"});
    v(force, "force", "", "replace FILE if it exists");
    v(json, "json", "", "print JSON");
  }
};

Status run_imatrix(const ImatrixArgs& args, Terminal& terminal) {
  std::error_code error;
  if (std::filesystem::exists(args.out, error) && !args.force)
    return invalid_argument("{}: the file exists; --force replaces it", args.out);
  lab::CollectOptions options{args.threads, Precision::kAuto, false, args.chunk_size, args.chunks, args.text};
  REDLINE_ASSIGN(options.dtype, precision_from_name(args.dtype));
  std::string text;
  if (args.text == "-") {
    REDLINE_ASSIGN(text, terminal.read_input());
  } else {
    REDLINE_ASSIGN(text, read_text_file(args.text, int64_t{1} << 30));
  }
  REDLINE_TRY(prepare_output(args.out));
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  const auto begin = std::chrono::steady_clock::now();
  const InterruptGuard guard;
  std::optional<Progress> progress;
  auto collected = lab::collect_imatrix(path, text, options, [&](int64_t, int64_t all) {
    if (!progress) progress.emplace("collecting", all, ProgressOptions{.unit = "chunk"});
    progress->advance();
    return !InterruptGuard::interrupted();
  });
  progress.reset();
  if (!collected.ok()) return explain_kind(std::move(collected).status(), path, ModelUse::kText);
  const ImportanceMatrix& matrix = *collected;
  REDLINE_TRY(matrix.write(args.out));
  const double seconds = seconds_since(begin);
  if (args.json)
    return print_json({{"out", args.out},
                       {"tensors", matrix.entries.size()},
                       {"chunks", matrix.chunks},
                       {"chunk_size", matrix.chunk_size},
                       {"seconds", seconds}},
                      terminal);
  terminal.note("{}: {} tensors, {} chunk{} of {} tokens, {}", args.out, matrix.entries.size(), matrix.chunks,
                matrix.chunks == 1 ? "" : "s", matrix.chunk_size, duration_text(seconds));
  return {};
}

}  // namespace

Command imatrix_command() {
  return make_command<ImatrixArgs, run_imatrix>(
             "imatrix", "measure which weights matter, for quantize",
             "Runs a text through the model and writes the mean square of every input column of its matrices. redline "
             "quantize --imatrix then rounds so that errors are small where activations are large. The file has the "
             "format of llama.cpp's imatrix tool; each program reads the other's files.",
             {"redline imatrix model-f16.gguf calibration.txt --out model.imatrix.gguf",
              "redline quantize model-f16.gguf model-q4.gguf --type q4_k_m --imatrix model.imatrix.gguf"})
      .in("prepare", /*after_name=*/"quantize");
}

}  // namespace redline::cli
