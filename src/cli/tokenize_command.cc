// redline tokenize: text to token ids and back.
#include <algorithm>

#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/table.h"
#include "cli/token_list.h"
#include "models/checkpoint/model_tokenizer.h"

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

/// Returns the bytes of a token between quotes, escaped as in source code; bytes that are not whole characters as \xNN.
std::string quoted_bytes(std::string_view bytes) {
  std::string text = "\"";
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<uint8_t>(bytes[i]);
    const size_t size = lead < 0x80 ? 1 : lead >= 0xf0 && lead < 0xf8 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
    bool is_whole = size > 0 && lead < 0xf8 && i + size <= bytes.size();
    for (size_t k = 1; k < size && is_whole; ++k) is_whole = (static_cast<uint8_t>(bytes[i + k]) & 0xc0) == 0x80;
    if (lead == '"' || lead == '\\') text += fmt::format("\\{}", static_cast<char>(lead));
    else if (lead == '\n') text += "\\n";
    else if (lead == '\t') text += "\\t";
    else if (lead == '\r') text += "\\r";
    else if (!is_whole || lead < 0x20 || lead == 0x7f) text += fmt::format("\\x{:02x}", lead);
    else text += bytes.substr(i, size);
    i += is_whole ? size : 1;
  }
  return text + "\"";
}

/// Returns the unknown token; -1 if the vocabulary has none.
TokenId unknown_token(const Tokenizer& tokenizer) {
  for (const char* name : {"<unk>", "[UNK]", "<|unk|>"})
    if (const TokenId id = tokenizer.find(name); id >= 0) return id;
  return -1;
}

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
  Result<std::unique_ptr<Tokenizer>> loaded = load_tokenizer(path);
  if (!loaded.ok()) return explain_kind(loaded.status(), path, ModelUse::kText);
  const std::unique_ptr<Tokenizer> tokenizer = std::move(loaded).value();
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
    Json texts = Json::array();
    for (const int32_t id : ids) texts.push_back(tokenizer->token_bytes(id, true));
    return print_json({{"ids", ids}, {"pieces", std::move(pieces)}, {"texts", std::move(texts)}}, terminal, -1);
  }
  const TokenId unknown = unknown_token(*tokenizer);
  for (const int32_t id : ids) {
    const char* mark = id == unknown ? "  (unknown)" : tokenizer->is_special(id) ? "  (special)" : "";
    if (!terminal.print("{:>7}  {}{}\n", id, quoted_bytes(tokenizer->token_bytes(id, true)), mark)) break;
  }
  if (const auto count = std::count(ids.begin(), ids.end(), unknown); unknown >= 0 && count > 0)
    terminal.note("redline: {} of {} tokens {} unknown: the vocabulary of {} cannot spell that part of the text", count,
                  ids.size(), count == 1 ? "is" : "are", short_name(path));
  return {};
}

}  // namespace

Command tokenize_command() {
  return make_command<TokenizeArgs, run_tokenize>(
             "tokenize", "show the tokens of a text, or the text of tokens", "",
             {"redline tokenize assets/redline-tales \"Once upon a time\"",
              "redline tokenize model.gguf --ids 1,15043,3186", "redline tokenize model.gguf - --json < text.txt"})
      .in("look inside", /*after_name=*/"inspect");
}

}  // namespace redline::cli
