// Two stages: x down^T by rows, then up by columns. The down matrix has a type whose kernels read x in the form that the
// product beside it wants (8 bits, or w8a8, where that one takes them), so that x is prepared once.
#include "graph/ops/low_rank.h"

#include <algorithm>

#include "graph/lower.h"
#include "graph/ops/conv2d.h"
#include "graph/ops/linear.h"
#include "graph/reference.h"

namespace redline {
namespace {

Status reference(ReferenceContext& c) {
  const HostTensor &x = c.in(0), &y = c.in(2);
  const AdapterSlot& slot = *c.attrs<LowRankAttrs>().slot;
  c.out().data = y.data;
  for (const AdapterPart& part : slot.parts) {
    for (int64_t m = 0; m < x.rows(); ++m)
      for (int64_t r = 0; r < part.rank; ++r) {
        double t = 0;
        for (int64_t k = 0; k < slot.in_features; ++k)
          t += x.row(m)[k] * static_cast<double>(part.plain_down[r * slot.in_features + k]);
        t *= static_cast<double>(part.scale);
        for (int64_t n = 0; n < slot.out_features; ++n)
          c.out().row(m)[n] += t * static_cast<double>(part.plain_up[n * part.rank + r]);
      }
  }
  return {};
}

struct Attrs {
  std::shared_ptr<AdapterSlot> slot;
  XForms forms;                                      // of x
  void (*down[kNumXForms])(const LinearArgs&) = {};  // by the form that x has
  AdapterUp up;
};

// operands: x, t. A tile is some rows, brought to whole panels of x.
void run_down(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const AdapterSlot& slot = *a.slot;
  if (slot.parts.empty()) return;
  const int64_t rows = stage.rows.eval(step.sizes);
  const XForm form = a.forms.for_rows(rows);
  const auto panel = [&](int64_t row) {
    const int64_t lines = x_form_panel(form);
    return row >= rows ? row : (row + lines - 1) / lines * lines;
  };
  const int64_t begin = panel(tile.row_begin), end = std::min(rows, panel(tile.row_end));
  if (begin >= end) return;
  float* t = stage.operand<float>(1) + begin * slot.max_rank;
  for (const AdapterPart& part : slot.parts) {
    LinearArgs args = {};
    args.x = static_cast<const uint8_t*>(stage.operands[0]) + x_form_bytes(form, begin, slot.in_features);
    args.x_stride = args.in_features = slot.in_features;
    args.rows = end - begin;
    args.weight = part.down;
    args.out_features = args.n_end = part.rank;
    args.y = t;
    args.y_stride = slot.max_rank;
    args.scratch = worker.scratch;
    a.down[static_cast<int>(form)](args);
    for (int64_t r = 0; r < end - begin; ++r)
      for (int64_t i = 0; i < part.rank; ++i) t[r * slot.max_rank + i] *= part.scale;
    t += part.rank;
  }
}

// operands: t, the product's y, y. All rows of some columns.
void run_up(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const AdapterSlot& slot = *a.slot;
  const int64_t rows = tile.row_end;
  const float* t = stage.operand<float>(0);
  const float* residual = stage.operand<float>(1);
  auto* y = stage.operand<float>(2);
  if (slot.parts.empty() && residual != y)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(y + r * slot.out_features + tile.col_begin, residual + r * slot.out_features + tile.col_begin,
                  static_cast<size_t>(tile.col_end - tile.col_begin) * sizeof(float));
  for (const AdapterPart& part : slot.parts) {
    LinearArgs args = {};
    args.rows = rows;
    args.out_features = slot.out_features;
    args.n_begin = tile.col_begin;
    args.n_end = tile.col_end;
    args.residual = residual;
    args.y = y;
    residual = y;  // of the next part
    args.y_stride = slot.out_features;
    args.scratch = worker.scratch;
    a.up.add(args, part, t, slot.max_rank, rows >= kXTileRows, worker.buffer);
    t += part.rank;
  }
}

Status lower(LowerContext& c) {
  const auto& slot = std::any_cast<const LowRankAttrs&>(c.op().attrs).slot;
  REDLINE_ASSIGN(const LinearKernels base, linear_kernels(c, 1));
  const CpuKernels& table = c.kernels();
  const bool exact = c.options().exact_f32;
  auto attrs = std::make_shared<Attrs>();
  attrs->slot = slot;
  attrs->forms = base.forms;
  bool takes_q8 = false, takes_i8 = false;
  for (int i = 0; i < base.forms.count; ++i) {
    takes_q8 |= base.forms.at[i].form == XForm::kQ8;
    takes_i8 |= base.forms.at[i].form == XForm::kI8;
  }
  slot->down_type = takes_i8 ? DType::kW8A8 : takes_q8 ? DType::kQ8_0 : exact ? DType::kF32 : DType::kBF16;
  attrs->up = AdapterUp::choose(table, exact);
  slot->up_type = attrs->up.type;
  const auto down = static_cast<size_t>(slot->down_type);
  attrs->down[static_cast<int>(XForm::kF32)] = table.linear[down];
  attrs->down[static_cast<int>(XForm::kQ8)] = table.linear_q8[down];
  attrs->down[static_cast<int>(XForm::kTiles)] = table.linear_tiles[down];
  attrs->down[static_cast<int>(XForm::kI8)] = takes_i8 ? table.linear_i8 : nullptr;
  for (int i = 0; i < base.forms.count; ++i)
    if (!attrs->down[static_cast<int>(base.forms.at[i].form)])
      return unsupported("no kernel for adapters whose x is {}", x_form_name(base.forms.at[i].form));
  const auto& in = c.op().inputs;
  const auto& out = c.op().outputs;

  Stage first;
  first.name = c.op().name + ".down";
  first.run = run_down;
  first.rows = c.out(1).shape[0];
  first.cols = slot->max_rank;
  first.row_tiles = c.workers();
  first.reads = {{in[0], Reads::kAll}};
  first.writes = {out[1]};
  first.attrs = attrs;
  c.add_stage(std::move(first), {c.at(in[0]), c.at(out[1])});

  Stage second = c.output_stage(run_up);
  second.name = c.op().name + ".up";
  second.writes = {out[0]};
  second.col_begin = LowerContext::cut_columns(slot->out_features, kStripRows, c.workers() * 2);
  second.reads = {{out[1], Reads::kAll}, {in[2], Reads::kTile}};
  second.in_place_of = in[2];
  second.buffer_bytes = attrs->up.buffer_bytes(second.rows.eval(c.options().bounds), slot->max_rank);
  second.attrs = attrs;
  c.add_stage(std::move(second), {c.at(out[1]), c.at(in[2]), c.at(out[0])});
  return {};
}

std::string describe(const std::any& any) {
  return fmt::format("rank up to {}", std::any_cast<const LowRankAttrs&>(any).slot->max_rank);
}

}  // namespace

const OpDef kLowRank = {
    .name = "low_rank", .reference = reference, .lower = lower, .describe = describe, .num_matrices = 1};

AdapterUp AdapterUp::choose(const CpuKernels& table, bool exact_f32) {
  AdapterUp up;
  up.type = exact_f32 ? DType::kF32 : DType::kBF16;
  up.by_rows = table.linear[static_cast<size_t>(up.type)];
  if (exact_f32 || !table.has_tile_unit) return up;
  up.by_tiles = table.linear_tiles[static_cast<size_t>(up.type)];
  up.prepare_tiles = table.prepare_x[static_cast<int>(XForm::kTiles)];
  return up;
}

void AdapterUp::add(LinearArgs args, const AdapterPart& part, const float* t, int64_t t_stride, bool tiles,
                    void* buffer) const {
  args.weight = part.up;
  args.in_features = part.rank;
  if (by_tiles && tiles) {
    prepare_tiles({t, t_stride, part.rank, 0, args.rows, 0, part.rank, buffer});
    args.x = buffer;
    by_tiles(args);
  } else {
    args.x = t;
    args.x_stride = t_stride;
    by_rows(args);
  }
}

AdapterSlots add_adapter_slots(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted) {
  AdapterSlots slots;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    ops.push_back(std::move(op));
    Op& product = ops.back();
    const bool is_conv = product.def == &kConv2d;
    if ((product.def != &kLinear && !is_conv) || !wanted(graph.value(product.inputs[1]).name)) continue;
    const ValueInfo weight = graph.value(product.inputs[1]);
    auto slot = std::make_shared<AdapterSlot>();
    slot->weight = weight.name;
    slot->out_features = weight.shape[0].constant();
    slot->in_features = num_elements(weight.shape).constant() / slot->out_features;
    slot->max_rank = max_rank;
    slot->source_row = weight.weight.source_row;
    if (is_conv) {
      auto attrs = std::any_cast<Conv2dOpAttrs>(product.attrs);
      slot->kernel = attrs.kernel;
      attrs.adapter = slot;
      product.attrs = std::move(attrs);
      slots.push_back(std::move(slot));
      continue;
    }
    const auto add_value = [&](Shape shape, const char* suffix) {
      ValueInfo info;
      info.name = product.name + suffix;
      info.shape = std::move(shape);
      graph.values.push_back(std::move(info));
      return static_cast<ValueId>(graph.values.size()) - 1;
    };
    // The product writes a value of its own; what everybody reads is the sum.
    const ValueId sum = product.outputs[0];
    const Shape shape = graph.value(sum).shape;
    product.outputs[0] = add_value(shape, ".base");
    const ValueId inner = add_value({shape[0], Dim(max_rank)}, ".low_rank");
    ops.push_back({&kLowRank,
                   product.name + ".adapter",
                   {product.inputs[0], product.inputs[1], product.outputs[0]},
                   {sum, inner},
                   LowRankAttrs{slot}});
    slots.push_back(std::move(slot));
  }
  graph.ops = std::move(ops);
  return slots;
}

}  // namespace redline
