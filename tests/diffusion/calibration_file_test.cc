#include "diffusion/calibration_file.h"

#include <gmock/gmock.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

TEST(CalibrationFile, IsTheOneGivenElseTheOneNamedElseTheUsual) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const char* name, int64_t budget) {
    nlohmann::json mask = {{"steps", 20}};
    for (int64_t step = 0; step < budget; ++step) mask["computed"].push_back(step);
    std::ofstream(folder.path() + "/" + name)
        << nlohmann::json{{"format", 1}, {"masks", nlohmann::json::array({mask})}};
  };
  write("given.json", 3);
  write("named.json", 4);
  write("step_cache.json", 5);
  const auto budget = [&](const char* named, const std::string& given) {
    const auto masks = find_calibration(folder.path(), named, given);
    return masks.ok() && masks->size() == 1 ? std::ssize((*masks)[0].computed) : -1;
  };
  EXPECT_EQ(budget("named.json", folder.path() + "/given.json"), 3);
  EXPECT_EQ(budget("named.json", ""), 4);
  EXPECT_EQ(budget("", ""), 5);
  EXPECT_EQ(find_calibration(folder.path(), "missing.json", "").status().code(), Code::not_found);
  EXPECT_EQ(find_calibration(folder.path(), "", "/nowhere").status().code(), Code::not_found);
}

TEST(CalibrationFile, AMaskThatIsMissingIsNamed) {
  const std::vector<CalibratedMask> masks = {{28, {0, 1, 5}}, {20, {0, 4}}};
  EXPECT_TRUE(require_mask(masks, 28, 3).ok());
  EXPECT_TRUE(require_mask(masks, 28, 0).ok()) << "nothing is asked for";
  EXPECT_THAT(require_mask(masks, 28, 2).message(), HasSubstr("a budget of 2 of 28 steps; there are 3 of 28, 2 of 20"));
  EXPECT_THAT(require_mask({}, 28, 2).message(), HasSubstr("there are none"));
}

TEST(CalibrationFile, SaysWhatIsWrong) {
  const auto message = [](const char* text) {
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    const auto masks = parse_calibration(json);
    return masks.ok() ? std::string("accepted") : masks.status().to_string();
  };
  EXPECT_EQ(message(R"({"format": 1, "masks": [{"steps": 4, "computed": [0, 2]}]})"), "accepted");
  EXPECT_THAT(message("[]"), HasSubstr("an object with \"format\""));
  EXPECT_THAT(message(R"({"format": 2, "masks": []})"), HasSubstr("unsupported: calibration of format 2"));
  EXPECT_THAT(message(R"({"format": 1})"), HasSubstr("\"masks\" is not a list"));
  EXPECT_THAT(message(R"({"format": 1, "masks": [3]})"), HasSubstr("masks[0]: \"steps\""));
  EXPECT_THAT(message(R"({"format": 1, "masks": [{"steps": 4, "computed": 1}]})"),
              HasSubstr("\"computed\" is not a list"));
  EXPECT_THAT(message(R"({"format": 1, "masks": [{"steps": 4, "computed": [0, 4]}]})"), HasSubstr("does not rise"));
  EXPECT_THAT(message(R"({"format": 1, "masks": [{"steps": 4, "computed": [0, 0]}]})"), HasSubstr("does not rise"));
  EXPECT_THAT(message(R"({"format": 1, "masks": [{"steps": 4, "computed": [1]}]})"), HasSubstr("begin with step 0"));
  EXPECT_THAT(message(R"({"format": 1, "masks": [{"steps": 4, "computed": ["a"]}]})"), HasSubstr("whole numbers"));
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/step_cache.json";
  std::ofstream(path) << "{";
  EXPECT_THAT(read_calibration(path).status().message(),
              HasSubstr("step_cache.json: incomplete: the JSON ends at byte 1"));
}

}  // namespace
}  // namespace redline
