// redline convert: writes other checkpoints as GGUF.
#include <filesystem>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "formats/llama2c_to_gguf.h"
#include "text/gguf_vocab.h"

namespace redline::cli {
namespace {

struct ConvertArgs {
  std::string input, output, tokenizer;
  bool force = false, json = false;
  void visit(OptionList& v) {
    v.argument(input, "IN", "llama2.c checkpoint (.bin)", {.names_file = true});
    v.argument(output, "OUT", "GGUF file to write", {.names_file = true});
    v(tokenizer, "tokenizer", "FILE", "llama2.c tokenizer.bin of the checkpoint; required", {.names_file = true});
    v(force, "force", "", "replace OUT if it exists");
    v(json, "json", "", "print what was written as JSON");
  }
};

Status run_convert(const ConvertArgs& args, Terminal& terminal) {
  namespace fs = std::filesystem;
  REDLINE_ASSIGN(const std::string input, find_model(args.input));
  REDLINE_ASSIGN(const FileKind kind, detect_file_kind(input));
  if (kind != FileKind::kLlama2c)
    return unsupported("{}: converting from {} is not supported; supported: llama2.c checkpoints", input,
                       file_kind_name(kind));
  if (args.tokenizer.empty())
    return invalid_argument(
        "flag --tokenizer is missing: a llama2.c checkpoint does not contain its vocabulary; pass its "
        "tokenizer.bin");
  std::error_code error;
  if (fs::exists(args.output, error) && !args.force)
    return invalid_argument("{}: the file exists; --force replaces it", args.output);
  for (const std::string& source : {input, args.tokenizer})
    if (fs::equivalent(args.output, source, error))
      return invalid_argument("{}: is what is read; give OUT another name", args.output);

  REDLINE_ASSIGN(const Llama2cFile model, Llama2cFile::open(input));
  REDLINE_ASSIGN(const std::string tokenizer, read_text_file(args.tokenizer));
  REDLINE_ASSIGN(GgufVocab vocab, vocab_from_llama2c(tokenizer, model.vocab_size).within(args.tokenizer));
  GgufWriter writer;
  REDLINE_TRY(llama2c_to_gguf(model, fs::path(input).stem().string(),
                              {std::move(vocab.tokens), std::move(vocab.scores), std::move(vocab.token_types)},
                              writer));
  REDLINE_TRY(writer.write(args.output));
  const auto bytes = static_cast<int64_t>(fs::file_size(args.output, error));
  if (args.json)
    return print_json(
        {{"out", args.output}, {"bytes", bytes}, {"tensors", model.tensors.size()}, {"vocab_size", model.vocab_size}},
        terminal);
  terminal.note("{}: {} tensors, {} tokens, {} bytes", args.output, model.tensors.size(), model.vocab_size, bytes);
  return {};
}

}  // namespace

Command convert_command() {
  return make_command<ConvertArgs, run_convert>(
      "convert", "write a llama2.c checkpoint as GGUF", "OUT can be read by Redline and by llama.cpp.",
      {"redline convert stories260K.bin stories260K.gguf --tokenizer tok512.bin"});
}

}  // namespace redline::cli
