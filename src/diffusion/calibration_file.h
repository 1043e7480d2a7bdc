// Reads step_cache.json in a model's folder: the steps that a step cache with a budget computes.
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

/// Name of the file in a model's folder from which an engine reads masks, and the version of its format.
inline constexpr const char* kCalibrationFile = "step_cache.json";
inline constexpr int kCalibrationFormat = 1;

/// Reads a calibration file as JSON. not_found: it cannot be opened; invalid_argument: it is not JSON.
Result<nlohmann::json> read_calibration_json(const std::string& path);
/// Returns the masks of a calibration file. invalid_argument: JSON of another form or of a later version, or computed
/// steps that are not increasing numbers in 0 .. steps - 1; the message names the entry.
Result<std::vector<CalibratedMask>> parse_calibration(const nlohmann::json& json);
/// Reads and parses a calibration file. Errors: those of parse_calibration() with the path; not_found: no such file.
Result<std::vector<CalibratedMask>> read_calibration(const std::string& path);
/// Returns the masks of the first of these files: the path `given`, unless ""; the file `named` in the model's folder,
/// unless ""; the folder's step_cache.json; none if that does not exist. Errors: as read_calibration().
Result<std::vector<CalibratedMask>> find_calibration(const std::string& folder, const std::string& named,
                                                     const std::string& given);
/// Checks that there is a mask for `budget` computed steps of `steps`. A budget of 0 needs none. not_found: there is no
/// such mask; the message lists the available ones.
Status require_mask(const std::vector<CalibratedMask>& masks, int64_t steps, int64_t budget);

}  // namespace redline
