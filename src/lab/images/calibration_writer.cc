// Writes calibrated masks into the file from which the engine reads them.
#include "base/output_file.h"
#include "base/output_path.h"
#include "diffusion/calibration_file.h"
#include "lab/images/calibrate.h"

namespace redline::lab {

std::string calibration_path(const std::string& model) { return model + "/" + kCalibrationFile; }

Status check_calibration(const std::string& path) {
  REDLINE_ASSIGN(const std::string target, output_path(path));
  const Result<std::vector<CalibratedMask>> old = read_calibration(target);
  if (!old.ok() && old.status().code() != Code::not_found) return old.status();
  Status prepared = prepare_output(target);
  if (!prepared.ok()) return Status(prepared.code(), prepared.message() + "; give another file with --output");
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
                            {"true_cfg_scale", r.true_cfg_scale},
                            {"solver", r.solver},
                            {"prompts", report.prompts}});
  // One mask per line, for readable diffs.
  std::string text = fmt::format("{{\n  \"format\": {},\n  \"masks\": [", kCalibrationFormat);
  for (size_t i = 0; i < out["masks"].size(); ++i) text += (i == 0 ? "\n    " : ",\n    ") + out["masks"][i].dump();
  return write_file(target, text + "\n  ]\n}\n");
}

}  // namespace redline::lab
