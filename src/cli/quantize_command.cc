// redline quantize: a model with smaller weights, as a GGUF file.
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>

#include "base/ascii.h"
#include "base/elapsed.h"
#include "base/output_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/table.h"
#include "models/files/quantize_file.h"

namespace redline::cli {
namespace {

struct QuantizeArgs {
  std::string input, output, type, imatrix, output_type, embedding_type;
  std::vector<std::string> tensor_types;
  bool is_pure = false, allow_requantize = false, leave_output = false, dry_run = false, force = false, json = false;
  int threads = 0;

  void visit(OptionList& v) {
    std::vector<std::string> mixes;
    mixes.reserve(quantize_mixes().size());
    for (const QuantizeMix& mix : quantize_mixes()) mixes.emplace_back(mix.name);
    v.argument(input, "IN", "GGUF file, or Hugging Face folder of a language model", {.names_file = true});
    v.argument(output, "OUT", "GGUF file to write", {.names_file = true});
    v(type, "type", "TYPE", fmt::format("type, or mix of types: {}", fmt::join(mixes, ", ")), {.is_required = true});
    v(imatrix, "imatrix", "FILE", "importance matrix of the model, from redline imatrix or llama-imatrix",
      {.names_file = true});
    v(tensor_types, "tensor-type", "REGEX=TYPE",
      "type of the tensors in whose name REGEX has a match; the last match decides");
    v(output_type, "output-tensor-type", "TYPE",
      "type of output.weight, or of the embedding if it is also the output matrix");
    v(embedding_type, "token-embedding-type", "TYPE", "type of token_embd.weight");
    v(leave_output, "leave-output-tensor", "", "keep output.weight as it is");
    v(is_pure, "pure", "", "one type for all quantized tensors instead of the mix");
    v(allow_requantize, "allow-requantize", "", "also quantize tensors that already are in a block format");
    v(threads, "threads", "N", "worker threads", {.letter = 't', .min = 0, .max = 1024, .shown_default = "all cores"});
    v(dry_run, "dry-run", "", "print the type and size of every tensor and write nothing");
    v(force, "force", "", "replace OUT if it exists");
    v(json, "json", "", "print JSON");
  }
};

Result<DType> parse_type(const std::string& flag, std::string_view name) {
  Result<DType> type = dtype_from_name(ascii_lower(name));
  if (!type.ok()) return invalid_argument("flag --{}: {}", flag, type.status().message());
  const DTypeInfo& info = dtype_info(*type);
  if (info.gguf_type < 0 || !(info.is_block || *type == DType::kF32 || *type == DType::kF16 || *type == DType::kBF16))
    return invalid_argument("flag --{}: matrices are not quantized to {}", flag, info.name);
  return *type;
}

Result<QuantizeOptions> read_options(const QuantizeArgs& args) {
  QuantizeOptions options;
  if (auto mix = find_quantize_mix(args.type); mix.ok()) options.mix = *mix;
  else return invalid_argument("flag --type: {}", mix.status().message());
  for (const std::string& text : args.tensor_types) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return invalid_argument("flag --tensor-type: \"{}\" is not REGEX=TYPE, as in ffn_down=q6_k", text);
    REDLINE_ASSIGN(const DType type, parse_type("tensor-type", std::string_view(text).substr(equals + 1)));
    try {
      options.types.emplace_back(std::regex(text.substr(0, equals)), type);
    } catch (const std::regex_error& error) {
      return invalid_argument("flag --tensor-type: \"{}\" is not a regular expression: {}", text.substr(0, equals),
                              error.what());
    }
  }
  if (!args.output_type.empty()) {
    REDLINE_ASSIGN(options.output, parse_type("output-tensor-type", args.output_type));
  }
  if (!args.embedding_type.empty()) {
    REDLINE_ASSIGN(options.embedding, parse_type("token-embedding-type", args.embedding_type));
  }
  options.keep_output = args.leave_output;
  options.is_pure = args.is_pure;
  options.requantizes = args.allow_requantize;
  return options;
}

/// Checks that every pattern of --tensor-type matches a tensor.
Status expect_matches(const QuantizeArgs& args, const QuantizeOptions& options, const ModelQuantizer& quantizer) {
  for (size_t i = 0; i < options.types.size(); ++i) {
    const auto matches = [&](const ModelQuantizer::Tensor& t) {
      return std::regex_search(t.name, options.types[i].first);
    };
    if (std::none_of(quantizer.tensors().begin(), quantizer.tensors().end(), matches))
      return invalid_argument(
          "flag --tensor-type: no tensor has a match of \"{}\"; redline inspect --tensors {} lists them",
          args.tensor_types[i], args.input);
  }
  return {};
}

/// Checks that OUT is not one of the source files, and that it fits on its disk.
Status check_quantize_output(const QuantizeArgs& args, const ModelQuantizer& quantizer) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const std::string& source : quantizer.sources())
    if (fs::equivalent(args.output, source, error))
      return invalid_argument("input and output are the same file: {}", args.output);
  if (fs::exists(args.output, error) && !args.force)
    return invalid_argument("{}: the file exists; --force replaces it", args.output);
  REDLINE_TRY(prepare_output(args.output));
  const fs::path folder = fs::absolute(args.output, error).parent_path();
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < static_cast<uintmax_t>(quantizer.file_bytes()))
    return io("{}: the file needs {}, {} are free", args.output,
              human_bytes(static_cast<double>(quantizer.file_bytes())),
              human_bytes(static_cast<double>(space.available)));
  return {};
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, " x ")); }

/// Prints which tensors do not get the requested type, and why.
void note_exceptions(const ModelQuantizer& quantizer, bool has_imatrix, Terminal& terminal) {
  int64_t fallbacks = 0, without = 0;
  const ModelQuantizer::Tensor* first = nullptr;
  for (const ModelQuantizer::Tensor& t : quantizer.tensors()) {
    if (t.is_fallback && fallbacks++ == 0) first = &t;
    without += has_imatrix && dtype_info(t.to).is_block && t.from != t.to && !t.has_weights;
  }
  if (fallbacks > 0)
    terminal.note("redline: {} tensor{} of another type, since blocks do not divide the rows: {} [{}] is {}", fallbacks,
                  fallbacks == 1 ? " is" : "s are", first->name, shape_text(first->shape), dtype_info(first->to).name);
  if (without > 0)
    terminal.note("redline: {} tensor{} without data in the importance matrix", without,
                  without == 1 ? " is" : "s are");
}

Status run_quantize(const QuantizeArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(QuantizeOptions options, read_options(args));
  REDLINE_ASSIGN(const std::string input, find_model(args.input));
  ImportanceMatrix imatrix;
  if (!args.imatrix.empty()) {
    REDLINE_ASSIGN(imatrix, ImportanceMatrix::read(args.imatrix));
    options.imatrix = &imatrix;
    options.imatrix_file = args.imatrix;
  }
  auto opened = ModelQuantizer::open(input, options);
  if (!opened.ok()) return explain_kind(std::move(opened).status(), input, ModelUse::kText);
  ModelQuantizer quantizer = std::move(opened).value();
  REDLINE_TRY(expect_matches(args, options, quantizer));
  note_exceptions(quantizer, options.imatrix != nullptr, terminal);
  if (!args.dry_run) REDLINE_TRY(check_quantize_output(args, quantizer));

  const auto begin = std::chrono::steady_clock::now();
  int threads = 0;
  if (!args.dry_run) {
    WorkerTeam team(args.threads > 0 ? args.threads
                                     : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    threads = team.size();
    const InterruptGuard guard;
    Progress progress("quantizing", quantizer.elements());
    REDLINE_TRY(quantizer.write(args.output, team, [&](int64_t elements) {
      progress.advance(elements);
      return !InterruptGuard::interrupted();
    }));
  }
  const double seconds = seconds_since(begin);

  int64_t elements = 0, to_bytes = 0;
  for (const ModelQuantizer::Tensor& t : quantizer.tensors()) {
    int64_t count = 1;
    for (const int64_t size : t.shape) count *= size;
    elements += count;
    to_bytes += t.to_bytes;
  }
  const double bits = 8 * static_cast<double>(to_bytes) / static_cast<double>(std::max<int64_t>(1, elements));
  if (args.json) {
    Json tensors = Json::array();
    if (args.dry_run)
      for (const ModelQuantizer::Tensor& t : quantizer.tensors())
        tensors.push_back({{"name", t.name},
                           {"shape", t.shape},
                           {"from", dtype_info(t.from).name},
                           {"to", dtype_info(t.to).name},
                           {"from_bytes", t.from_bytes},
                           {"to_bytes", t.to_bytes},
                           {"fallback", t.is_fallback},
                           {"weighted", t.has_weights}});
    Json json = {{"out", args.output},
                 {"type", options.mix.name},
                 {"written", !args.dry_run},
                 {"bytes", quantizer.file_bytes()},
                 {"from_bytes", quantizer.from_bytes()},
                 {"to_bytes", to_bytes},
                 {"bits_per_weight", bits}};
    if (args.dry_run) json["tensors"] = tensors;
    else json.update({{"seconds", seconds}, {"threads", threads}});
    return print_json(json, terminal);
  }
  if (args.dry_run) {
    Table table({"tensor", "shape", "from", "to", "from", "to"}, {4, 5});
    for (const ModelQuantizer::Tensor& t : quantizer.tensors())
      table.add({t.name, shape_text(t.shape), std::string(dtype_info(t.from).name), std::string(dtype_info(t.to).name),
                 human_bytes(static_cast<double>(t.from_bytes)), human_bytes(static_cast<double>(t.to_bytes))});
    terminal.print("{}", table.text());
    terminal.print("  {} as {}: {} instead of {}, {:.2f} bits per weight\n", args.output, options.mix.name,
                   human_bytes(static_cast<double>(quantizer.file_bytes())),
                   human_bytes(static_cast<double>(quantizer.from_bytes())), bits);
    return {};
  }
  terminal.note("{}: {} tensors, {}, {:.2f} bits per weight, {}", args.output, quantizer.tensors().size(),
                human_bytes(static_cast<double>(quantizer.file_bytes())), bits, duration_text(seconds));
  return {};
}

}  // namespace

Command quantize_command() {
  return make_command<QuantizeArgs, run_quantize>(
             "quantize", "make a model's weights smaller",
             "OUT is a GGUF file that Redline and llama.cpp read. Names like Q4_K_M are llama.cpp's: most matrices get "
             "one type, and error-sensitive ones get more bits. A tensor whose rows are not whole blocks of its type "
             "gets another type. With an importance matrix (redline imatrix), rounding errors are weighted by the mean "
             "squares of the activations. --type F16, BF16 or F32 converts a quantized file to plain numbers.",
             {"redline quantize SmolLM2-135M smollm2-q4_k_m.gguf --type q4_k_m",
              "redline quantize model-f16.gguf model-q3.gguf --type q3_k_m --imatrix model.imatrix.gguf",
              "redline quantize model-f16.gguf model.gguf --type q4_k_s --tensor-type 'blk\\.[0-3]\\.ffn_down=q6_k' "
              "--dry-run"})
      .in("prepare", /*after_name=*/"convert");
}

}  // namespace redline::cli
