#include "diffusion/calibration_file.h"

#include <fmt/ranges.h>

#include "base/mapped_file.h"
#include "text/json_reader.h"

namespace redline {

Result<nlohmann::json> read_calibration_json(const std::string& path) {
  auto text = read_text_file(path);
  if (!text.ok() && text.status().code() == Code::not_found) return not_found("{}: cannot be opened", path);
  REDLINE_TRY(text);
  return parse_json(*text, path);
}

Result<std::vector<CalibratedMask>> parse_calibration(const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("format") || !json["format"].is_number_integer())
    return invalid_argument("a calibration is an object with \"format\" and \"masks\"");
  if (json["format"] != kCalibrationFormat)
    return unsupported("calibration of format {}; this program reads {}", json["format"].dump(), kCalibrationFormat);
  if (!json.contains("masks") || !json["masks"].is_array()) return invalid_argument("\"masks\" is not a list");
  std::vector<CalibratedMask> masks;
  for (const auto& entry : json["masks"]) {
    const auto wrong = [&](const char* what) { return invalid_argument("masks[{}]: {}", masks.size(), what); };
    if (!entry.is_object() || !entry.contains("steps") || !entry["steps"].is_number_integer())
      return wrong("\"steps\" is not a whole number");
    if (!entry.contains("computed") || !entry["computed"].is_array()) return wrong("\"computed\" is not a list");
    CalibratedMask mask;
    mask.steps = entry["steps"].get<int64_t>();
    for (const auto& step : entry["computed"]) {
      if (!step.is_number_integer()) return wrong("\"computed\" holds something else than whole numbers");
      const auto value = step.get<int64_t>();
      if (value < 0 || value >= mask.steps || (!mask.computed.empty() && value <= mask.computed.back()))
        return wrong("\"computed\" does not rise within 0 .. steps - 1");
      mask.computed.push_back(value);
    }
    if (mask.computed.empty() || mask.computed[0] != 0) return wrong("\"computed\" does not begin with step 0");
    masks.push_back(std::move(mask));
  }
  return masks;
}

Result<std::vector<CalibratedMask>> read_calibration(const std::string& path) {
  REDLINE_ASSIGN(const nlohmann::json json, read_calibration_json(path));
  return parse_calibration(json).within(path);
}

Result<std::vector<CalibratedMask>> find_calibration(const std::string& folder, const std::string& named,
                                                     const std::string& given) {
  if (!given.empty()) return read_calibration(given);
  if (!named.empty()) return read_calibration(folder + "/" + named);
  Result<std::vector<CalibratedMask>> masks = read_calibration(folder + "/" + kCalibrationFile);
  if (masks.status().code() == Code::not_found) return std::vector<CalibratedMask>();
  return masks;
}

Status require_mask(const std::vector<CalibratedMask>& masks, int64_t steps, int64_t budget) {
  if (budget == 0) return {};
  std::vector<std::string> known;
  for (const CalibratedMask& mask : masks) {
    if (mask.steps == steps && std::ssize(mask.computed) == budget) return {};
    known.push_back(fmt::format("{} of {}", mask.computed.size(), mask.steps));
  }
  return not_found("no mask for a budget of {} of {} steps; there are {}; `redline calibrate --budgets {}` adds it",
                   budget, steps, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), budget);
}

}  // namespace redline
