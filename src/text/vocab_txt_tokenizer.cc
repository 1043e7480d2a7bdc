// vocab.txt: the tokenizer file of BERT checkpoints, one piece a line. The other parts of a tokenizer.json follow from
// transformers' BertTokenizer.
#include "text/json_tokenizer.h"

namespace redline {

Result<std::unique_ptr<Tokenizer>> tokenizer_from_vocab_txt(std::string_view text, const HfConfig& config) {
  const std::string& name = config.tokenizer_class;
  if (!name.empty() && !name.starts_with("Bert") && !name.starts_with("DistilBert") && !name.starts_with("Electra"))
    return unsupported(
        "vocab.txt of tokenizer_class \"{}\"; Redline reads that of BertTokenizer, others from tokenizer.json", name);
  Json vocab = Json::object();
  for (int64_t id = 0; !text.empty(); ++id) {
    const size_t end = text.find('\n');
    std::string_view piece = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (piece.ends_with('\r')) piece.remove_suffix(1);
    vocab[std::string(piece)] = id;  // the last of equal lines counts, as in transformers
  }
  const auto named = [](const std::string& token, const char* otherwise) {
    return token.empty() ? std::string(otherwise) : token;
  };
  const std::string cls = named(config.cls_token, "[CLS]"), sep = named(config.sep_token, "[SEP]"),
                    unk = named(config.unk_token, "[UNK]");
  for (const std::string& token : {cls, sep, unk})
    if (!vocab.contains(token)) return invalid_argument("vocab.txt has no line \"{}\"", token);
  Json added = Json::array();
  for (const std::string& token :
       {named(config.pad_token, "[PAD]"), unk, cls, sep, named(config.mask_token, "[MASK]")}) {
    const auto id = vocab.find(token);
    if (id != vocab.end()) added.push_back({{"content", token}, {"id", *id}, {"special", true}, {"normalized", false}});
  }
  const bool lowercase = config.lowercase.value_or(true);
  const Json ends = {{"sep", {sep, vocab[sep]}}, {"cls", {cls, vocab[cls]}}};
  const Json json = {{"added_tokens", std::move(added)},
                     {"normalizer",
                      {{"type", "BertNormalizer"},
                       {"handle_chinese_chars", config.separates_chinese.value_or(true)},
                       {"strip_accents", config.strip_accents.value_or(lowercase)},
                       {"lowercase", lowercase}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"post_processor", {{"type", "BertProcessing"}, {"cls", ends["cls"]}, {"sep", ends["sep"]}}},
                     {"decoder", {{"type", "WordPiece"}}},
                     {"model", {{"type", "WordPiece"}, {"unk_token", unk}, {"vocab", std::move(vocab)}}}};
  return tokenizer_from_json_object(json, config);
}

}  // namespace redline
