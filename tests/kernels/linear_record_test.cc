// choose_linear follows the table that records give, where this machine's kernels are those of a line.
#include "kernels/cpu/linear_record.h"

#include "kernels/cpu/linear_choice.h"
#include "support/isa_test.h"

namespace redline {
namespace {

struct Line {
  std::string_view isa, type;
  int count;
  struct {
    int64_t min_rows;
    ActivationLayout form;
  } at[ActivationLayouts::kMax];
};
const Line kLines[] = {
#include "kernels/cpu/linear_choice_table.inc"
    {"", "", 0, {}},
};

using LinearRecord = IsaTest;

TEST_P(LinearRecord, ChoosesWhatIsRecordedAndElseByRule) {
  int count = 0;
  const std::string_view isa = cpu_isas(&count)[GetParam()].name;
  for (const Line& line : kLines) {
    if (line.isa != isa) continue;
    const Result<DType> type = dtype_from_name(line.type);
    ASSERT_TRUE(type.ok()) << line.type;
    EXPECT_TRUE(is_linear_choice_recorded(kernels(), *type)) << line.type;
    const LinearKernels chosen = choose_linear(kernels(), *type, false);
    ASSERT_EQ(chosen.layouts.count, line.count);
    for (int i = 0; i < line.count; ++i) {
      EXPECT_EQ(chosen.layouts.at[i].min_rows, line.at[i].min_rows);
      EXPECT_EQ(chosen.layouts.at[i].layout, line.at[i].form);
      EXPECT_NE(chosen.run[i], nullptr);
      if (i > 0) {
        EXPECT_GT(line.at[i].min_rows, line.at[i - 1].min_rows);
      }
    }
    EXPECT_EQ(line.at[0].min_rows, 0) << "one row must be served too";
    EXPECT_TRUE(choose_linear(kernels(), *type, true).layouts.only_f32());
  }
  // A table that was put together otherwise is of no instruction set: the rule holds.
  CpuKernels own = kernels();
  own.linear_q8[static_cast<int>(DType::kQ4_0)] = [](const LinearArgs&) {};
  EXPECT_FALSE(is_linear_choice_recorded(own, DType::kQ4_0));
  EXPECT_EQ(choose_linear(own, DType::kQ4_0, false).layouts.at[0].layout, ActivationLayout::kI8Grouped);
  EXPECT_FALSE(is_linear_choice_recorded(kernels(), DType::kI32));
}

REDLINE_INSTANTIATE_PER_ISA(LinearRecord);

}  // namespace
}  // namespace redline
