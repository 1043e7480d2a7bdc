// The table of CPU lowerings: one row per op, defined in lower/NAME.cc.
#include "backends/cpu/lowering.h"

namespace redline {

extern const CpuLowering kActivationLowering;
extern const CpuLowering kGatedActivationLowering;
extern const CpuLowering kAddLowering;
extern const CpuLowering kAddRowLowering;
extern const CpuLowering kAttentionLowering;
extern const CpuLowering kRelativeBiasAttentionLowering;
extern const CpuLowering kCausalConvLowering;
extern const CpuLowering kColumnSquaresLowering;
extern const CpuLowering kExpertSquaresLowering;
extern const CpuLowering kConcatRowsLowering;
extern const CpuLowering kSliceRowsLowering;
extern const CpuLowering kConcatColsLowering;
extern const CpuLowering kConcatHeadsLowering;
extern const CpuLowering kConv2dLowering;
extern const CpuLowering kEmbeddingLowering;
extern const CpuLowering kExpertGatedLinearLowering;
extern const CpuLowering kExpertLinearLowering;
extern const CpuLowering kExpertSumLowering;
extern const CpuLowering kGatedAddLowering;
extern const CpuLowering kGatedLinearLowering;
extern const CpuLowering kGatedNormLowering;
extern const CpuLowering kGatedScanLowering;
extern const CpuLowering kActivatedLinearLowering;
extern const CpuLowering kGatherRowsLowering;
extern const CpuLowering kGroupNormSumsLowering;
extern const CpuLowering kGroupNormLowering;
extern const CpuLowering kPackKvLowering;
extern const CpuLowering kHeadLinearLowering;
extern const CpuLowering kJointAttentionLowering;
extern const CpuLowering kKvAppendLowering;
extern const CpuLowering kLayerNormLowering;
extern const CpuLowering kModulatedNormLowering;
extern const CpuLowering kLinearLowering;
extern const CpuLowering kLstmLowering;
extern const CpuLowering kMoeRouterLowering;
extern const CpuLowering kPrepareXLowering;
extern const CpuLowering kQkvLowering;
extern const CpuLowering kRmsNormLowering;
extern const CpuLowering kRopeTableLowering;
extern const CpuLowering kRopeLowering;
extern const CpuLowering kScaleLowering;
extern const CpuLowering kSigmoidMulLowering;
extern const CpuLowering kSiluMulLowering;
extern const CpuLowering kSoftCapLowering;
extern const CpuLowering kTimestepEmbeddingLowering;

namespace {

const CpuLowering* const kLowerings[] = {
    &kActivationLowering,
    &kGatedActivationLowering,
    &kAddLowering,
    &kAddRowLowering,
    &kAttentionLowering,
    &kRelativeBiasAttentionLowering,
    &kCausalConvLowering,
    &kColumnSquaresLowering,
    &kExpertSquaresLowering,
    &kConcatRowsLowering,
    &kSliceRowsLowering,
    &kConcatColsLowering,
    &kConcatHeadsLowering,
    &kConv2dLowering,
    &kEmbeddingLowering,
    &kExpertGatedLinearLowering,
    &kExpertLinearLowering,
    &kExpertSumLowering,
    &kGatedAddLowering,
    &kGatedLinearLowering,
    &kGatedNormLowering,
    &kGatedScanLowering,
    &kActivatedLinearLowering,
    &kGatherRowsLowering,
    &kGroupNormSumsLowering,
    &kGroupNormLowering,
    &kPackKvLowering,
    &kHeadLinearLowering,
    &kJointAttentionLowering,
    &kKvAppendLowering,
    &kLayerNormLowering,
    &kModulatedNormLowering,
    &kLinearLowering,
    &kLstmLowering,
    &kMoeRouterLowering,
    &kPrepareXLowering,
    &kQkvLowering,
    &kRmsNormLowering,
    &kRopeTableLowering,
    &kRopeLowering,
    &kScaleLowering,
    &kSigmoidMulLowering,
    &kSiluMulLowering,
    &kSoftCapLowering,
    &kTimestepEmbeddingLowering,
};

}  // namespace

const CpuLowering* find_cpu_lowering(const OpDef* op) {
  for (const CpuLowering* lowering : kLowerings)
    if (lowering->op == op) return lowering;
  return nullptr;
}

}  // namespace redline
