#include "cli/option_rows.h"

#include <fmt/format.h>

namespace redline::cli {
namespace {

std::string value_text(const std::string& value) { return fmt::format("\"{}\"", value); }
std::string value_text(Precision value) { return std::string(precision_name(value)); }
std::string value_text(const std::optional<Pooling>& value) {
  return value ? std::string(pooling_name(*value)) : "unset";
}
template <class T>
std::string value_text(T value) {
  return fmt::format("{}", value);
}

/// The section of one struct of options: a line in Markdown for each row.
template <class Options>
std::string table_text(std::string_view title, std::string_view used_by) {
  const Options defaults;
  std::vector<std::pair<std::string_view, std::string>> lines;
  visit_options(defaults, [&](const auto& member, const OptionRow& row) {
    std::string text = fmt::format("- `{}`, default {}", row.name, value_text(member));
    if (!row.unset.empty()) text += fmt::format(" ({})", row.unset);
    if (!row.flag.empty()) {
      text += fmt::format(", flag `--{}{}{}`", row.flag, row.symbol.empty() ? "" : " ", row.symbol);
      if (row.commands == OptionRow::kGenerating) text += " of commands that generate text";
      if (row.commands == OptionRow::kServers) text += " of serve and batch";
      if (row.commands == OptionRow::kServe) text += " of serve";
    }
    text += fmt::format(": {}.{}{}\n", row.meaning, row.details.empty() ? "" : " ", row.details);
    place_option(lines, row.after, std::pair(row.name, std::move(text)), [](const auto& line) { return line.first; });
  });
  std::string text = fmt::format("## {}\n\n{}\n\n", title, used_by);
  for (const auto& line : lines) text += line.second;
  return text + "\n";
}

}  // namespace

OptionRule rule_of(const OptionRow& row, std::string shown_default) {
  OptionRule rule;
  rule.letter = row.letter;
  rule.min = row.min;
  rule.max = row.max;
  rule.unit = row.unit;
  rule.choices.assign(row.choices.begin(), row.choices.end());
  rule.names_file = row.type == "PATH";
  rule.turns_off = row.flag.starts_with("no-");
  rule.shown_default = shown_default.empty() ? std::string(row.unset) : std::move(shown_default);
  rule.aliases.assign(row.aliases.begin(), row.aliases.end());
  rule.needs.assign(row.needs.begin(), row.needs.end());
  rule.is_table_row = true;
  return rule;
}

std::string option_tables_text() {
  std::string text =
      "# Options\n\nEach option has one name in C++, in C and as a keyword in Python. The tables are "
      "`include/redline/*_options.inc`,\n`generate_options.inc` and `image_request.inc`.\n\n";
  text += table_text<TextEngineOptions>("Language models",
                                        "`TextEngineOptions`, `redline_model_options`, `redline.Model`; flags of the "
                                        "commands that open a language model.");
  text += table_text<SamplingOptions>("Sampling",
                                      "`SamplingOptions`, `redline_generate_options`, `Model.generate`; the flags are "
                                      "in `redline run --help`.");
  text += table_text<GenerateRequest>("Texts", "`GenerateRequest`, `redline_generate_options`, `Model.generate`.");
  text += table_text<EmbeddingOptions>("Embedding models",
                                       "`EmbeddingOptions`, `redline_embedding_options`, `redline.EmbeddingModel`; "
                                       "flags of `redline embed`.");
  text +=
      table_text<ImageOptions>("Image models",
                               "`ImageOptions`, `redline_image_pipeline_options`, `redline.ImagePipeline`; flags of "
                               "`redline image`, `calibrate` and `compare`.");
  text +=
      table_text<ImageRequest>("Images", "`ImageRequest`, `redline_image_request`, calls of `redline.ImagePipeline`.");
  text += table_text<NetworkOptions>("Single networks", "`NetworkOptions`, `redline_network_options`.");
  text.pop_back();
  return text;
}

}  // namespace redline::cli
