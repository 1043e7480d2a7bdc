#include "server/fill_in.h"

#include <algorithm>
#include <optional>

#include "redline/fill_in.h"
#include "server/generation.h"

namespace redline::server {
namespace {

/// The markers of a family, as the vocabulary spells them. If `middle` is empty, the generated text directly follows
/// the second part of the prompt.
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
/// Markers that end the generated text, if the vocabulary has them.
constexpr const char* kEndMarkers[] = {"<|fim_pad|>",   "<|endoftext|>", "<|file_sep|>", "<|file_separator|>",
                                       "<|repo_name|>", "<fim_pad>",     "<file_sep>",   "<repo_name>",
                                       "▁<EOT>",        "<EOT>",         "<|EOT|>",      "<[fim-pad]>"};

/// Returns the token with this name. nullopt: the vocabulary does not have it.
std::optional<int32_t> marker_of(const TextEngine& engine, std::string_view name) {
  if (name.empty()) return std::nullopt;
  const auto tokens = engine.encode(name, true, false);
  if (!tokens.ok() || tokens.value().size() != 1) return std::nullopt;
  return tokens.value()[0];
}

/// Appends the tokens of a text, without special tokens.
std::optional<ApiError> append(const TextEngine& engine, std::string_view text, std::vector<int32_t>& tokens) {
  if (text.empty()) return std::nullopt;
  auto more = encode_text(engine, text, false, false, "prompt");
  if (!more.ok()) return more.error();
  tokens.insert(tokens.end(), more->begin(), more->end());
  return std::nullopt;
}

/// The markers of a prompt.
struct Markers {
  std::optional<int32_t> prefix, suffix, middle, repository, file, pad;
  bool has_suffix_first = false;
};

Markers markers_of(const TextEngine& engine, const FillInFormat& f) {
  return {.prefix = marker_of(engine, f.prefix),
          .suffix = marker_of(engine, f.suffix),
          .middle = marker_of(engine, f.middle),
          .repository = marker_of(engine, f.repository),
          .file = marker_of(engine, f.file),
          .pad = std::nullopt,
          .has_suffix_first = f.has_suffix_first};
}

/// Returns the markers of the first family whose markers are in the vocabulary. Families whose file marker is in it
/// come first.
std::optional<Markers> markers_by_name(const TextEngine& engine) {
  for (const bool needs_file : {true, false})
    for (const FillInFormat& f : kFillInFormats) {
      const Markers m = markers_of(engine, f);
      if (m.prefix && m.suffix && (m.middle || !*f.middle) && (m.file || !*f.file || !needs_file)) return m;
    }
  return std::nullopt;
}

/// Returns the markers that the model's file names; nullopt: it does not name both a prefix and a suffix. If a family
/// has the same two tokens, its order and the markers that the file leaves out are those of the family.
std::optional<Markers> markers_by_file(const TextEngine& engine, const std::optional<Markers>& by_name) {
  const auto* const vocabulary = dynamic_cast<const FillInVocabulary*>(&engine);
  if (!vocabulary) return std::nullopt;
  const FillInTokens& tokens = vocabulary->fill_in_tokens();
  const auto marker = [&](int32_t id) {
    return id >= 0 && id < engine.info().vocab_size ? std::optional(id) : std::nullopt;
  };
  Markers m = {.prefix = marker(tokens.prefix),
               .suffix = marker(tokens.suffix),
               .middle = marker(tokens.middle),
               .repository = marker(tokens.repository),
               .file = marker(tokens.file),
               .pad = marker(tokens.pad)};
  if (!m.prefix || !m.suffix) return std::nullopt;
  if (!by_name || by_name->prefix != m.prefix || by_name->suffix != m.suffix) return m;
  m.has_suffix_first = by_name->has_suffix_first;
  if (!m.middle) m.middle = by_name->middle;
  if (!m.repository) m.repository = by_name->repository;
  if (!m.file) m.file = by_name->file;
  return m;
}

}  // namespace

Outcome<FillInPrompt> fill_in_prompt(const TextEngine& engine, const FillInRequest& request, const std::string& param) {
  const std::optional<Markers> by_name = markers_by_name(engine);
  std::optional<Markers> markers = markers_by_file(engine, by_name);
  if (!markers) markers = by_name;
  if (!markers) {
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
  const auto mark = [&](std::optional<int32_t> marker) {
    if (marker) tokens.push_back(*marker);
  };
  const bool has_files = markers->file.has_value();
  if (!request.files.empty()) {
    if (markers->repository && has_files) {
      mark(markers->repository);
      add("project\n");
    }
    for (const auto& [name, text] : request.files) {
      mark(markers->file);
      add(has_files ? fmt::format("{}\n{}", name, text) : fmt::format("{}\n", text));
    }
    if (has_files) {
      mark(markers->file);
      add("filename\n");
    }
  }
  const auto part = [&](std::optional<int32_t> marker, std::string_view text) {
    mark(marker);
    add(text);
  };
  if (markers->has_suffix_first) part(markers->suffix, request.suffix);
  part(markers->prefix, request.prefix);
  if (!markers->has_suffix_first) part(markers->suffix, request.suffix);
  part(markers->middle, request.begin);
  if (error) return *error;
  for (const char* name : kEndMarkers)
    if (const auto marker = marker_of(engine, name)) prompt.stop_tokens.push_back(*marker);
  for (const auto marker : {markers->pad, markers->repository, markers->file})
    if (marker && std::find(prompt.stop_tokens.begin(), prompt.stop_tokens.end(), *marker) == prompt.stop_tokens.end())
      prompt.stop_tokens.push_back(*marker);
  return prompt;
}

}  // namespace redline::server
