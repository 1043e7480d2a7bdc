#include "cli/prompt_list.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace redline::cli {

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  if (path.empty()) return invalid_argument("flag --prompts: the name of the file is empty");
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("{}: cannot be opened: {}", path, std::strerror(errno));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> prompts;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '[' || text[first] == '{')) {
    const nlohmann::json json = parse_json_or_discard<nlohmann::json>(text);
    if (!json.is_array()) return invalid_argument("{}: not a JSON list of prompts", path);
    for (const auto& item : json) {
      const bool is_object = item.is_object() && item.contains("prompt") && item["prompt"].is_string();
      if (!item.is_string() && !is_object)
        return invalid_argument("{}: item {} is neither a text nor an object with a \"prompt\"", path, prompts.size());
      prompts.push_back(is_object ? item["prompt"].get<std::string>() : item.get<std::string>());
    }
  } else {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty()) prompts.push_back(std::move(line));
      begin = end + 1;
    }
  }
  if (prompts.empty()) return invalid_argument("{}: holds no prompt", path);
  return prompts;
}

Result<std::vector<std::string>> DrawnPromptsArgs::list() const {
  REDLINE_ASSIGN(std::vector<std::string> all, read_prompts(prompts));
  if (count > 0 && std::ssize(all) > count) all.resize(static_cast<size_t>(count));
  return all;
}

Result<ImageRequest> DrawnPromptsArgs::request() const {
  ImageRequest r;
  if (!size.empty()) {
    char rest = 0;
    if (std::sscanf(size.c_str(), "%ldx%ld%c", &r.width, &r.height, &rest) != 2)
      return invalid_argument("flag --size: \"{}\" is not WIDTHxHEIGHT, as 1024x768", size);
  }
  r.num_inference_steps = steps;
  r.seed = static_cast<uint64_t>(seed);
  if (guidance) r.guidance_scale = *guidance;
  if (true_cfg_scale) r.true_cfg_scale = *true_cfg_scale;
  if (negative) r.negative_prompt = *negative;
  return r;
}

}  // namespace redline::cli
