#include "server/fill_in.h"

#include <algorithm>
#include <array>
#include <optional>

#include "server/generation.h"

namespace redline::server {
namespace {

/// Markers as the vocabulary spells them. An empty middle: the text follows the second part at once.
struct FillInFormat {
  const char* name;
  const char *prefix, *suffix, *middle;
  bool has_suffix_first = false;
  const char* repository = "";
  const char* file = "";
};
constexpr FillInFormat kFillInFormats[] = {
    {"Qwen2.5-Coder", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false, "<|repo_name|>", "<|file_sep|>"},
    {"CodeGemma", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false, "", "<|file_separator|>"},
    {"StarCoder 2, Granite", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", false, "<repo_name>", "<file_sep>"},
    {"StarCoder", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", false, "<reponame>", "<filename>"},
    {"SantaCoder", "<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"DeepSeek-Coder", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"CodeLlama", "▁<PRE>", "▁<SUF>", "▁<MID>"},
    {"CodeLlama", "<PRE>", "<SUF>", "<MID>"},
    {"Codestral", "[PREFIX]", "[SUFFIX]", "", true},
    {"Seed-Coder", "<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", true},
    {"GLM-4", "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
};
/// They end the text where the vocabulary has them.
constexpr const char* kEndMarkers[] = {"<|fim_pad|>",   "<|endoftext|>", "<|file_sep|>", "<|file_separator|>",
                                       "<|repo_name|>", "<fim_pad>",     "<file_sep>",   "<repo_name>",
                                       "▁<EOT>",        "<EOT>",         "<|EOT|>",      "<[fim-pad]>"};

/// A name that is one token; nullopt: the vocabulary does not have it.
std::optional<int32_t> marker_of(const TextEngine& engine, std::string_view name) {
  if (name.empty()) return std::nullopt;
  const auto tokens = engine.encode(name, true, false);
  if (!tokens.ok() || tokens.value().size() != 1) return std::nullopt;
  return tokens.value()[0];
}

/// Appends a text, without special tokens.
std::optional<ApiError> append(const TextEngine& engine, std::string_view text, std::vector<int32_t>& tokens) {
  if (text.empty()) return std::nullopt;
  auto more = encode_text(engine, text, false, false, "prompt");
  if (!more.ok()) return more.error();
  tokens.insert(tokens.end(), more->begin(), more->end());
  return std::nullopt;
}

bool has_markers(const TextEngine& engine, const FillInFormat& f) {
  for (const char* name : {f.prefix, f.suffix, f.middle, f.file})
    if (*name && !marker_of(engine, name)) return false;
  return true;
}

}  // namespace

Outcome<FillInPrompt> fill_in_prompt(const TextEngine& engine, const FillInRequest& request, const std::string& param) {
  // First with the marker of a file, then the same families without it.
  const FillInFormat* format = std::find_if(std::begin(kFillInFormats), std::end(kFillInFormats),
                                            [&](const FillInFormat& f) { return has_markers(engine, f); });
  bool has_files = true;
  if (format == std::end(kFillInFormats)) {
    has_files = false;
    format = std::find_if(std::begin(kFillInFormats), std::end(kFillInFormats), [&](FillInFormat f) {
      f.file = "";
      return has_markers(engine, f);
    });
  }
  if (format == std::end(kFillInFormats)) {
    std::string families;
    for (const FillInFormat& f : kFillInFormats)
      if (families.find(f.name) == std::string::npos) families += (families.empty() ? "" : ", ") + std::string(f.name);
    return bad_request(param,
                       fmt::format("{} has no tokens that mark a prefix and a suffix: it continues texts, and fills "
                                   "none in. Models of these families do: {}",
                                   engine.info().path, families),
                       "unsupported_value");
  }
  FillInPrompt prompt;
  std::vector<int32_t>& tokens = prompt.tokens;
  if (auto begin = engine.encode("", true, true); begin.ok()) tokens = std::move(begin).value();
  std::optional<ApiError> error;
  const auto add = [&](std::string_view text) {
    if (!error) error = append(engine, text, tokens);
  };
  const auto mark = [&](const char* name) {
    if (const auto marker = marker_of(engine, name)) tokens.push_back(*marker);
  };
  const char* file = has_files ? format->file : "";
  if (!request.files.empty()) {
    if (const auto repository = marker_of(engine, format->repository); repository && *file) {
      tokens.push_back(*repository);
      add("project\n");
    }
    for (const auto& [name, text] : request.files) {
      mark(file);
      add(*file ? name + "\n" + text : text + "\n");
    }
    if (*file) {
      mark(file);
      add("filename\n");
    }
  }
  const auto part = [&](const char* marker, std::string_view text) {
    mark(marker);
    add(text);
  };
  if (format->has_suffix_first) part(format->suffix, request.suffix);
  part(format->prefix, request.prefix);
  if (!format->has_suffix_first) part(format->suffix, request.suffix);
  part(format->middle, request.begin);
  if (error) return *error;
  for (const char* name : kEndMarkers)
    if (const auto marker = marker_of(engine, name)) prompt.stop_tokens.push_back(*marker);
  return prompt;
}

}  // namespace redline::server
