// The table of tile lowerings: one row per op, defined in lower/.
#include "backends/tiles/tile_lowering.h"

namespace redline {

extern const TileLowering kActivationTiles;
extern const TileLowering kAddRowTiles;
extern const TileLowering kAddTiles;
extern const TileLowering kAttentionTiles;
extern const TileLowering kCausalConvTiles;
extern const TileLowering kConcatColsTiles;
extern const TileLowering kConcatHeadsTiles;
extern const TileLowering kConcatRowsTiles;
extern const TileLowering kConv2dTiles;
extern const TileLowering kEmbeddingTiles;
extern const TileLowering kExpertGatedLinearTiles;
extern const TileLowering kExpertLinearTiles;
extern const TileLowering kExpertSumTiles;
extern const TileLowering kGatedActivationTiles;
extern const TileLowering kGatedAddTiles;
extern const TileLowering kGatedNormTiles;
extern const TileLowering kGatedScanTiles;
extern const TileLowering kGatherRowsTiles;
extern const TileLowering kGroupNormSumsTiles;
extern const TileLowering kGroupNormTiles;
extern const TileLowering kHeadLinearTiles;
extern const TileLowering kJointAttentionTiles;
extern const TileLowering kKvAppendTiles;
extern const TileLowering kLayerNormTiles;
extern const TileLowering kLinearTiles;
extern const TileLowering kModulatedNormTiles;
extern const TileLowering kMoeRouterTiles;
extern const TileLowering kPackKvTiles;
extern const TileLowering kRelativeBiasAttentionTiles;
extern const TileLowering kRmsNormTiles;
extern const TileLowering kRopeTableTiles;
extern const TileLowering kRopeTiles;
extern const TileLowering kScaleTiles;
extern const TileLowering kSigmoidMulTiles;
extern const TileLowering kSiluMulTiles;
extern const TileLowering kSliceRowsTiles;
extern const TileLowering kSoftCapTiles;
extern const TileLowering kTimestepEmbeddingTiles;

namespace {

const TileLowering* const kTileLowerings[] = {
    &kActivationTiles,
    &kAddRowTiles,
    &kAddTiles,
    &kAttentionTiles,
    &kCausalConvTiles,
    &kConcatColsTiles,
    &kConcatHeadsTiles,
    &kConcatRowsTiles,
    &kConv2dTiles,
    &kEmbeddingTiles,
    &kExpertGatedLinearTiles,
    &kExpertLinearTiles,
    &kExpertSumTiles,
    &kGatedActivationTiles,
    &kGatedAddTiles,
    &kGatedNormTiles,
    &kGatedScanTiles,
    &kGatherRowsTiles,
    &kGroupNormSumsTiles,
    &kGroupNormTiles,
    &kHeadLinearTiles,
    &kJointAttentionTiles,
    &kKvAppendTiles,
    &kLayerNormTiles,
    &kLinearTiles,
    &kModulatedNormTiles,
    &kMoeRouterTiles,
    &kPackKvTiles,
    &kRelativeBiasAttentionTiles,
    &kRmsNormTiles,
    &kRopeTableTiles,
    &kRopeTiles,
    &kScaleTiles,
    &kSigmoidMulTiles,
    &kSiluMulTiles,
    &kSliceRowsTiles,
    &kSoftCapTiles,
    &kTimestepEmbeddingTiles,
};

}  // namespace

const TileLowering* find_tile_lowering(const OpDef* op) {
  for (const TileLowering* lowering : kTileLowerings)
    if (lowering->op == op) return lowering;
  return nullptr;
}

}  // namespace redline
