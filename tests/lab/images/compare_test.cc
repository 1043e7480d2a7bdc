// Comparisons of step caches: the arithmetic, the report, and a run of the bundled model.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "lab/images/calibrate.h"
#include "lab/images/compare.h"
#include "media/png.h"
#include "support/temporary_folder.h"

namespace redline::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string model() { return std::string(REDLINE_SOURCE_DIR) + "/assets/redline-shapes"; }

TEST(Compare, PercentilesAreNumpys) {
  EXPECT_DOUBLE_EQ(mean_of({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(percentile_of({4, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(percentile_of({4, 1, 3, 2}, 5), 1.15);
  EXPECT_DOUBLE_EQ(percentile_of({4, 1, 3, 2}, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile_of({4, 1, 3, 2}, 100), 4);
  EXPECT_DOUBLE_EQ(percentile_of({7}, 95), 7);
}

std::string base64_decoded(std::string_view text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t value = digits.find(c);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count);
    }
  }
  return bytes;
}

TEST(Compare, ReportHoldsWhatWasMeasured) {
  CompareReport report;
  report.model = "<model>";
  report.request.num_inference_steps = 28;
  report.prompts = {"a \"red\" circle & more", "b"};
  report.reference_loop_ms = 100;
  RgbImage picture;
  picture.width = 5;
  picture.height = 3;
  for (uint8_t i = 0; i < 45; ++i) picture.rgb.push_back(static_cast<uint8_t>(5 * i));
  const Result<std::string> png = encode_png(picture);
  ASSERT_TRUE(png.ok());
  report.reference_png = {*png};
  ComparedSetting a, b;
  a.name = a.requested = "fbcache:threshold=0.1";
  a.steps = 28;
  a.executed_share = 0.5;
  a.loop_ms = 60;
  a.psnr = {30, 40};
  a.ssim = {0.9, 0.95};
  a.png = {*png};
  a.fewer_by_operations = 1;
  b = a;
  b.name = b.requested = "14 steps";
  b.steps = 14;
  b.psnr = {20, 25};
  b.fewer_by_operations = -1;
  report.settings = {a, b};

  const nlohmann::json json = nlohmann::json::parse(report.to_json(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["settings"][0]["psnr"]["mean"], 35);
  EXPECT_EQ(json["settings"][0]["psnr"]["p5"], 30.5);
  EXPECT_EQ(json["settings"][0]["psnr"]["each"].size(), 2U);
  EXPECT_EQ(json["settings"][0]["operations_speedup"], 2);
  EXPECT_EQ(json["settings"][0]["fewer_steps_at_equal_operations"], "14 steps");
  EXPECT_FALSE(json["settings"][0].contains("lpips"));
  EXPECT_FALSE(json["settings"][1].contains("fewer_steps_at_equal_operations"));

  const std::string html = report.to_html();
  EXPECT_THAT(html, HasSubstr("&lt;model&gt;"));
  EXPECT_THAT(html, HasSubstr("a &quot;red&quot; circle &amp; more"));
  EXPECT_THAT(html, HasSubstr("22.50 dB<small>14 steps</small>"));
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, Not(HasSubstr("LPIPS")));
  EXPECT_THAT(html, Not(HasSubstr("src=\"http"))) << "one file, nothing fetched";
  const std::string mark = "data:image/png;base64,";
  const size_t at = html.find(mark);
  ASSERT_NE(at, std::string::npos);
  const std::string encoded = html.substr(at + mark.size(), html.find('"', at) - at - mark.size());
  const Result<RgbImage> back = decode_png(base64_decoded(encoded), "report");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->rgb, picture.rgb);

  report.settings[0].lpips = report.settings[1].lpips = {0.1, 0.3};
  EXPECT_THAT(report.to_html(), HasSubstr("LPIPS"));
  EXPECT_EQ(nlohmann::json::parse(report.to_json())["settings"][0]["lpips"]["mean"], 0.2);
}

CompareOptions small_run() {
  CompareOptions options;
  options.model = model();
  options.engine.max_side = 128;
  options.engine.threads = 1;
  options.request.width = options.request.height = 64;
  options.request.num_inference_steps = 10;
  options.tune_prompts = 1;
  options.prompts = {"a large red circle on a blue background", "a yellow star"};
  return options;
}

TEST(Compare, RunsTheBundledModel) {
  CompareOptions options = small_run();
  options.rules = {"redline", "fbcache",          "teacache:threshold=0.5",
                   "none",    "mask:span=middle", "dbcache:threshold=10,fn=1,bn=1,warmup=3"};
  options.speedups = {2};
  options.shown_images = 1;
  std::vector<std::string> said;
  options.on_progress = [&](const std::string& what, double share) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
    if (said.empty() || said.back() != what) said.push_back(what);
    return true;
  };
  const Result<CompareReport> report = compare_images(options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_GE(report->settings.size(), 6U);
  const ComparedSetting &ours = report->settings[0], &fbcache = report->settings[1], &teacache = report->settings[2],
                        &none = report->settings[3], &tail = report->settings[5];
  EXPECT_EQ(ours.name, "redline:budget=5");
  EXPECT_NEAR(ours.executed_share, 0.5, 1e-9);
  EXPECT_NEAR(ours.computed_steps, 5, 1e-9);
  EXPECT_EQ(ours.target_speedup, 2);
  EXPECT_THAT(fbcache.name, HasSubstr("fbcache:threshold="));
  EXPECT_NEAR(fbcache.executed_share, 0.5, 0.1);
  EXPECT_EQ(teacache.name, "teacache:threshold=0.5") << "a threshold that is given is kept";
  EXPECT_EQ(none.executed_share, 1);
  EXPECT_EQ(none.psnr, (std::vector<double>{100, 100})) << "the same run twice";
  EXPECT_LT(tail.executed_share, 1);
  EXPECT_GT(tail.executed_share, 0.3) << "three steps of ten, and two blocks of each other step";
  for (const ComparedSetting& s : report->settings) {
    EXPECT_EQ(s.psnr.size(), 2U);
    EXPECT_EQ(s.png.size(), 1U);
    for (const double ssim : s.ssim) EXPECT_LE(ssim, 1 + 1e-12);
  }
  const ComparedSetting& fewer = report->settings[ours.fewer_by_operations];
  EXPECT_EQ(fewer.name, "5 steps");
  EXPECT_EQ(fewer.steps, 5);
  EXPECT_NEAR(fewer.executed_share, 0.5, 1e-9);
  EXPECT_GT(mean_of(ours.psnr), mean_of(fewer.psnr)) << "a cache that is worse than fewer steps";
  EXPECT_THAT(said, ::testing::Contains("uncached"));
  EXPECT_THAT(report->to_html(), HasSubstr("redline:budget=5"));
}

TEST(Compare, WhatWasMeasuredBeforeAStopIsKept) {
  CompareOptions options = small_run();
  options.rules = {"redline:budget=5", "easycache:threshold=0.5", "none"};
  const auto run_until = [&](const std::string& last) {
    options.on_progress = [last](const std::string& what, double) { return what != last; };
    return compare_images(options);
  };
  Result<CompareReport> report = run_until("easycache:threshold=0.5");
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->stopped, "stopped at easycache:threshold=0.5, prompt 1: 1 of 3 settings are measured");
  ASSERT_EQ(report->settings.size(), 1U);
  EXPECT_EQ(report->settings[0].name, "redline:budget=5");
  EXPECT_EQ(report->settings[0].fewer_by_operations, -1);
  EXPECT_THAT(report->to_json(), HasSubstr("\"stopped\""));
  EXPECT_THAT(report->to_html(), HasSubstr("Not finished: stopped at easycache"));
  // All settings, and some of the runs with fewer steps.
  report = run_until("5 steps");
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_THAT(report->stopped, HasSubstr("stopped at 5 steps, prompt 1: 3 of 3 settings"));
  EXPECT_GE(report->settings.size(), 3U);
  EXPECT_FALSE(report->to_html().empty());
  // Nothing yet.
  EXPECT_EQ(run_until("redline:budget=5").status().code(), Code::cancelled);
}

TEST(Compare, SaysWhatIsWrong) {
  const auto message = [](const std::function<void(CompareOptions&)>& harm) {
    CompareOptions options = small_run();
    options.rules = {"redline"};
    harm(options);
    return compare_images(options).status().to_string();
  };
  EXPECT_THAT(message([](CompareOptions& o) { o.prompts.clear(); }), HasSubstr("no prompt"));
  EXPECT_THAT(message([](CompareOptions& o) { o.rules = {"magic"}; }), HasSubstr("no rule is called \"magic\""));
  EXPECT_THAT(message([](CompareOptions& o) { o.speedups = {0.5}; }), HasSubstr("ask for more than 1"));
  EXPECT_THAT(message([](CompareOptions& o) { o.lpips_weights = "/nowhere"; }), HasSubstr("/nowhere"));
  EXPECT_THAT(message([](CompareOptions& o) { o.model = "/nowhere"; }), HasSubstr("/nowhere"));
  EXPECT_THAT(message([](CompareOptions& o) { o.on_progress = [](const std::string&, double) { return false; }; }),
              HasSubstr("cancelled"));
}

TEST(Calibrate, FindsABetterMaskForTheBundledModel) {
  CalibrateOptions options;
  options.model = model();
  options.engine = small_run().engine;
  options.request = small_run().request;
  options.prompts = small_run().prompts;
  options.budgets = {4};
  options.evaluations = 12;
  const Result<CalibrateReport> report = calibrate_images(options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->budgets.size(), 1U);
  const CalibratedBudget& found = report->budgets[0];
  EXPECT_EQ(found.computed.size(), 4U);
  EXPECT_GE(found.found_db, std::max(found.power_db, found.planned_db));
  EXPECT_GT(found.evaluations, 1);
  const testing::TemporaryFolder folder;
  ASSERT_TRUE(write_calibration(folder.path() + "/step_cache.json", *report).ok());

  options.budgets = {10};
  EXPECT_THAT(calibrate_images(options).status().message(), HasSubstr("a budget of 10 of 10 steps"));
  options.budgets = {4};
  options.request.solver = "unipc";
  EXPECT_EQ(calibrate_images(options).status().code(), Code::unsupported);
  options.prompts.clear();
  EXPECT_THAT(calibrate_images(options).status().message(), HasSubstr("no prompt"));
}

}  // namespace
}  // namespace redline::lab
