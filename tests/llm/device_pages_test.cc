// Pages of the prefix cache that lie on a device, in files.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "redline/text.h"
#include "support/golden.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"

namespace redline::testing {
namespace {

std::unique_ptr<TextEngine> open_model(const std::string& model, const TextEngineOptions& options) {
  auto engine = TextEngine::open(golden_root() + "/" + model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

GenerateRequest request_of(int64_t length) {
  GenerateRequest request;
  for (int64_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<int32_t>(i * 7 % 60 + 3));
  request.sampling.temperature = 0;
  request.max_tokens = 4;
  request.ignore_stop_tokens = true;
  return request;
}

// They are copied to the host and back: of all layers or of some, whole texts and windows.
TEST(DevicePages, ALaterEngineComputesOnlyWhatIsNew) {
  struct Case {
    std::string model;
    int64_t gpu_layers;
  };
  for (const Case& c : {Case{"llama_gqa", -1}, Case{"qwen2_layer_types", -1}, Case{"qwen2_layer_types", 1}}) {
    SCOPED_TRACE(::testing::Message() << c.model << ", layers " << c.gpu_layers);
    const TemporaryFolder folder;
    std::vector<std::string> notices;
    TextEngineOptions options;
    options.threads = 2;
    options.cache_folder = folder.path();
    options.on_notice = [&](const std::string& text) { notices.push_back(text); };
    options.device = test::test_device();
    options.gpu_layers = c.gpu_layers;
    const GenerateRequest request = request_of(75);
    const auto want = open_model(c.model, options)->generate(request);
    ASSERT_TRUE(want.ok()) << want.status().to_string();
    EXPECT_EQ(want->cached_tokens, 0);
    const auto got = open_model(c.model, options)->generate(request);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(got->cached_tokens, 64);
    EXPECT_EQ(got->tokens, want->tokens);
    // The CPU's pages have other contents.
    options.device = "cpu";
    options.gpu_layers = -1;
    EXPECT_EQ(open_model(c.model, options)->generate(request)->cached_tokens, 0);
    EXPECT_TRUE(notices.empty()) << notices[0];
  }
}

}  // namespace
}  // namespace redline::testing
