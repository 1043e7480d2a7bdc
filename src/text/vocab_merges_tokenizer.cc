// vocab.json and merges.txt: the tokenizer files of CLIP checkpoints. The other parts of a tokenizer.json follow from
// transformers' CLIPTokenizer.
#include "text/json_tokenizer.h"

namespace redline {
namespace {

constexpr std::string_view kEndOfWord = "</w>";

/// Reads the lines "left right" whose result is in the vocabulary. The others are skipped: the published list is longer
/// than the one CLIP uses.
Result<Json> read_merges(std::string_view text, const Json& vocab) {
  Json merges = Json::array();
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    std::string_view merge = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (merge.ends_with('\r')) merge.remove_suffix(1);
    if (merge.empty() || (line == 1 && merge.starts_with("#version"))) continue;
    const size_t space = merge.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == merge.size())
      return invalid_argument("merges.txt, line {}: \"{}\", expected two pieces with a space between", line, merge);
    std::string left(merge.substr(0, space)), right(merge.substr(space + 1));
    if (vocab.contains(left + right)) merges.push_back({std::move(left), std::move(right)});
  }
  return merges;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_from_vocab_and_merges(std::string_view vocab_json,
                                                                   std::string_view merges_txt,
                                                                   const HfConfig& config) {
  if (!config.tokenizer_class.starts_with("CLIPTokenizer"))
    return unsupported(
        "vocab.json and merges.txt of tokenizer_class \"{}\"; Redline reads those of CLIPTokenizer, others "
        "from tokenizer.json",
        config.tokenizer_class);
  REDLINE_ASSIGN(Json vocab, parse_json(vocab_json, "vocab.json"));
  if (!vocab.is_object()) return invalid_argument("vocab.json: expected an object, got {}", vocab.type_name());
  REDLINE_ASSIGN(Json merges, read_merges(merges_txt, vocab));
  const auto named = [](const std::string& token, const char* otherwise) {
    return token.empty() ? std::string(otherwise) : token;
  };
  HfConfig full = config;
  full.bos_token = named(config.bos_token, "<|startoftext|>");
  full.eos_token = named(config.eos_token, "<|endoftext|>");
  full.unk_token = named(config.unk_token, "<|endoftext|>");
  Json added = Json::array();
  Json ends;
  for (const std::string& token : {full.bos_token, full.eos_token}) {
    const auto id = vocab.find(token);
    if (id == vocab.end()) return invalid_argument("vocab.json has no \"{}\"", token);
    ends.push_back({token, *id});
    added.push_back({{"content", token}, {"id", *id}, {"special", true}, {"normalized", false}});
  }
  const Json json = {
      {"added_tokens", std::move(added)},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "NFC"}},
          {{"type", "Replace"}, {"pattern", {{"Regex", R"(\s+)"}}}, {"content", " "}},
          {{"type", "Lowercase"}}}}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern",
            {{"Regex",
              R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)"}}},
           {"behavior", "Removed"},
           {"invert", true}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}}},
      {"post_processor", {{"type", "RobertaProcessing"}, {"cls", ends[0]}, {"sep", ends[1]}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", full.unk_token},
        {"end_of_word_suffix", kEndOfWord},
        {"vocab", std::move(vocab)},
        {"merges", std::move(merges)}}}};
  return tokenizer_from_json_object(json, full);
}

}  // namespace redline
