// redline convert: writes Hugging Face folders and llama2.c checkpoints as GGUF.
#include <filesystem>

#include "base/output_file.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "formats/llama2c_to_gguf.h"
#include "models/files/checkpoint_to_gguf.h"
#include "text/gguf_vocab.h"

namespace redline::cli {
namespace {

struct ConvertArgs {
  std::string input, output, type = "auto", tokenizer;
  bool no_tokenizer = false, force = false, json = false;
  void visit(OptionList& v) {
    v.argument(input, "IN", "Hugging Face folder of a language model, or llama2.c checkpoint (.bin)",
               {.names_file = true});
    v.argument(output, "OUT", "GGUF file to write", {.names_file = true});
    v(type, "type", "TYPE", "type of the matrices of a folder; auto keeps it",
      {.choices = {"auto", "f32", "f16", "bf16"}});
    v(tokenizer, "tokenizer", "FILE", "tokenizer.bin of a llama2.c checkpoint, which requires it",
      {.names_file = true});
    v(no_tokenizer, "no-tokenizer", "", "write no vocabulary: the model takes token ids only");
    v(force, "force", "", "replace OUT if it exists");
    v(json, "json", "", "print what was written as JSON");
  }
};

/// Contents of the written file.
struct Converted {
  size_t tensors = 0;
  int64_t vocab_size = 0;
};

/// OUT must not be one of the source files.
Status check_convert_output(const ConvertArgs& args, const std::vector<std::string>& sources) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(args.output, error) && !args.force)
    return invalid_argument("{}: the file exists; --force replaces it", args.output);
  for (const std::string& source : sources)
    if (fs::equivalent(args.output, source, error))
      return invalid_argument("input and output are the same file: {}", args.output);
  return prepare_output(args.output);
}

Result<Converted> write_llama2c(const ConvertArgs& args, const std::string& input) {
  if (args.tokenizer.empty())
    return invalid_argument(
        "flag --tokenizer is missing: a llama2.c checkpoint does not contain its vocabulary; pass its "
        "tokenizer.bin");
  if (args.type != "auto" || args.no_tokenizer)
    return invalid_argument("flags --type and --no-tokenizer are for Hugging Face folders; {} is a llama2.c checkpoint",
                            input);
  REDLINE_TRY(check_convert_output(args, {input, args.tokenizer}));
  REDLINE_ASSIGN(const Llama2cFile model, Llama2cFile::open(input));
  REDLINE_ASSIGN(const std::string tokenizer, read_text_file(args.tokenizer));
  REDLINE_ASSIGN(GgufVocab vocab, vocab_from_llama2c(tokenizer, model.vocab_size).within(args.tokenizer));
  GgufWriter writer;
  REDLINE_TRY(llama2c_to_gguf(model, std::filesystem::path(input).stem().string(),
                              {std::move(vocab.tokens), std::move(vocab.scores), std::move(vocab.token_types)},
                              writer));
  REDLINE_TRY(writer.write(args.output));
  return Converted{model.tensors.size(), model.vocab_size};
}

Result<Converted> write_folder(const ConvertArgs& args, const std::string& input) {
  if (!args.tokenizer.empty())
    return invalid_argument("flag --tokenizer is for llama2.c checkpoints; {} holds its own", input);
  REDLINE_TRY(check_convert_output(args, {}));
  REDLINE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(input));
  std::vector<std::string> sources;
  for (const auto& [name, source] : checkpoint.tensors) sources.push_back(source.file->path());
  REDLINE_TRY(check_convert_output(args, sources));
  GgufExport options{.type = std::nullopt, .has_tokenizer = !args.no_tokenizer};
  if (args.type != "auto") {
    REDLINE_ASSIGN(options.type, dtype_from_name(args.type));
  }
  if (options.has_tokenizer && !checkpoint.tokenizer && checkpoint.tokenizer_status.code() == Code::not_found)
    return not_found("{}; --no-tokenizer writes the file without one", checkpoint.tokenizer_status.message());
  GgufWriter writer;
  REDLINE_TRY(checkpoint_to_gguf(checkpoint, options, writer));
  REDLINE_TRY(writer.write(args.output));
  REDLINE_ASSIGN(const GgufFile written, GgufFile::open(args.output));
  const GgufTensor* embedding = written.tensor("token_embd.weight");
  return Converted{written.tensors().size(), embedding ? embedding->view.shape.front() : 0};
}

Status run_convert(const ConvertArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const std::string input, find_model(args.input));
  REDLINE_ASSIGN(const FileKind kind, detect_file_kind(input));
  REDLINE_TRY(check_kind(input, kind, ModelUse::kConvert));
  REDLINE_ASSIGN(const Converted made,
                 kind == FileKind::kLlama2c ? write_llama2c(args, input) : write_folder(args, input));
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(args.output, error));
  if (args.json)
    return print_json(
        {{"out", args.output}, {"bytes", bytes}, {"tensors", made.tensors}, {"vocab_size", made.vocab_size}}, terminal);
  terminal.note("{}: {} tensors, {} tokens, {} bytes", args.output, made.tensors, made.vocab_size, bytes);
  return {};
}

}  // namespace

Command convert_command() {
  return make_command<ConvertArgs, run_convert>(
             "convert", "write a model of another format as a GGUF file",
             "OUT can be read by Redline and by llama.cpp. A folder may be of any language-model family that Redline "
             "runs.",
             {"redline convert redline-tales redline-tales-bf16.gguf",
              "redline convert SmolLM2-135M smollm2-f16.gguf --type f16",
              "redline convert stories260K.bin stories260K.gguf --tokenizer tok512.bin"})
      .in("prepare");
}

}  // namespace redline::cli
