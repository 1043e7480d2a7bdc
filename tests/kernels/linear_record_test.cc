// choose_linear where bench/traces has measurements for this machine's kernels: its choice is about the fastest
// measured one. (That the table follows from the traces by the rules of tools/kernel_records is tested in
// tests/tools/kernel_records_test.py.)
#include "kernels/cpu/linear/linear_record.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "kernels/cpu/linear/linear_choice.h"
#include "support/isa_test.h"

namespace redline {
namespace {

int index_of_isa(std::string_view name) {
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  for (int i = 0; i < count; ++i)
    if (isas[i].name == name) return i;
  return -1;
}

/// Median seconds of each form that a table up to set `isa` has, by rows of x and shape of the weight.
using Measured = std::map<std::pair<int64_t, std::pair<int64_t, int64_t>>, std::map<ActivationLayout, double>>;
/// `has_tiles`: tile products are not an emulation.
Measured read_traces(std::string_view type, int isa, bool has_tiles) {
  const std::map<std::string, ActivationLayout> forms = {{"linear", ActivationLayout::kF32},
                                                         {"linear_q8", ActivationLayout::kI8Grouped},
                                                         {"linear_requantized", ActivationLayout::kI8TiledGroups},
                                                         {"linear_tiles", ActivationLayout::kBf16Tiled}};
  Measured measured;
  std::map<std::pair<Measured::key_type, ActivationLayout>, int> richest;
  std::ifstream file(fmt::format("{}/bench/traces/linear.{}.jsonl", REDLINE_SOURCE_DIR, type));
  for (std::string line; std::getline(file, line);) {
    const auto trace = nlohmann::json::parse(line);
    const auto& w = trace["workload"];
    const auto kernel = trace["solution"]["kernel"].get<std::string>();
    const ActivationLayout form = forms.at(kernel.substr(0, kernel.find('.')));
    const int own = index_of_isa(trace["solution"]["isa"].get<std::string>());
    if (trace["status"] != "passed" || own < 0 || own > isa || (form == ActivationLayout::kBf16Tiled && !has_tiles))
      continue;
    const bool by_amd = trace["machine"]["cpu"].get<std::string>().find("AMD") != std::string::npos;
    if (by_amd != (__builtin_cpu_is("amd") != 0)) continue;
    const Measured::key_type key = {w["M"].get<int64_t>(), {w["N"].get<int64_t>(), w["K"].get<int64_t>()}};
    int& best = richest.try_emplace({key, form}, -1).first->second;
    if (own < best) continue;
    best = own;
    measured[key][form] = trace["latency"]["median"].get<double>();
  }
  return measured;
}

using LinearRecord = IsaTest;

// tools/kernel_records prefers float32 by 5 % and a range less by 2 %; a sixth is beyond both and the scatter of a
// shape.
TEST_P(LinearRecord, ChoosesAboutTheFastestOfWhatIsMeasured) {
  constexpr double kSlack = 1.0 / 6;
  constexpr int64_t kMinRequantizedRows = 65;  // for all types alike, whichever is faster before
  int compared = 0, recorded = 0;
  for (const DType type : {DType::kBF16, DType::kQ4_0, DType::kQ8_0, DType::kQ4_K}) {
    if (!is_linear_choice_recorded(kernels(), type)) continue;
    ++recorded;
    const std::string_view name = dtype_info(type).name;
    const LinearKernels chosen = choose_linear(kernels(), type, false);
    const bool has_dots = type == DType::kBF16 && kernels().has_fast_bf16_dot;
    const Measured measured = read_traces(name, GetParam(), kernels().has_tile_unit || has_dots);
    size_t forms = 0;  // as the tool does, only where all of them were measured
    for (const auto& [key, seconds] : measured) forms = std::max(forms, seconds.size());
    std::map<int64_t, std::pair<double, int>> losses;  // by rows: sum of log(chosen / fastest), shapes
    for (const auto& [key, seconds] : measured) {
      const int64_t rows = key.first;
      const auto own = seconds.find(chosen.layouts.at[chosen.layouts.index_for_rows(rows)].layout);
      if (own == seconds.end() || seconds.size() < forms) continue;
      double fastest = own->second;
      for (const auto& [form, time] : seconds)
        if (form != ActivationLayout::kI8TiledGroups || rows >= kMinRequantizedRows) fastest = std::min(fastest, time);
      losses[rows].first += std::log(own->second / fastest);
      ++losses[rows].second;
    }
    for (const auto& [rows, loss] : losses) {
      EXPECT_LE(loss.first / loss.second, kSlack) << name << " with " << rows << " rows";
      ++compared;
    }
  }
  if (recorded == 0)
    GTEST_SKIP() << "no measurements are recorded for the kernels of this instruction set on CPUs of this maker";
  EXPECT_GT(compared, 0);
}

TEST_P(LinearRecord, EveryChoiceServesEveryNumberOfRows) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    if (!dtype_info(type).is_block && type != DType::kF16 && type != DType::kBF16 && type != DType::kF32) continue;
    SCOPED_TRACE(dtype_info(type).name);
    const LinearKernels chosen = choose_linear(kernels(), type, false);
    ASSERT_GE(chosen.layouts.count, 1);
    EXPECT_EQ(chosen.layouts.at[0].min_rows, 0);
    for (int k = 0; k < chosen.layouts.count; ++k) {
      EXPECT_NE(chosen.run[k], nullptr);
      if (k > 0) {
        EXPECT_GT(chosen.layouts.at[k].min_rows, chosen.layouts.at[k - 1].min_rows);
      }
    }
    EXPECT_TRUE(choose_linear(kernels(), type, true).layouts.only_f32());
  }
}

// A table that was put together otherwise is of no instruction set: the rule holds.
TEST_P(LinearRecord, TablesOfOtherKernelsFollowTheRule) {
  CpuKernels own = kernels();
  own.linear_q8[static_cast<int>(DType::kQ4_0)] = [](const LinearArgs&) {};
  own.linear_isa[static_cast<int>(DType::kQ4_0)] = "";
  EXPECT_FALSE(is_linear_choice_recorded(own, DType::kQ4_0));
  EXPECT_EQ(choose_linear(own, DType::kQ4_0, false).layouts.at[0].layout, ActivationLayout::kI8Grouped);
  EXPECT_FALSE(is_linear_choice_recorded(kernels(), DType::kI32));
}

REDLINE_INSTANTIATE_PER_ISA(LinearRecord);

}  // namespace
}  // namespace redline
