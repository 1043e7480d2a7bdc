#include "lab/random/tensor_programs.h"

#include <gmock/gmock.h>

namespace redline::lab {
namespace {

using ::testing::HasSubstr;

TEST(TensorPrograms, HaveTheSizesOfTheirName) {
  struct Case {
    const char *name, *about;
    double operations;
  };
  // Operations: 2 x rows x elements of the matrices.
  const Case cases[] = {
      {"gemm:bf16", "a matrix product, 2048 columns, 2048 rows", 2.0 * 2048 * 2048 * 2048},
      {"b2b-gemm:f32", "two matrix products in a row, 512 columns, 8192 rows", 2.0 * 8192 * (64 * 512 * 2)},
      {"stacked-lstm:f32", "an LSTM of 32 layers, 256 columns, 256 sequences of 64 tokens",
       2.0 * 64 * 256 * 32 * (4 * 256 * 256 * 2)},
      {"dilated-lstm:bf16", "an LSTM of 6 layers with dilations 1 to 32, 256 columns, 256 sequences of 50 tokens",
       2.0 * 50 * 256 * 6 * (4 * 256 * 256 * 2)},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(is_random_network(c.name)) << c.name;
    const auto network = make_random_network(c.name, 0);
    ASSERT_TRUE(network.ok()) << network.status().to_string();
    EXPECT_EQ(network->about, c.about);
    EXPECT_EQ(static_cast<double>(network->graph.flops().eval(network->sizes)), c.operations) << c.name;
    EXPECT_LE(network->check_sizes[Symbol::kTokens], network->sizes[Symbol::kTokens]) << c.name;
  }
  EXPECT_THAT(list_random_networks(), HasSubstr("flux-vae, gemm, b2b-gemm, stacked-lstm, dilated-lstm"));
  EXPECT_THAT(make_random_network("stacked-lstm:f32", 24).status().message(),
              HasSubstr("side 24 is not a multiple of 16"));
}

TEST(RandomNetworks, AnUnknownNameListsModelsAndNetworks) {
  const std::string message = check_random_model("flux-blok:bf16").message();
  EXPECT_THAT(message, HasSubstr("no shape \"flux-blok\""));
  EXPECT_THAT(message, HasSubstr("; shapes: tiny, "));
  EXPECT_THAT(message, HasSubstr("; networks: flux-block, "));
  EXPECT_THAT(check_random_model("tiny:q4").message(), ::testing::Not(HasSubstr("networks")));
  EXPECT_TRUE(check_random_model("random:tiny:q4_0").ok());
}

}  // namespace
}  // namespace redline::lab
