// redline bench tokenizer: the speed of a tokenizer on one core.
#include <algorithm>
#include <chrono>

#include "base/elapsed.h"
#include "base/mapped_file.h"
#include "base/thread_time.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "models/checkpoint/model_tokenizer.h"

namespace redline::cli {
namespace {

struct BenchTokenizerArgs {
  std::string model, file;
  float time = 2;
  bool json = false;
  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(file, "FILE", "file with the text to encode", {.names_file = true});
    v(time, "time", "SECONDS", "measuring time", {.min = 0.01, .max = 3600});
    v(json, "json", "", "print JSON");
  }
};

Status bench_tokenizer(const BenchTokenizerArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const std::string text, read_text_file(args.file));
  if (text.empty()) return invalid_argument("{}: the file is empty", args.file);
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  Result<std::unique_ptr<Tokenizer>> loaded = load_tokenizer(path);
  if (!loaded.ok()) return explain_kind(loaded.status(), path, ModelUse::kText);
  const std::unique_ptr<Tokenizer> tokenizer = std::move(loaded).value();
  const EncodeOptions options = {.add_special = false};
  const std::vector<TokenId> ids = tokenizer->encode(text, options);
  std::vector<double> seconds;
  const InterruptGuard guard;
  const auto started = std::chrono::steady_clock::now();
  while (seconds.empty() || seconds_since(started) < double{args.time}) {
    if (InterruptGuard::interrupted()) return cancelled("");
    const double begin = thread_seconds();
    const std::vector<TokenId> again = tokenizer->encode(text, options);
    seconds.push_back(thread_seconds() - begin);
    if (again != ids) return internal("{}: the text has other tokens when it is encoded again", path);
  }
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  const double mb_per_s = static_cast<double>(text.size()) / *middle / 1e6;
  if (args.json)
    return print_json({{"model", path},
                       {"kind", std::string(tokenizer->kind())},
                       {"bytes", text.size()},
                       {"tokens", ids.size()},
                       {"seconds", *middle},
                       {"mb_per_s", mb_per_s}},
                      terminal);
  terminal.print("{} bytes, {} tokens: {:.2f} ms of processor time, {:.1f} MB/s on one core, the median of {} runs\n",
                 text.size(), ids.size(), *middle * 1e3, mb_per_s, seconds.size());
  return {};
}

}  // namespace

Command bench_tokenizer_command() {
  return make_command<BenchTokenizerArgs, bench_tokenizer>(
             "bench tokenizer", "measure how fast a tokenizer encodes a text",
             "Encodes the whole file repeatedly on one thread and measures processor time. bench/tokenizers/peers.py "
             "measures the packages tokenizers and tiktoken.",
             {"redline bench tokenizer redline-tales book.txt",
              "redline bench tokenizer model.gguf book.txt --time 5 --json"})
      .in("measure", /*after_name=*/"bench device");
}

}  // namespace redline::cli
