// The entries of a base set: every kernel file fills in its own. Overlays have their own table.SET.kernel.cc.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {

void fill_rms_norm(CpuKernels& table);
void fill_rope(CpuKernels& table);
void fill_silu_mul(CpuKernels& table);
void fill_add(CpuKernels& table);
void fill_exp(CpuKernels& table);
void fill_soft_cap(CpuKernels& table);
void fill_layer_norm(CpuKernels& table);
void fill_activation(CpuKernels& table);
void fill_gated_add(CpuKernels& table);
void fill_kv_append(CpuKernels& table);
void fill_attention(CpuKernels& table);
void fill_attention_merge(CpuKernels& table);
void fill_relative_bias_attention(CpuKernels& table);
void fill_logit_blocks(CpuKernels& table);
void fill_linear(CpuKernels& table);
void fill_linear_q8(CpuKernels& table);
void fill_linear_tiles(CpuKernels& table);
void fill_linear_i8(CpuKernels& table);
void fill_linear_i8_tiles(CpuKernels& table);
void fill_lora_expand(CpuKernels& table);
void fill_prepare_i8(CpuKernels& table);
void fill_prepare_x(CpuKernels& table);
void fill_embedding(CpuKernels& table);
void fill_conv2d(CpuKernels& table);
void fill_conv2d_f32(CpuKernels& table);
void fill_group_norm(CpuKernels& table);
void fill_peaks(CpuKernels& table);
void fill_tile_product(CpuKernels& table);

void fill_table(CpuKernels& table) {
  fill_rms_norm(table);
  fill_rope(table);
  fill_silu_mul(table);
  fill_add(table);
  fill_exp(table);
  fill_soft_cap(table);
  fill_layer_norm(table);
  fill_activation(table);
  fill_gated_add(table);
  fill_kv_append(table);
  fill_attention(table);
  fill_attention_merge(table);
  fill_relative_bias_attention(table);
  fill_logit_blocks(table);
  fill_linear(table);
  fill_linear_q8(table);
  fill_linear_tiles(table);
  fill_linear_i8(table);
  fill_linear_i8_tiles(table);
  fill_lora_expand(table);
  fill_prepare_i8(table);
  fill_prepare_x(table);
  fill_embedding(table);
  fill_conv2d(table);
  fill_conv2d_f32(table);
  fill_group_norm(table);
  fill_peaks(table);
  fill_tile_product(table);
}

}  // namespace redline::REDLINE_ISA_NS
