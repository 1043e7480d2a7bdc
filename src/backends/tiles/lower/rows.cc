// embedding, gather_rows, gather_columns and place_rows.
#include <cstring>

#include "backends/tiles/tile_lowering.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gather_columns.h"
#include "graph/ops/gather_rows.h"
#include "graph/ops/place_rows.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

using EmbeddingStage = TileStageBuilder<tiles::Embedding>;
using GatherStage = TileStageBuilder<tiles::GatherRows>;
using ColumnsStage = TileStageBuilder<tiles::GatherColumns>;
using PlaceStage = TileStageBuilder<tiles::PlaceRows>;

Status lower_embedding(TileLowerContext& c) {
  const ValueInfo& w = c.in(0);
  EmbeddingStage s(c, tiles::KernelId::kEmbedding);
  REDLINE_ASSIGN(s.args.format, panel_format(w.dtype).within(w.name));
  REDLINE_TRY(s.packed_weight(&EmbeddingStage::Args::weight, 0));
  s.args.hidden_size = static_cast<int32_t>(w.shape[1].constant());
  s.args.panel_bytes = static_cast<int32_t>(packed_bytes(w.dtype, kRowPanelRows, w.shape[1].constant()));
  s.read(&EmbeddingStage::Args::tokens, c.op().inputs[1], Reads::kRows);
  s.write(&EmbeddingStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], w.shape[1].constant(), w.shape[1].constant(), 8, c.row_parts());
  s.add();
  return {};
}

Status lower_gather_rows(TileLowerContext& c) {
  GatherStage s(c, tiles::KernelId::kGatherRows);
  const int64_t cols = c.out().shape[1].constant();
  s.args.cols = static_cast<int32_t>(cols);
  s.read(&GatherStage::Args::x, c.op().inputs[0], Reads::kAll);
  s.read(&GatherStage::Args::rows, c.op().inputs[1], Reads::kRows);
  s.write(&GatherStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  s.add();
  return {};
}

Status lower_gather_columns(TileLowerContext& c) {
  ColumnsStage s(c, tiles::KernelId::kGatherColumns);
  const std::vector<int32_t>& columns = *std::any_cast<const GatherColumnsAttrs&>(c.op().attrs).columns;
  const int64_t x_cols = c.in(0).shape[1].constant(), y_cols = c.out().shape[1].constant();
  s.args.x_cols = static_cast<int32_t>(x_cols);
  s.args.y_cols = static_cast<int32_t>(y_cols);
  std::vector<float> bits(columns.size());
  std::memcpy(bits.data(), columns.data(), columns.size() * sizeof(float));
  REDLINE_TRY(s.constant(&ColumnsStage::Args::columns, bits));
  s.read(&ColumnsStage::Args::x, c.op().inputs[0], Reads::kRows);
  s.write(&ColumnsStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], y_cols, 1024, 8, c.row_parts());
  s.add();
  return {};
}

Status lower_place_rows(TileLowerContext& c) {
  PlaceStage s(c, tiles::KernelId::kPlaceRows);
  const auto& in = c.op().inputs;
  const int64_t cols = c.out().shape[1].constant();
  s.args.cols = static_cast<int32_t>(cols);
  s.args.adds = std::any_cast<const PlaceRowsAttrs&>(c.op().attrs).adds ? 1 : 0;
  s.row_dim(s.args.row_dim, c.in(2).shape[0]);
  s.read(&PlaceStage::Args::x, in[0], Reads::kTile);
  s.read(&PlaceStage::Args::rows, in[1], Reads::kAll);
  s.read(&PlaceStage::Args::at, in[2], Reads::kAll);
  s.write(&PlaceStage::Args::y, c.op().outputs[0]);
  s.plan().in_place_of = in[0];
  s.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  s.add();
  return {};
}

constexpr TileLowering kRowsOps[] = {{&kEmbedding, lower_embedding},
                                     {&kGatherRows, lower_gather_rows},
                                     {&kGatherColumns, lower_gather_columns},
                                     {&kPlaceRows, lower_place_rows}};

}  // namespace

extern const TileLowerings kRowsTileLowerings = kRowsOps;

}  // namespace redline
