// Rewrites of a graph. Each is one file with one test that the result equals the composed form.
#pragma once

#include "graph/target.h"

namespace redline {

/// add(r, linear(x)) with the linear read by nobody else becomes linear(x) + r in the linear's epilogue: one pass less
/// over the hidden state. The same for conv2d.
Status fuse_residual(Graph& graph);

/// gated_add(a, linear(x), table) with the linear read by nobody else becomes one linear whose epilogue multiplies by
/// the item's row of the table and adds a.
Status fuse_gate(Graph& graph);

/// Norm and rope of heads that only joint_keys or joint_attention reads become part of it: heads are read once, a page
/// or a block of rows at a time, instead of written and read again for each.
Status fuse_joint_heads(Graph& graph);

/// Drops ops whose results reach no output.
Status remove_dead(Graph& graph);

/// Puts a prepare_x between an activation and the products that read it in another form than float32 (Target::
/// activation_layouts), one for all products that want the same forms.
Status prepare_activations(Graph& graph, const Target& target);

/// f(linear(x)) * linear(x) becomes one gated_linear, where both products want x in the same forms, or are the halves
/// of one; f(linear(x)) one activated_linear.
Status fuse_gated_linear(Graph& graph, const Target& target);

/// Three products of one x, norm and rope of their heads and kv_append become one qkv, where the products want x in the
/// same forms and heads are whole strips.
Status fuse_qkv(Graph& graph, const Target& target);

/// conv2d(group_norm(x)) with the norm read by nobody else becomes one conv2d that normalizes the lines that it brings
/// in, where it goes by tiles.
Status fuse_group_norm(Graph& graph, const Target& target);

/// All that depend on the machine, in order; compile() runs them.
Status run_machine_passes(Graph& graph, const Target& target);

/// All that do not depend on the machine, in order.
Status run_passes(Graph& graph);

}  // namespace redline
