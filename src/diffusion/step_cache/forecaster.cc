#include "diffusion/step_cache/forecaster.h"

#include <fmt/ranges.h>

#include "base/text_distance.h"

namespace redline {

#define REDLINE_ROW(rows) extern const ForecasterRows rows;
#include <forecasters.inc>  // of the build: one row per NAME_forecaster.cc
#undef REDLINE_ROW

std::span<const ForecasterRow> forecasters() {
  static const std::vector<ForecasterRow> all = [] {
    std::vector<ForecasterRow> rows;
#define REDLINE_ROW(file) rows.insert(rows.end(), file.begin(), file.end());
#include <forecasters.inc>
#undef REDLINE_ROW
    return rows;
  }();
  return all;
}

Result<const ForecasterRow*> find_forecaster(const std::string& name) {
  std::vector<std::string_view> names;
  for (const ForecasterRow& row : forecasters()) {
    if (name == row.name) return &row;
    names.emplace_back(row.name);
  }
  return not_found("no forecaster is called \"{}\"{}; there are {}", name, the_nearest(name, names),
                   fmt::join(names, ", "));
}

}  // namespace redline
