#include "hub/hub_settings.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "base/environment.h"
#include "base/mapped_file.h"

namespace redline {
namespace {

/// Returns true if a variable is set to a value that huggingface_hub reads as true.
bool is_switched_on(const char* name) {
  const std::string value = ascii_lower(environment_variable(name));
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

/// Returns the path with a leading "~" replaced by the home folder.
std::string expanded(const std::string& path) {
  const std::string home = environment_variable("HOME");
  return !home.empty() && (path == "~" || path.starts_with("~/")) ? home + path.substr(1) : path;
}

std::string trimmed_token(std::string text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  return text;
}

/// Returns HF_HOME, or else huggingface in the user's cache folder; "": there is none.
std::string home_folder() {
  if (const std::string home = environment_variable("HF_HOME"); !home.empty()) return expanded(home);
  if (const std::string cache = environment_variable("XDG_CACHE_HOME"); !cache.empty())
    return expanded(cache) + "/huggingface";
  if (const std::string home = environment_variable("HOME"); !home.empty()) return home + "/.cache/huggingface";
  return "";
}

}  // namespace

Result<HubSettings> read_hub_settings() {
  HubSettings settings;
  settings.endpoint = environment_variable("HF_ENDPOINT");
  if (settings.endpoint.empty()) settings.endpoint = "https://huggingface.co";
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (!settings.endpoint.starts_with("https://") && !settings.endpoint.starts_with("http://"))
    return invalid_argument("HF_ENDPOINT is \"{}\"; expected an address of http:// or https://", settings.endpoint);

  const std::string home = home_folder();
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (settings.cache_folder.empty()) settings.cache_folder = expanded(environment_variable(name));
  if (settings.cache_folder.empty()) {
    if (home.empty()) return not_found("no folder for models: neither HF_HOME nor HOME is set");
    settings.cache_folder = home + "/hub";
  }

  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (settings.token.empty()) settings.token = trimmed_token(environment_variable(name));
  if (settings.token.empty() && !is_switched_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
    const std::string path = environment_variable("HF_TOKEN_PATH");
    const auto text = read_text_file(!path.empty() ? expanded(path) : home + "/token");
    if (text.ok()) settings.token = trimmed_token(*text);
  }
  if (std::any_of(settings.token.begin(), settings.token.end(), [](char c) { return c <= ' ' || c == 0x7f; }))
    return invalid_argument("the token of HF_TOKEN has spaces or control characters in it");

  settings.is_offline = is_switched_on("HF_HUB_OFFLINE") || is_switched_on("TRANSFORMERS_OFFLINE");
  if (const std::string text = environment_variable("HF_HUB_DOWNLOAD_TIMEOUT"); !text.empty()) {
    const char* const end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data(), end, settings.timeout_s);
    if (problem != std::errc() || rest != end || settings.timeout_s < 1)
      return invalid_argument("HF_HUB_DOWNLOAD_TIMEOUT is \"{}\"; expected a number of seconds, 1 or more", text);
  }
  return settings;
}

}  // namespace redline
