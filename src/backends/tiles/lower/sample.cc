// sample: a stage that changes logits by the edits of a step, and one that samples.
#include "graph/ops/sample.h"

#include "backends/tiles/tile_lowering.h"

namespace redline {
namespace {

Status lower_sample(TileLowerContext& c) {
  const ValueId logits = c.op().inputs[0];
  const Dim rows = c.in(0).shape[0];
  const int64_t vocab_size = c.in(0).shape[1].constant();
  const ValueId changed = c.add_temporary("logits.changed", c.in(0).shape);

  TileStageBuilder<tiles::EditLogits> edit(c, tiles::KernelId::kEditLogits);
  edit.plan().name = edit.plan().op = "edit_logits";
  edit.args.vocab_size = static_cast<int32_t>(vocab_size);
  edit.read(&tiles::EditLogits::Args::logits, logits, Reads::kTile);
  edit.write(&tiles::EditLogits::Args::changed, changed);
  edit.stage().set_grid(rows, vocab_size, 4096, 8, 1);  // most tasks have no edit
  edit.add();

  TileStageBuilder<tiles::Sample> sample(c, tiles::KernelId::kSample);
  sample.args.vocab_size = static_cast<int32_t>(vocab_size);
  sample.read(&tiles::Sample::Args::logits, logits, Reads::kRows);
  sample.read(&tiles::Sample::Args::changed, changed, Reads::kRows);
  sample.write(&tiles::Sample::Args::sampled, c.op().outputs[0]);
  sample.stage().set_grid(rows, 1, 1, 1, c.row_parts());
  sample.add();
  return {};
}

constexpr TileLowering kSampleOps[] = {{&kSample, lower_sample}};

}  // namespace

extern const TileLowerings kSampleTileLowerings = kSampleOps;

}  // namespace redline
