// Writes calibrated masks into the file from which the engine reads them.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/output_path.h"
#include "diffusion/calibration_file.h"
#include "lab/images/calibrate.h"

namespace redline::lab {

std::string calibration_path(const std::string& model) { return model + "/" + kCalibrationFile; }

Status check_calibration(const std::string& path) {
  REDLINE_ASSIGN(const std::string target, output_path(path));
  const Result<std::vector<CalibratedMask>> old = read_calibration(target);
  if (!old.ok() && old.status().code() != Code::not_found) return old.status();
  const std::string folder = std::filesystem::path(target).parent_path().string();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0)
    return io("{}: the folder cannot be written; give another file with --output", path);
  return {};
}

Status write_calibration(const std::string& path, const CalibrateReport& report) {
  REDLINE_TRY(check_calibration(path));
  REDLINE_ASSIGN(const std::string target, output_path(path));
  nlohmann::ordered_json out = {{"format", kCalibrationFormat}, {"masks", nlohmann::ordered_json::array()}};
  if (Result<nlohmann::json> old = read_calibration_json(target); old.ok())
    for (const auto& entry : (*old)["masks"]) {
      bool is_replaced = false;
      for (const CalibratedBudget& budget : report.budgets)
        is_replaced |=
            entry["steps"] == report.request.num_inference_steps && entry["computed"].size() == budget.computed.size();
      if (!is_replaced) out["masks"].push_back(nlohmann::ordered_json::parse(entry.dump()));
    }
  const ImageRequest& r = report.request;
  for (const CalibratedBudget& budget : report.budgets)
    out["masks"].push_back({{"steps", r.num_inference_steps},
                            {"computed", budget.computed},
                            {"psnr", budget.found_db},
                            {"width", r.width},
                            {"height", r.height},
                            {"guidance", r.guidance_scale},
                            {"true_guidance", r.true_cfg_scale},
                            {"solver", r.solver},
                            {"prompts", report.prompts}});
  const std::string temporary = target + ".part";
  {
    std::ofstream file(temporary, std::ios::binary);
    // One mask per line, for readable diffs.
    file << "{\n  \"format\": " << kCalibrationFormat << ",\n  \"masks\": [";
    for (size_t i = 0; i < out["masks"].size(); ++i) file << (i == 0 ? "\n    " : ",\n    ") << out["masks"][i].dump();
    file << "\n  ]\n}\n";
    if (!file.flush()) return io("{}: cannot be written", path);
  }
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    std::remove(temporary.c_str());
    return io("{}: cannot be written", path);
  }
  return {};
}

}  // namespace redline::lab
