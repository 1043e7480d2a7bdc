// Tests of the choice of what runs on a device that has too little memory for a model.
#include "llm/layer_placement.h"

#include <gtest/gtest.h>

#include "graph/ops/linear.h"
#include "runtime/placement_speeds.h"
#include "runtime/runtime_resources.h"
#include "support/graph_harness.h"

namespace redline::test {
namespace {

constexpr PlacementSpeeds kFastDevice = {{1000, 0.01}, {100, 0.001}}, kSlowDevice = {{50, 0.01}, {100, 0.001}};

TEST(LayerPlacement, AFasterDeviceGetsWhatFits) {
  const ModelCost model = {.layers = std::vector<LayerCost>(4, {.bytes = 100}), .front_bytes = 50, .back_bytes = 70};
  EXPECT_EQ(place_layers(model, kFastDevice, 1000).layers, 4);
  EXPECT_EQ(place_layers(model, kFastDevice, 519).layers, 3);  // all layers and what comes behind take 520
  EXPECT_EQ(place_layers(model, kFastDevice, 249).layers, 1);
  EXPECT_EQ(place_layers(model, kFastDevice, 149).layers, 0);
  // 1 layer: 100 / 1000 + 370 / 100 seconds of reading, and a program on each side.
  EXPECT_NEAR(place_layers(model, kFastDevice, 249).seconds, 0.1 + 3.7 + 0.011, 1e-12);
}

TEST(LayerPlacement, ASlowerDeviceGetsNothing) {
  const ModelCost model = {.layers = std::vector<LayerCost>(4, {.bytes = 100})};
  EXPECT_EQ(place_layers(model, kSlowDevice, 1000).layers, 0);
  // One that is faster and takes too long to start.
  EXPECT_EQ(place_layers(model, {{1000, 10}, {100, 0.001}}, 1000).layers, 0);
}

// A token reads a tenth of the experts: the memory of one layer's experts saves less than the attention of nine others.
TEST(LayerPlacement, ExpertsGiveWayToTheRestOfTheLayers) {
  const ModelCost model = {.layers =
                               std::vector<LayerCost>(3, {.bytes = 100, .expert_bytes = 900, .expert_share = 0.1})};
  const LayerPlacement two = place_layers(model, kFastDevice, 2300);
  EXPECT_EQ(two.layers, 3);
  EXPECT_EQ(two.expert_layers, 2);
  EXPECT_EQ(two.device_bytes, 2100);
  const LayerPlacement none = place_layers(model, kFastDevice, 1100);
  EXPECT_EQ(none.layers, 3);
  EXPECT_EQ(none.expert_layers, 0);
  // Where going there and back takes longer than it saves, whole layers.
  const LayerPlacement whole = place_layers(model, {{1000, 1}, {100, 1}}, 2300);
  EXPECT_EQ(whole.layers, 2);
  EXPECT_EQ(whole.expert_layers, 2);
}

TEST(LayerPlacement, SpeedsAreMeasuredOnBothSides) {
  Numbers n;
  GraphBuilder g("model");
  const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(32)});
  g.set_scope("layers.0.");
  g.output("y", linear(g, x, g.weight("layers.0.w", n.weight({48, 32}))));
  const Graph graph = std::move(g.finish()).value();
  RuntimeOptions options;
  options.threads = 1;
  const std::shared_ptr<Runtime> runtime = Runtime::open(options).value();
  const auto speeds = measure_placement_speeds(graph, {DeviceKind::kEmulated}, resources_of(*runtime));
  ASSERT_TRUE(speeds.ok()) << speeds.status().to_string();
  for (const PlacementSpeed& side : {speeds->device, speeds->cpu}) {
    EXPECT_GT(side.bytes_per_second, 0);
    EXPECT_GT(side.step_seconds, 0);
  }
  const ModelCost cost = model_cost(graph, 1, 1000);
  EXPECT_EQ(cost.layers[0].bytes, 48 * 32 * 4 + 1000);
}

// One matrix may lie in a cache: as many as are wanted, which one input serves.
TEST(LayerPlacement, MatricesThatExceedTheCachesAreTimed) {
  Numbers n;
  GraphBuilder g("model");
  const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(32)});
  g.set_scope("front.");
  const Value front = linear(g, x, g.weight("front.w", n.weight({320, 32})));
  g.set_scope("layers.0.");
  const Value a = linear(g, x, g.weight("a", n.weight({40, 32}))), b = linear(g, x, g.weight("b", n.weight({48, 32})));
  g.set_scope("layers.1.");
  const Value c = linear(g, a, g.weight("c", n.weight({32, 40}))), d = linear(g, c, g.weight("d", n.weight({44, 32})));
  for (const auto& [name, value] : {std::pair{"front", front}, {"b", b}, {"d", d}}) g.output(name, value);
  const Graph graph = std::move(g.finish()).value();
  const auto names = [&](int64_t bytes) {
    std::string text;
    for (const ValueInfo* value : matrices_to_time(graph, bytes)) text += value->name + " ";
    return text;
  };
  constexpr int64_t kRow = 32 * 4;
  EXPECT_EQ(names(1), "b ");
  EXPECT_EQ(names(48 * kRow), "b ");
  EXPECT_EQ(names(49 * kRow), "b d ");
  EXPECT_EQ(names(1000 * kRow), "b d a ");
}

}  // namespace
}  // namespace redline::test
