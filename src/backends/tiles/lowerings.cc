// The table of tile lowerings: one row per op, defined in lower/.
#include "backends/tiles/tile_lowering.h"

namespace redline {

extern const TileLowering kActivationTiles;
extern const TileLowering kAddTiles;
extern const TileLowering kAttentionTiles;
extern const TileLowering kCausalConvTiles;
extern const TileLowering kConcatColsTiles;
extern const TileLowering kConcatHeadsTiles;
extern const TileLowering kEmbeddingTiles;
extern const TileLowering kExpertGatedLinearTiles;
extern const TileLowering kExpertLinearTiles;
extern const TileLowering kExpertSumTiles;
extern const TileLowering kGatedActivationTiles;
extern const TileLowering kGatedNormTiles;
extern const TileLowering kGatedScanTiles;
extern const TileLowering kGatherRowsTiles;
extern const TileLowering kHeadLinearTiles;
extern const TileLowering kKvAppendTiles;
extern const TileLowering kLayerNormTiles;
extern const TileLowering kLinearTiles;
extern const TileLowering kMoeRouterTiles;
extern const TileLowering kRmsNormTiles;
extern const TileLowering kRopeTableTiles;
extern const TileLowering kRopeTiles;
extern const TileLowering kScaleTiles;
extern const TileLowering kSigmoidMulTiles;
extern const TileLowering kSiluMulTiles;
extern const TileLowering kSoftCapTiles;

namespace {

const TileLowering* const kTileLowerings[] = {
    &kActivationTiles,   &kAddTiles,         &kAttentionTiles,       &kCausalConvTiles,
    &kConcatColsTiles,   &kConcatHeadsTiles, &kEmbeddingTiles,       &kExpertGatedLinearTiles,
    &kExpertLinearTiles, &kExpertSumTiles,   &kGatedActivationTiles, &kGatedNormTiles,
    &kGatedScanTiles,    &kGatherRowsTiles,  &kHeadLinearTiles,      &kKvAppendTiles,
    &kLayerNormTiles,    &kLinearTiles,      &kMoeRouterTiles,       &kRmsNormTiles,
    &kRopeTableTiles,    &kRopeTiles,        &kScaleTiles,           &kSigmoidMulTiles,
    &kSiluMulTiles,      &kSoftCapTiles,
};

}  // namespace

const TileLowering* find_tile_lowering(const OpDef* op) {
  for (const TileLowering* lowering : kTileLowerings)
    if (lowering->op == op) return lowering;
  return nullptr;
}

}  // namespace redline
