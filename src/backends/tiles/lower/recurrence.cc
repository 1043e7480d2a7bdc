// causal_conv, gated_scan, gated_norm, sigmoid_mul and lstm.
#include "backends/tiles/shared_lowering.h"
#include "graph/ops/causal_conv.h"
#include "graph/ops/gated_norm.h"
#include "graph/ops/gated_scan.h"
#include "graph/ops/lstm.h"

namespace redline {
namespace {

using ConvStage = TileStageBuilder<tiles::CausalConv>;
using ScanStage = TileStageBuilder<tiles::GatedScan>;
using GatedNormStage = TileStageBuilder<tiles::GatedNorm>;
using GatesStage = TileStageBuilder<tiles::LinearF32>;
using LstmStage = TileStageBuilder<tiles::Lstm>;
using SigmoidStage = TileStageBuilder<tiles::Elementwise>;

/// Row tile of stages whose tasks compute all rows of their columns, because each token depends on the one before.
constexpr int kAllRows = INT32_MAX;

tiles::RecurrentAddress recurrent_address(const TileLowerContext& c, size_t i) {
  const KvPlace place = c.kv_state(i);
  return {static_cast<int32_t>(place.group), place.keys};
}

Status lower_causal_conv(TileLowerContext& c) {
  const auto& a = std::any_cast<const CausalConvAttrs&>(c.op().attrs);
  if (a.taps > tiles::CausalConv::kMaxTaps)
    return unsupported("a convolution of {} taps; this device has room for {}", a.taps, tiles::CausalConv::kMaxTaps);
  const int64_t channels = c.out().shape[1].constant();
  ConvStage s(c, tiles::KernelId::kCausalConv);
  s.args.channels = static_cast<int32_t>(channels);
  s.args.taps = static_cast<int32_t>(a.taps);
  s.args.has_silu = a.has_silu ? 1 : 0;
  s.args.state = recurrent_address(c, 2);
  REDLINE_TRY(s.dense_weight(&ConvStage::Args::weight, 1));
  if (c.op().inputs.size() > 3) REDLINE_TRY(s.dense_weight(&ConvStage::Args::bias, 3));
  s.read(&ConvStage::Args::x, c.op().inputs[0], Reads::kCols);
  s.write(&ConvStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], channels, 256, kAllRows, 1);
  s.add();
  return {};
}

Status lower_gated_scan(TileLowerContext& c) {
  const auto& a = std::any_cast<const GatedScanAttrs&>(c.op().attrs);
  ScanStage s(c, tiles::KernelId::kGatedScan);
  s.args.num_heads = static_cast<int32_t>(a.num_heads);
  s.args.num_groups = static_cast<int32_t>(a.num_groups);
  s.args.key_dim = static_cast<int32_t>(a.key_dim);
  s.args.value_dim = static_cast<int32_t>(a.value_dim);
  s.args.groups_alternate = a.groups_alternate ? 1 : 0;
  s.args.step_min = a.step_min;
  s.args.step_max = a.step_max;
  s.args.state = recurrent_address(c, 5);
  REDLINE_TRY(s.dense_weight(&ScanStage::Args::decay, 2));
  REDLINE_TRY(s.dense_weight(&ScanStage::Args::bias, 3));
  s.read(&ScanStage::Args::x, c.op().inputs[0], Reads::kAll);
  s.read(&ScanStage::Args::step, c.op().inputs[1], Reads::kAll);
  if (a.is_delta) s.read(&ScanStage::Args::beta, c.op().inputs[4], Reads::kAll);
  else REDLINE_TRY(s.dense_weight(&ScanStage::Args::skip, 4));
  s.write(&ScanStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], a.num_heads * a.value_dim, a.value_dim, kAllRows, 1);
  s.add();
  return {};
}

Status lower_gated_norm(TileLowerContext& c) {
  const auto& a = std::any_cast<const GatedNormAttrs&>(c.op().attrs);
  const int64_t cols = c.out().shape[1].constant();
  GatedNormStage s(c, tiles::KernelId::kGatedNorm);
  s.args.cols = static_cast<int32_t>(cols);
  s.args.group = static_cast<int32_t>(a.group);
  s.args.weight_size = static_cast<int32_t>(c.in(2).shape[0].constant());
  s.args.eps = a.eps;
  s.args.gates_first = a.gates_first ? 1 : 0;
  REDLINE_TRY(s.dense_weight(&GatedNormStage::Args::weight, 2));
  s.read(&GatedNormStage::Args::x, c.op().inputs[0], Reads::kTile);
  s.read(&GatedNormStage::Args::gate, c.op().inputs[1], Reads::kTile);
  s.write(&GatedNormStage::Args::y, c.op().outputs[0]);
  s.plan().in_place_of = c.op().inputs[0];
  s.stage().set_grid(c.out().shape[0], cols, std::min(cols, std::max<int64_t>(1, 1024 / a.group) * a.group), 8,
                     c.row_parts());
  s.add();
  return {};
}

Status lower_sigmoid_mul(TileLowerContext& c) {
  SigmoidStage s(c, tiles::KernelId::kElementwise);
  s.args.op = tiles::Elementwise::Op::kSigmoid;
  s.args.cols = s.args.a_stride = s.args.b_stride = static_cast<int32_t>(c.out().shape[1].constant());
  s.read(&SigmoidStage::Args::a, c.op().inputs[0], Reads::kTile);
  s.read(&SigmoidStage::Args::b, c.op().inputs[1], Reads::kTile);
  s.write(&SigmoidStage::Args::y, c.op().outputs[0]);
  s.plan().in_place_of = c.op().inputs[0];
  s.stage().set_grid(c.out().shape[0], c.out().shape[1].constant(), 1024, 8, c.row_parts());
  s.add();
  return {};
}

/// Adds two stages for each layer: the products of its input for all tokens at once, then the recurrence. They compute
/// in float32 as on the CPU, because errors would add up from token to token.
Status lower_lstm(TileLowerContext& c) {
  const auto& a = std::any_cast<const LstmAttrs&>(c.op().attrs);
  if (a.hidden_size > tiles::Lstm::kMaxHidden)
    return unsupported("an lstm with hidden size {}; this device has room for {}", a.hidden_size,
                       tiles::Lstm::kMaxHidden);
  const Dim tokens = c.out().shape[0];
  ValueId x = c.op().inputs[0];
  for (int64_t layer = 0; layer < a.num_layers(); ++layer) {
    const auto at = static_cast<size_t>(2 + layer * (a.has_bias ? 4 : 2));
    const std::string name = fmt::format("{}.{}", c.op().name, layer);
    const ValueId gates = c.add_temporary(name + ".gates", {tokens, Dim(4 * a.hidden_size)});
    GatesStage input(c, tiles::KernelId::kLinearF32);
    REDLINE_TRY(set_product(input.args, c.in(at)));
    REDLINE_TRY(input.packed_weight(&tiles::LinearArgs::weight, at));
    if (a.has_bias) REDLINE_TRY(input.dense_weight(&tiles::LinearArgs::bias, at + 2));
    input.read(&tiles::LinearArgs::x, x, Reads::kRows);
    input.write(&tiles::LinearArgs::y, gates);
    input.plan().name = name + ".gates";
    input.stage().set_grid(tokens, 4 * a.hidden_size, tiles::kLinearCols, tiles::LinearF32::kPassRows, 1);
    input.add();

    const bool is_last = layer + 1 == a.num_layers();
    const ValueId y = is_last ? c.op().outputs[0] : c.add_temporary(name, {tokens, Dim(a.hidden_size)});
    tiles::LinearArgs matrix = {};
    REDLINE_TRY(set_product(matrix, c.in(at + 1)));
    LstmStage s(c, tiles::KernelId::kLstm);
    s.args.format = matrix.format;
    s.args.panel_stride = matrix.panel_stride;
    s.args.hidden = static_cast<int32_t>(a.hidden_size);
    s.args.dilation = static_cast<int32_t>(a.dilation[static_cast<size_t>(layer)]);
    s.args.num_partitions = c.multiprocessors();
    s.args.state = recurrent_address(c, 1);
    s.args.state.offset += a.state_offset(layer) * int64_t{sizeof(float)};
    REDLINE_TRY(s.packed_weight(&LstmStage::Args::weight, at + 1));
    if (a.has_bias) REDLINE_TRY(s.dense_weight(&LstmStage::Args::bias, at + 3));
    s.read(&LstmStage::Args::gates, gates, Reads::kAll);
    s.write(&LstmStage::Args::y, y);
    s.plan().name = name;
    s.stage().set_work_partitions(c.multiprocessors(), a.hidden_size);
    s.add();
    x = y;
  }
  return {};
}

constexpr TileLowering kRecurrenceOps[] = {
    {&kCausalConv, lower_causal_conv},
    {&kGatedScan, lower_gated_scan},
    {&kGatedNorm, lower_gated_norm},
    {&kSigmoidMul, lower_sigmoid_mul},
    {&kLstm, lower_lstm},
};

}  // namespace

extern const TileLowerings kRecurrenceTileLowerings = kRecurrenceOps;

}  // namespace redline
