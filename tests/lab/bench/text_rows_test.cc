// Tests of the parts of `redline bench` that time nothing: the bound, the plan of rows, the chart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/bench/self_process.h"
#include "lab/bench/text_report.h"

namespace redline::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Peak peak(const char* name, const char* isa, const char* instruction, double all) {
  Peak c;
  c.name = name;
  c.isa = isa;
  c.instruction = instruction;
  c.unit = "GOP/s";
  c.all = c.per_thread = all;
  return c;
}

MachinePeaks machine() {
  MachinePeaks c;
  Peak read;
  read.name = "read";
  read.unit = "GB/s";
  read.all = 10;
  c.rows = {read, peak("f32", "avx512", "vfmadd zmm", 100), peak("int8", "avx512_vnni", "vpdpbusd zmm", 400),
            peak("bf16", "avx512_bf16", "vdpbf16ps zmm", 50)};
  return c;
}
MachinePeaks machine_with_tiles() {
  MachinePeaks c = machine();
  c.rows.push_back(peak("bf16", "amx", "tdpbf16ps", 1000));
  c.rows.push_back(peak("int8", "amx", "tdpbssd", 2000));
  return c;
}

TEST(BenchBound, PeaksAreThoseThatMayServeAType) {
  const Roofline plain(machine(), false), tiles(machine_with_tiles(), false), exact(machine_with_tiles(), true);
  EXPECT_EQ(plain.peak_of("f32")->all, 100);
  EXPECT_EQ(plain.peak_of("bf16")->all, 100);  // the fused product is faster than the half-precision one here
  EXPECT_EQ(plain.peak_of("q4_0")->all, 400);
  EXPECT_EQ(tiles.peak_of("f32")->all, 100);
  EXPECT_EQ(tiles.peak_of("f16")->all, 1000);
  EXPECT_EQ(tiles.peak_of("q4_0")->instruction, "tdpbf16ps");  // int8 tiles sum past the blocks' scales
  EXPECT_EQ(exact.peak_of("q4_0")->all, 100);
  EXPECT_EQ(Roofline(MachinePeaks{}, false).peak_of("f32"), nullptr);
}

TEST(BenchBound, WorkIsSummedNotHidden) {
  const Roofline roofline(machine_with_tiles(), false);
  // 3 s of arithmetic (1 s of reading beside it), then 2 s of reading (1 s of arithmetic beside it).
  const std::vector<EngineProfile::OpCost> costs = {{"layers", "q4_0", 10e9, 3000e9}, {"output", "q4_0", 20e9, 1000e9}};
  const Bound bound = roofline.bound_of(costs);
  EXPECT_DOUBLE_EQ(bound.seconds, 5);
  EXPECT_FALSE(bound.is_memory);
  EXPECT_EQ(bound.by, "bf16 tdpbf16ps");
  const Bound memory = roofline.bound_of(std::span(costs).subspan(1));
  EXPECT_DOUBLE_EQ(memory.seconds, 2);
  EXPECT_TRUE(memory.is_memory);
  EXPECT_EQ(memory.by, "read");
}

TEST(BenchBound, TheBestOfTwoMeasurementsCounts) {
  MachinePeaks a = machine(), b = machine();
  a.rows[1].all = 90;
  b.rows[0].all = 12;
  raise_to(a, b);
  EXPECT_EQ(a.find("read")->all, 12);
  EXPECT_EQ(a.find("f32")->all, 100);
}

BenchRow row(BenchPhase phase, int64_t tokens, double bytes, double operations, std::vector<double> seconds) {
  BenchRow r;
  r.phase = phase;
  r.tokens = tokens;
  r.costs = {{"layers", "q4_0", bytes, operations}};
  r.seconds = std::move(seconds);
  return r;
}

TEST(BenchRows, FasterThanTheBoundIsAnError) {
  std::vector<BenchRow> rows = {
      row(BenchPhase::kPrefill, 512, 1, 1000e9, {1.0, 1.1}),    // the bound is 1 s, the median just above
      row(BenchPhase::kPrefill, 512, 1, 1000e9, {0.98, 0.99}),  // beyond the peak
      row(BenchPhase::kDecode, 1, 400e12, 1, {39999, 40001}),   // 40000 s, past any cache
      row(BenchPhase::kDecode, 1, 400e12, 1, {39000}),          // 2.6 % too fast
      row(BenchPhase::kDecode, 1, 1e6, 1, {0.9e-4}),            // 11 % too fast, of a megabyte that may be cached
      row(BenchPhase::kDecode, 1, 1e6, 1, {0.7e-4}),            // 43 % too fast
      BenchRow(),                                               // not measured
  };
  EXPECT_TRUE(judge_rows(machine_with_tiles(), false, rows));
  const bool wrong[] = {false, true, false, true, false, true, false};
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(!rows[i].error.empty(), wrong[i]) << i << ": " << rows[i].error;
  EXPECT_THAT(rows[1].error, HasSubstr("bf16 tdpbf16ps"));
  rows.erase(rows.begin() + 1);
  rows.resize(2);
  EXPECT_FALSE(judge_rows(machine_with_tiles(), false, rows));
  EXPECT_TRUE(rows[0].error.empty());
}

TEST(BenchRows, MedianSpreadAndRatesOfARow) {
  BenchRow r = row(BenchPhase::kBatch, 16, 32e9, 64e9, {1, 2, 4});
  r.streams = 4;
  EXPECT_EQ(r.median(), 2);
  EXPECT_EQ(r.spread(), 1.5);
  EXPECT_EQ(r.tokens_per_s(2), 32);
  EXPECT_EQ(r.steps(), 16);
  r.seconds = {1, 2, 4, 6};
  EXPECT_EQ(r.median(), 3);
}

std::string names(const std::vector<BenchRow>& rows) {
  std::string text;
  for (const BenchRow& r : rows)
    text +=
        fmt::format("{} {} @{} x{}{}; ", phase_name(r.phase), r.tokens, r.depth, r.streams, r.is_asked_for ? "!" : "");
  return text;
}

TEST(BenchPlan, TheUsualRowsFitTheContext) {
  EXPECT_EQ(wanted_context({}, 131072), 32768 + 64);
  EXPECT_EQ(wanted_context({}, 8192), 4096 + 64);
  EXPECT_EQ(wanted_context({}, 1024), 512);
  EXPECT_EQ(wanted_context({.depth = {700}}, 1024), 828);
  const auto rows = plan_bench_rows({}, 32768 + 64, 64);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(
      names(*rows),
      "prefill 1 @0 x1; prefill 8 @0 x1; prefill 32 @0 x1; prefill 128 @0 x1; prefill 512 @0 x1; prefill 2048 @0 x1; "
      "decode 64 @0 x1; decode 64 @4096 x1; decode 64 @32768 x1; batch 16 @0 x2; batch 16 @0 x4; batch 16 @0 x8; "
      "batch 16 @0 x16; batch 16 @0 x32; batch 16 @0 x64; start 32 @0 x1; ");
  const auto small = plan_bench_rows({}, 40, 4);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(
      names(*small),
      "prefill 1 @0 x1; prefill 8 @0 x1; prefill 32 @0 x1; decode 40 @0 x1; batch 16 @0 x2; batch 16 @0 x4; start 32 "
      "@0 x1; ");
}

TEST(BenchPlan, NamedPhasesAreMeasuredAlone) {
  const auto decode = plan_bench_rows({.decode = {8}}, 100, 64);
  ASSERT_TRUE(decode.ok());
  EXPECT_EQ(names(*decode), "decode 8 @0 x1!; ");
  const auto deep = plan_bench_rows({.prefill = {4}, .depth = {16, 0}}, 100, 64);
  ASSERT_TRUE(deep.ok());
  EXPECT_EQ(names(*deep), "prefill 4 @0 x1!; prefill 4 @16 x1!; ");
  const auto batch = plan_bench_rows({.depth = {8}, .batch = {3}}, 100, 64);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(names(*batch), "batch 16 @8 x3!; ");
  EXPECT_EQ(wanted_context({.decode = {800}}, 100000), 800);
  EXPECT_EQ(wanted_context({.decode = {8}, .depth = {5000, 7}}, 100000), 5008);
  EXPECT_EQ(wanted_context({.prefill = {3000}}, 100000), 3000);
  EXPECT_EQ(wanted_context({.prefill = {3000}}, 1024), 1024);  // planning names the flag
}

TEST(BenchPlan, WhatDoesNotFitNamesTheFlag) {
  const auto message = [](const BenchRequest& r) {
    return std::string(plan_bench_rows(r, 100, 64).status().message());
  };
  EXPECT_EQ(message({.prefill = {101}}),
            "flag --prefill: 101 tokens at depth 0 are 101, more than the context of 100; raise it with --context");
  EXPECT_EQ(message({.decode = {60}, .depth = {50}}),
            "flag --decode: 60 tokens at depth 50 are 110, more than the context of 100; raise it with --context");
  EXPECT_EQ(message({.depth = {100}}),
            "flag --depth: 100 leaves no room in the context of 100; raise it with --context");
  EXPECT_EQ(message({.batch = {65}}), "flag --batch: 65 streams are more than the 64 that one step takes");
  EXPECT_EQ(message({.depth = {90}, .batch = {2}}),
            "flag --batch: 16 tokens at depth 90 are 106, more than the context of 100; raise it with --context");
}

TEST(BenchTokens, AreInRangeAndDifferByRun) {
  const auto a = bench_tokens(100, 97, 1), b = bench_tokens(100, 97, 2);
  for (const int32_t t : a) EXPECT_TRUE(t >= 0 && t < 97);
  EXPECT_NE(a, b);
  EXPECT_TRUE(bench_tokens(0, 97, 1).empty());
}

BenchReport report() {
  BenchReport r;
  r.model.architecture = "llama";
  r.model.weight_types = "q4_0 x3";
  r.model.threads = 2;
  r.model.isa = "amx";
  r.label = "a<b>&\"c\".gguf";
  r.peaks = machine_with_tiles();
  r.check.against = "interpreter";
  r.rows = {row(BenchPhase::kPrefill, 512, 1, 1000e9, {2, 2.5}), row(BenchPhase::kDecode, 64, 400e12, 1, {39000}),
            row(BenchPhase::kStart, 32, 5e9, 1, {1})};
  BenchRow skipped;
  skipped.phase = BenchPhase::kDecode;
  skipped.depth = 4096;
  skipped.skipped = "about 400 s";
  r.rows.push_back(skipped);
  judge_rows(r.peaks, false, r.rows);
  return r;
}

TEST(BenchPlot, IsOneImageWithABarForEachMeasuredRow) {
  const std::string svg = bench_svg(report());
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;.gguf"));
  EXPECT_THAT(svg, Not(HasSubstr("a<b>")));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, HasSubstr("prefill 512"));
  EXPECT_THAT(svg, HasSubstr("faster than its bound"));
  EXPECT_THAT(svg, Not(HasSubstr("4096")));
  EXPECT_THAT(svg, Not(HasSubstr("href")));  // nothing from outside
  const auto bars = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("class=\"track\""); at != std::string::npos; at = text.find("class=\"track\"", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(bars(svg), 3u);
  // The second row is past its bound: its bar ends with the scale.
  EXPECT_THAT(svg, HasSubstr("width=\"440.0\" height=\"18.0\" rx=\"3\" class=\"bad\""));
  const std::string html = bench_html(report());
  EXPECT_EQ(bars(html), 6u);  // a plot for wide windows and one for narrow ones
  EXPECT_THAT(html, HasSubstr("<div class=\"wide\"><svg"));
  EXPECT_THAT(html, HasSubstr("<div class=\"narrow\"><svg"));
  EXPECT_THAT(html, HasSubstr("skipped: about 400 s"));
}

TEST(BenchPlot, NamesOfOtherKindsAreRefused) {
  EXPECT_TRUE(check_plot_name("").ok());
  EXPECT_TRUE(check_plot_name("a.svg").ok());
  EXPECT_TRUE(check_plot_name("b/a.html").ok());
  EXPECT_EQ(check_plot_name("a.png").code(), Code::invalid_argument);
}

TEST(BenchJson, HoldsWhatARowIs) {
  const Json json = bench_json(report());
  EXPECT_EQ(json["rows"][0]["phase"], "prefill");
  EXPECT_EQ(json["rows"][0]["bound_by"], "bf16 tdpbf16ps");
  EXPECT_DOUBLE_EQ(json["rows"][0]["ceiling_share"].get<double>(), 1 / 2.25);
  EXPECT_TRUE(json["rows"][1].contains("error"));
  EXPECT_EQ(json["rows"][3]["skipped"], "about 400 s");
}

TEST(SelfProcess, ATestProgramIsNotStartedAgain) {
  EXPECT_EQ(run_self({"version"}, {}, 10).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace redline::lab
