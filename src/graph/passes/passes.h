// Rewrites of a graph. Each has its own file and a test that compares its result with the unfused ops.
#pragma once

#include "graph/target.h"

namespace redline {

/// add(r, linear(x)), where only the add reads the linear, becomes linear(x) + r in the linear's epilogue: one pass
/// less over the hidden state. The same for conv2d.
Status fuse_residual(Graph& graph);

/// gated_add(a, linear(x), table), where only the gated_add reads the linear, becomes one linear whose epilogue
/// multiplies by the item's row of the table and adds a.
Status fuse_gate(Graph& graph);

/// Fuses norm and rope of heads into the key packing or joint_attention op that is their only reader: heads are read
/// once, one page or block of rows at a time, instead of written and read again for each step.
Status fuse_joint_heads(Graph& graph);

/// Removes ops whose results reach no output.
Status remove_dead(Graph& graph);

/// Inserts a prepare_x between an activation and the linear ops that read it in a layout other than float32
/// (Target::activation_layouts), one for all readers that use the same layouts.
Status prepare_activations(Graph& graph, const Target& target);

/// f(linear(x)) * linear(x) becomes one gated_linear, if both linears read x in the same layouts or are the halves of
/// one; f(linear(x)) becomes one activated_linear.
Status fuse_gated_linear(Graph& graph, const Target& target);

/// Three linears of the same x, norm and rope of their heads, and kv_append become one qkv, if the linears read x in
/// the same layouts and heads are whole row panels.
Status fuse_qkv(Graph& graph, const Target& target);

/// conv2d(group_norm(x)), where only the conv2d reads the norm, becomes one conv2d that normalizes image rows as it
/// loads them, if the conv2d runs by tiles.
Status fuse_group_norm(Graph& graph, const Target& target);

/// All passes that depend on the machine, in order; compile_cpu() runs them.
Status run_machine_passes(Graph& graph, const Target& target);

/// All passes that do not depend on the machine, in order.
Status run_passes(Graph& graph);

}  // namespace redline
