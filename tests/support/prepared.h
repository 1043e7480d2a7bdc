// Ops that store their output in the forms that products read: they must store what prepare_x would.
#pragma once

#include "graph/ops/linear.h"
#include "graph/ops/prepare_x.h"
#include "support/graph_harness.h"
#include "support/random_weight.h"

namespace redline::test {

/// `build` declares inputs and gives the value of the op under test, whose columns are whole groups of 32. A product
/// reads it: once from what the op stores itself, once through prepare_x (the value is an output then, so it stays
/// float32). Both must give the same bits, at every step, for weights that want every form.
inline void expect_prepares(const std::function<Value(GraphBuilder&, Numbers&)>& build, const MakeInputs& inputs,
                            const std::vector<SymbolValues>& steps) {
  for (const DType type : testing::each_kind_of_weight()) {
    SCOPED_TRACE(std::string(dtype_info(type).name));
    std::unique_ptr<testing::RandomWeight> weight;
    Numbers kept[2] = {Numbers(7), Numbers(7)};  // own the data of weights until these are packed
    auto make = [&](bool is_output) {
      Numbers& numbers = kept[is_output];
      GraphBuilder g("test");
      const Value x = build(g, numbers);
      if (!weight) weight = std::make_unique<testing::RandomWeight>(type, 16, g.info(x).shape[1].constant(), 5);
      g.output("y", linear(g, x, g.weight("w", {.view = weight->view(), .source_row = {}, .file = {}})));
      if (is_output) g.output("x", x);
      auto graph = g.finish();
      EXPECT_TRUE(graph.ok()) << graph.status().to_string();
      return std::move(graph).value();
    };
    Compiled itself = Compiled::make(make(false), 3, bounds_of(steps));
    Compiled through = Compiled::make(make(true), 3, bounds_of(steps));
    auto prepares = [](const Compiled& c) {
      int n = 0;
      for (const StagePlan& stage : c.program->stages) n += stage.op == kPrepareX.name;
      return n;
    };
    EXPECT_EQ(prepares(itself), 0);
    for (const SymbolValues& now : steps) {
      Numbers input_numbers(11);
      const auto in = inputs(input_numbers, now);
      StepContext step;
      step.sizes = now;
      std::vector<float> y[2];
      for (Compiled* c : {&itself, &through}) {
        for (const auto& [name, tensor] : in) c->put(name.c_str(), tensor);
        ASSERT_TRUE(c->executor->step(step).ok());
        const Program::Port* port = c->program->find_output("y");
        y[c == &through] = c->get("y", num_elements(port->shape).eval(now));
      }
      ASSERT_EQ(y[0], y[1]);
    }
  }
}

}  // namespace redline::test
