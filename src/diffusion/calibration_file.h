// step_cache.json in a model's folder: the steps that a cache with a budget computes.
//
//   {"format": 1, "masks": [{"steps": 28, "computed": [0, 1, 2, 4, 7, 11, 16], "psnr": 41.2, "width": 128, "height":
//   128,
//                            "guidance": 0.0, "true_cfg_scale": 4.0, "solver": "", "prompts": 16}, ..]}
//
// Only "steps" and "computed" are used; the rest records how the mask was found.
#pragma once

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "diffusion/step_cache/rule.h"

namespace redline {

/// The file of a model's folder that an engine reads masks from, and the version of its form.
inline constexpr const char* kCalibrationFile = "step_cache.json";
inline constexpr int kCalibrationFormat = 1;

/// A calibration file as JSON. not_found: it cannot be opened; invalid_argument: it is not JSON.
Result<nlohmann::json> read_calibration_json(const std::string& path);
/// Masks of a calibration file. invalid_argument: JSON of another form or of a later version, or computed steps that do
/// not increase within 0 .. steps - 1; the message names the entry.
Result<std::vector<CalibratedMask>> parse_calibration(const nlohmann::json& json);
/// As parse_calibration, with the path in errors. not_found: no such file.
Result<std::vector<CalibratedMask>> read_calibration(const std::string& path);
/// The masks of `given`, a path; when that is "", of `named` in the model's folder; when that is "" too, of the
/// folder's step_cache.json, or none without such a file. Errors as read_calibration.
Result<std::vector<CalibratedMask>> find_calibration(const std::string& folder, const std::string& named,
                                                     const std::string& given);
/// not_found: no mask for `budget` of `steps`; the message lists the available ones. A budget of 0 needs none.
Status require_mask(const std::vector<CalibratedMask>& masks, int64_t steps, int64_t budget);

}  // namespace redline
