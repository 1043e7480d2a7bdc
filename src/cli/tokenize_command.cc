// redline tokenize: text to token ids and back.
#include "cli/command.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/table.h"
#include "cli/token_list.h"
#include "models/model_tokenizer.h"

namespace redline::cli {
namespace {

struct TokenizeArgs {
  std::string model;
  std::optional<std::string> text, ids;
  bool special = false, no_bos = false, json = false;
  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(text, "TEXT", "text to encode; - reads standard input, as does a pipe without TEXT",
               {.optional = true, .aliases = {"-p", "--prompt"}});
    v(ids, "ids", "IDS|FILE", "token ids to decode instead of TEXT: a list such as 1,2,3, or a text file",
      {.names_file = true});
    v(special, "special", "", "parse names of special tokens in TEXT as those tokens; with --ids, show them");
    v(no_bos, "no-bos", "", "omit the special tokens that the model adds around a text", {.not_with = {"ids"}});
    v(json, "json", "", "print JSON");
  }
};

Status run_tokenize(const TokenizeArgs& args, Terminal& terminal) {
  if (args.text && args.ids) return invalid_argument("give either TEXT to encode or --ids to decode, not both");
  std::string text = args.text.value_or("");
  if (args.text ? text == "-" : !args.ids && terminal.has_piped_input()) {
    REDLINE_ASSIGN(text, terminal.read_input());
  }
  if (!args.text && !args.ids && text.empty()) return invalid_argument("give either TEXT to encode or --ids to decode");
  std::vector<int32_t> ids;
  if (args.ids) {
    REDLINE_ASSIGN(ids, read_tokens(*args.ids).within("flag --ids"));
  }
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  REDLINE_ASSIGN(const auto tokenizer, load_tokenizer(path));
  if (args.ids) {
    for (const int32_t id : ids)
      if (id >= tokenizer->vocab_size())
        return invalid_argument("flag --ids: {} is outside the vocabulary of {}", id, tokenizer->vocab_size());
    const std::string decoded = tokenizer->decode(ids, args.special);
    if (args.json) return print_json({{"text", decoded}}, terminal, -1);
    terminal.print("{}\n", decoded);
    return {};
  }
  ids = tokenizer->encode(text, {.add_special = !args.no_bos, .parse_special = args.special});
  if (args.json) {
    Json pieces = Json::array();
    for (const int32_t id : ids) pieces.push_back(tokenizer->piece(id));
    return print_json({{"ids", ids}, {"pieces", std::move(pieces)}}, terminal, -1);
  }
  for (const int32_t id : ids)
    if (!terminal.print("{:>7}  {}\n", id, printable(tokenizer->piece(id)))) break;
  return {};
}

}  // namespace

Command tokenize_command() {
  return make_command<TokenizeArgs, run_tokenize>(
      "tokenize", "show the tokens of a text, or the text of tokens", "",
      {"redline tokenize assets/redline-tales \"Once upon a time\"", "redline tokenize model.gguf --ids 1,15043,3186",
       "redline tokenize model.gguf - --json < text.txt"});
}

}  // namespace redline::cli
