// Pre-tokenizers named by tokenizer.ggml.pre of GGUF files. Patterns are those of the published tokenizers
// (tokenizer.json or tiktoken files), also where llama.cpp rewrites one for its own regex engine. One row per name.
#include <algorithm>

#include "base/text_distance.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace redline {

namespace {
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}  // namespace

const std::string_view kGpt2Pattern = kGpt2;

namespace {

#define CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TAIL R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define BEFORE_WORD R"([^\r\n\p{L}\p{N}]?)"

constexpr const char* kLlama3 = CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" TAIL;
constexpr const char* kQwen2 = CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" TAIL;
constexpr const char* kQwen35 =
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" TAIL;
constexpr const char* kJais2 = CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S))"
    R"(|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr const char* kGpt4o = BEFORE_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE_WORD UPPER "+" LOWER
                                                 "*" CONTRACTIONS R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" TAIL;
constexpr const char* kTekken =
    BEFORE_WORD UPPER "*" LOWER "+|" BEFORE_WORD UPPER "+" LOWER R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" TAIL;
constexpr const char* kYoutu = BEFORE_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE_WORD UPPER "+" LOWER
                                                 "*" CONTRACTIONS R"(?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" TAIL;
// Kimi's [..&&[^\p{Han}]], written as a lookahead.
#define KIMI_UPPER R"((?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))"
#define KIMI_LOWER R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))"
constexpr const char* kKimi =
    R"(\p{Han}+|)" BEFORE_WORD KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTIONS "?|" BEFORE_WORD KIMI_UPPER "+" KIMI_LOWER
    "*" CONTRACTIONS R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" TAIL;
// The cased letters of DeepSeek's Unicode version; \p{L} would match more.
constexpr const char* kDeepseekLetters =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1})"
    R"(\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"
    R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"
    R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b})"
    R"(\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc})"
    R"(\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})"
    R"(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139})"
    R"(\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787})"
    R"(\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a})"
    R"(\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2})"
    R"(\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
// The published pattern is "\s+$"; requiring the start of the run gives the same matches without a scan per character.
constexpr const char* kSpaceAtEnd = R"((?<!\s)\s+$)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*)" TAIL;
constexpr const char* kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";
constexpr const char* kLines = R"([^\n]+|[\n]+)";
constexpr const char* kDigitTriples = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
constexpr const char* kDecimalCuts = R"((?=(\d{3})+(?!\d)))";
constexpr const char* kDecimalWords = R"(\d{1,3}(?=(?:\d{3})*\b))";

}  // namespace

const std::string_view kLlama3Pattern = kLlama3, kQwen2Pattern = kQwen2, kGpt4oPattern = kGpt4o;

namespace {

enum : unsigned { kIgnoreMerges = 1, kAddBos = 2, kRawUtf8 = 4 };

struct Row {
  const char* names;  ///< names in tokenizer.ggml.pre, separated by spaces
  std::vector<const char*> patterns;
  unsigned flags = 0;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
       {kLlama3},
       kIgnoreMerges | kAddBos},
      {"dbrx smaug-bpe glm4 chatglm-bpe", {kLlama3}},
      {"jais-2", {kJais2}},
      {"deepseek-llm",
       {"[\r\n]", kDeepseekLetters, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", kSpaceAtEnd, "[一-龥ࠀ-一가-퟿]+",
        R"(\p{N}+)"}},
      {"deepseek-coder", {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"}},
      {"deepseek-v3 hunyuan-dense joyai-llm", {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseekV3}},
      {"youtu",
       {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        kYoutu},
       kIgnoreMerges},
      {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", {R"(\p{N})", kGpt2}},
      {"gpt-2 gpt-neox phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe gigachat "
       "a.x-4.0 mellum "
       "modern-bert mpt olmo jais trillion granite-docling exaone4",
       {kGpt2}},
      {"qwen2 stablelm2 hunyuan solar-open megrez grok-2 deepseek-r1-qwen kormo f2llmv2", {kQwen2}},
      {"qwen35", {kQwen35}},
      {"poro-chat bloom gpt3-finnish", {kBloom}},
      {"viking", {kBloom, R"(\p{N})"}},
      {"tekken", {kTekken}, kIgnoreMerges | kAddBos},
      {"gpt-4o llama4 kanana2 talkie minimax-m2", {kGpt4o}},
      {"granite-embed-multi-97m", {kGpt4o}, kIgnoreMerges},
      {"tiny_aya cohere2moe", {kDecimalWords, kGpt4o}},
      {"kimi-k2", {kKimi}},
      {"superbpe", {R"(\p{N}+)", kDecimalCuts}},
      {"chameleon",
       {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", R"(\p{N})",
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
       kAddBos},
      {"bailingmoe bailingmoe2 llada-moe",
       {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {"seed-coder", {CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" TAIL}},
      {"afmoe",
       {kDigitTriples,
        "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
        kDeepseekV3}},
      {"laguna", {kLines, kQwen2}},
      {"exaone-moe",
       {CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
                     R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {"minicpm5",
       {R"(\p{N}{1,3})", CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)" TAIL},
       kIgnoreMerges},
      {"gemma4 granite-embed-multi-311m", {kLines}, kRawUtf8 | kAddBos},
      {"sarvam-moe", {kLines}, kRawUtf8},
  };
  return table;
}

}  // namespace

std::optional<DigitGroupsStep> digit_groups_of(std::string_view pattern) {
  using Kind = DigitGroupsStep::Kind;
  if (pattern == kDigitTriples) return DigitGroupsStep{Kind::numeric};
  if (pattern == kDecimalWords) return DigitGroupsStep{Kind::decimal_words};
  if (pattern == kDecimalCuts) return DigitGroupsStep{Kind::decimal_cuts};
  return std::nullopt;
}

std::string_view name_of_pre_tokenizer(const std::vector<std::string>& patterns, bool ignore_merges) {
  for (const Row& row : rows()) {
    if (!std::equal(patterns.begin(), patterns.end(), row.patterns.begin(), row.patterns.end())) continue;
    if (((row.flags & kIgnoreMerges) != 0) != ignore_merges || (row.flags & kRawUtf8) != 0) continue;
    const std::string_view names = row.names;
    return names.substr(0, names.find(' '));
  }
  return "";
}

Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name) {
  std::string known;
  for (const Row& row : rows()) {
    if (fmt::format(" {} ", row.names).find(fmt::format(" {} ", name)) == std::string::npos || name.empty()) {
      known += known.empty() ? "" : ", ";
      known += replace_all(row.names, " ", ", ");
      continue;
    }
    NamedPreTokenizer made;
    for (const char* pattern : row.patterns) {
      if (const auto groups = digit_groups_of(pattern)) {
        made.steps.add(*groups);
      } else {
        REDLINE_ASSIGN(Regex regex, Regex::compile(pattern));
        made.steps.add(SplitStep{std::move(regex), SplitBehavior::isolated, false});
      }
    }
    made.ignore_merges = row.flags & kIgnoreMerges;
    made.add_bos = row.flags & kAddBos;
    made.spell_bytes = !(row.flags & kRawUtf8);
    if (made.spell_bytes) made.steps.add(ByteLevelStep{});
    return made;
  }
  return unsupported("pre-tokenizer \"{}\" is unknown{}; known are {}", name, the_nearest(name, known), known);
}

}  // namespace redline
