#include "cli/read_settings.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "base/json_text.h"
#include "cli/comfy_settings.h"
#include "media/image_file.h"
#include "redline/image.h"

namespace redline::cli {
namespace {

/// Splits the settings at the end of A1111's "parameters" into pairs: "Steps: 20, Seed: 5". A value in quotes is a JSON
/// string.
std::vector<std::pair<std::string, std::string>> parameter_pairs(std::string_view line) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!line.empty()) {
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) break;
    const std::string key(line.substr(0, colon));
    line.remove_prefix(colon + 2);
    size_t end = std::min(line.find(", "), line.size());
    if (line.starts_with('"')) {
      end = 1;
      while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, line.size());
    }
    std::string value(line.substr(0, end));
    if (value.starts_with('"'))
      if (const Json text = parse_json_or_discard<Json>(value); text.is_string()) value = text.get<std::string>();
    pairs.emplace_back(key, std::move(value));
    line.remove_prefix(std::min(end + 2, line.size()));
  }
  return pairs;
}

/// Returns true if the whole text is a number.
bool is_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

ReadSettings parse_parameters(const std::string& given) {
  // The text has the prompt, the negative prompt and the settings, each on a new line. Prompts may have several lines.
  const std::string text = "\n" + given;
  const size_t settings_at = text.rfind("\nSteps: ");
  ReadSettings read;
  if (settings_at == std::string::npos) return read;
  std::string prompts = text.substr(0, settings_at);
  Json& json = read.options;
  constexpr std::string_view kNegative = "\nNegative prompt: ";
  if (const size_t at = prompts.find(kNegative); at != std::string::npos) {
    json["negative"] = prompts.substr(at + kNegative.size());
    prompts.resize(at);
  }
  json["PROMPT"] = prompts.substr(std::min<size_t>(1, prompts.size()));
  std::string sampler, schedule;
  for (const auto& [key, value] : parameter_pairs(std::string_view(text).substr(settings_at + 1))) {
    const size_t x = value.find('x');
    if (key == "Steps" && is_number(value)) json["steps"] = value;
    else if (key == "Sampler") sampler = value;
    else if (key == "Schedule type") schedule = value;
    else if (key == "CFG scale" && is_number(value)) json["cfg-scale"] = value;
    else if (key == "Distilled CFG Scale" && is_number(value)) json["guidance"] = value;
    else if (key == "Seed" && is_number(value)) json["seed"] = value;
    else if (key == "Size" && x != std::string::npos && is_number(value.substr(0, x)) &&
             is_number(value.substr(x + 1))) {
      json["width"] = value.substr(0, x);
      json["height"] = value.substr(x + 1);
    } else if (key != "Version") {
      read.left_out.push_back(fmt::format("{}: {}", key, value));
    }
  }
  take_sampler(sampler, schedule, "Sampler", "Schedule type", read);
  return read;
}

void take_sampler(const std::string& sampler, const std::string& schedule, const char* sampler_key,
                  const char* schedule_key, ReadSettings& read) {
  const std::string plain = ascii_lower(schedule);
  const bool is_known = is_known_sampler(sampler);
  // "Automatic" stands for the schedule that A1111's web UI chooses for the sampler.
  const std::string chosen = plain != "automatic"                  ? plain
                             : sampler.starts_with("DPM++ 2M SDE") ? "exponential"
                             : sampler.starts_with("DPM++")        ? "karras"
                                                                   : "";
  const bool is_suffix = chosen == "karras" || chosen == "exponential" || chosen == "beta";
  if (!sampler.empty() && is_known) read.options["solver"] = is_suffix ? sampler + "-" + chosen : sampler;
  else if (!sampler.empty()) read.left_out.push_back(fmt::format("{}: {}", sampler_key, sampler));
  const bool is_usual = chosen.empty() || chosen == "normal" || chosen == "uniform";
  if (!is_usual && !(is_suffix && is_known)) read.left_out.push_back(fmt::format("{}: {}", schedule_key, schedule));
}

Result<ReadSettings> settings_of(const ImageText& text, const std::string& path) {
  ReadSettings read;
  if (const auto own = text.find("redline"); own != text.end()) {
    read.options = parse_json_or_discard<Json>(own->second);
    if (!read.options.is_object()) return invalid_argument("{}: its text \"redline\" is not a JSON object", path);
    return read;
  }
  if (const auto parameters = text.find("parameters"); parameters != text.end())
    read = parse_parameters(parameters->second);
  if (const auto prompt = text.find("prompt"); read.options.empty() && prompt != text.end())
    read = parse_comfy_prompt(prompt->second);
  if (read.options.empty())
    return not_found(
        "{}: holds no settings; images of Redline, of ComfyUI, and of A1111's web UI and others with \"parameters\" do",
        path);
  return read;
}

Result<ReadSettings> read_image_settings(const std::string& path) {
  ImageText text;
  REDLINE_TRY(read_image(path, &text));
  return settings_of(text, path);
}

}  // namespace redline::cli
