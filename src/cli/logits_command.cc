// redline logits: writes the logits of a text, for comparison with other engines.
#include <algorithm>
#include <array>

#include "base/progress.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "cli/token_list.h"
#include "formats/npy.h"

namespace redline::cli {
namespace {

struct LogitsArgs {
  std::string model, out;
  std::optional<std::string> tokens, text;
  int64_t chunk = 512;
  bool special = false, json = false;
  EngineArgs engine;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true, .aliases = {"-m", "--model"}});
    v(tokens, "tokens", "IDS|FILE", "token ids: a list such as 1,2,3, or a text file", {.names_file = true});
    v(text, "text", "TEXT", "text to tokenize, instead of --tokens", {.aliases = {"-p", "--prompt"}});
    v(special, "special", "", "with --text: parse names of special tokens as those tokens", {.needs = {"text"}});
    v(out, "out", "FILE", "output file, float32 [positions, vocabulary] as .npy",
      {.letter = 'o', .names_file = true, .is_required = true});
    v(chunk, "chunk", "N", "tokens per step", {.min = 1, .max = 1 << 20});
    v(json, "json", "", "print what was written as JSON");
    engine.visit(v);
  }
};

Status run_logits(const LogitsArgs& args, Terminal& terminal) {
  if (args.tokens.has_value() == args.text.has_value())
    return invalid_argument("give the input as either --tokens or --text{}", args.tokens ? ", not both" : "");
  std::vector<int32_t> tokens;
  if (args.tokens) {
    REDLINE_ASSIGN(tokens, read_tokens(*args.tokens).within("flag --tokens"));
  }
  REDLINE_TRY(prepare_output(args.out));
  REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
  options.max_batch_tokens = args.chunk;
  REDLINE_ASSIGN(const auto engine, open_engine(args.model, options, terminal));
  if (args.text) {
    REDLINE_ASSIGN(tokens, engine->encode(*args.text, args.special));
  }
  if (tokens.empty()) return invalid_argument("there are no tokens to compute logits for");
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t vocab_size = engine->info().vocab_size;
  if (count > engine->info().context)
    return invalid_argument("{} tokens are more than the context of {}; raise it with --context", count,
                            engine->info().context);

  REDLINE_ASSIGN(const auto sequence, engine->new_sequence());
  REDLINE_ASSIGN(NpyWriter writer, NpyWriter::create(args.out, std::array{count, vocab_size}));
  Progress progress("logits", count, {.unit = "token"});
  const InterruptGuard guard;
  Status written;
  const Status computed = sequence->append_in_steps(tokens, count, [&](int64_t, std::span<const float> logits) {
    written = writer.append(logits);
    progress.advance(std::ssize(logits) / vocab_size);
    return written.ok() && !InterruptGuard::interrupted();
  });
  REDLINE_TRY(written);
  REDLINE_TRY(computed);
  REDLINE_TRY(writer.close());
  if (args.json) {
    return print_json({{"out", args.out}, {"positions", count}, {"vocab_size", vocab_size}, {"tokens", tokens}},
                      terminal);
  }
  terminal.note("{}: float32 [{}, {}]", args.out, count, vocab_size);
  return {};
}

}  // namespace

Command logits_command() {
  return make_command<LogitsArgs, run_logits>(
             "logits", "write the logits of a text to a .npy file",
             "Row i holds the logits after token i. The file is created when it is complete.",
             {"redline logits model.gguf --tokens 1,15043,3186 --out logits.npy --dtype f32",
              "redline logits assets/redline-tales --text \"Once upon a time\" --out logits.npy"})
      .in("look inside", /*after_name=*/"template");
}

}  // namespace redline::cli
